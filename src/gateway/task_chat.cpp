#include "gateway/task_chat.h"

#include <fmt/format.h>

#include "gateway/json_body.h"

namespace omni::gateway {
namespace {

using engine::Item;
using engine::ItemKind;

// The text, and what else a handler's dict may say of the one choice.
struct Piece {
  std::string text;
  json::value tool_calls;     // null: none
  json::value finish_reason;  // null: not said
};

json::value take(json::object& from, std::string_view name) {
  json::value* found = from.if_contains(name);
  return found ? std::move(*found) : json::value();
}

Result<Piece> piece_of(json::object from) {
  Piece piece;
  json::value text = take(from, "content");
  if (text.is_null()) text = take(from, "text");
  piece.tool_calls = take(from, "tool_calls");
  piece.finish_reason = take(from, "finish_reason");
  if (text.is_string()) {
    piece.text = std::string_view(text.get_string());
  } else if (!piece.tool_calls.is_array()) {
    return unfit_answer("a chat handler gives text, or a dict with `choices` or `content`");
  }
  return piece;
}

class ChatAdapter : public TaskAdapter {
 public:
  ChatAdapter(AnswerIdentity identity, ChatShape shape)
      : identity_(std::move(identity)), shape_(shape) {
    identity_.id.insert(0, shape_.completion ? "cmpl-" : "chatcmpl-");
  }

  Result<Head> begin(const engine::ResponseStart&, FirstKind) override {
    if (shape_.stream) return Head{"text/event-stream; charset=utf-8", true, true};
    return Head{"application/json", false, false};
  }

  Result<std::string> item(Item item) override {
    if (item.kind != ItemKind::json) {
      TRY(std::string text, text_of(std::move(item)));
      return add(Piece{std::move(text), {}, {}});
    }
    TRY(json::object given, object_of(item));
    note_usage(given);
    if (given.contains("choices")) return add_complete(std::move(given));
    TRY(Piece piece, piece_of(std::move(given)));
    return add(std::move(piece));
  }

  Result<std::string> end(const json::object& trailer) override {
    const json::object* usage = note_usage(trailer);
    if (const json::value* reason = trailer.if_contains("finish_reason")) finish_ = *reason;
    if (!shape_.stream) return whole(usage);
    std::string out;
    if (!finished_) {
      if (!begun_) out += first_chunk();
      out += chunk(json::object(), finish_reason());
    }
    if (shape_.include_usage && usage) out += usage_chunk(*usage);
    return out + "data: [DONE]\n\n";
  }

 private:
  Result<std::string> add(Piece piece) {
    if (!piece.finish_reason.is_null()) finish_ = std::move(piece.finish_reason);
    if (!shape_.stream) {
      text_ += piece.text;
      if (piece.tool_calls.is_array()) tool_calls_ = std::move(piece.tool_calls);
      return std::string();
    }
    std::string out = begun_ ? "" : first_chunk();
    if (!shape_.completion && piece.tool_calls.is_array()) {
      // A stream's deltas are numbered.
      std::int64_t index = 0;
      for (json::value& call : piece.tool_calls.get_array()) {
        if (call.is_object()) call.get_object()["index"] = index++;
      }
      tool_calls_ = piece.tool_calls;
      out += chunk({{"tool_calls", std::move(piece.tool_calls)}}, nullptr);
    }
    if (!piece.text.empty()) out += text_chunk(piece.text);
    return out;
  }

  // A dict that is an OpenAI object (or chunk) already: only what it leaves out is added.
  Result<std::string> add_complete(json::object given) {
    if (!shape_.stream) {
      complete_ = std::move(given);
      return std::string();
    }
    json::value* choices = given.if_contains("choices");
    if (!choices->is_array()) return unfit_answer("`choices` must be a list");
    for (json::value& choice : choices->get_array()) {
      if (!choice.is_object()) return unfit_answer("`choices` must be a list of objects");
      json::object& fields = choice.get_object();
      if (!shape_.completion && fields.contains("message")) {
        fields["delta"] = take(fields, "message");
        fields.erase("message");
      }
      const json::value* reason = fields.if_contains("finish_reason");
      if (reason && !reason->is_null()) finished_ = true;
    }
    begun_ = true;
    given.erase("usage");  // Told at the end, if asked for.
    return event(json::serialize(identified(std::move(given), stream_object())));
  }

  Result<std::string> whole(const json::object* usage) {
    json::object out = complete_ ? identified(std::move(*complete_), object_name())
                                 : identified(json::object(), object_name());
    if (!out.contains("choices")) out["choices"] = json::array{own_choice()};
    if (usage && !out.contains("usage")) out["usage"] = *usage;
    return json::serialize(out);
  }

  json::object own_choice() {
    json::object choice{{"index", 0}};
    if (shape_.completion) {
      choice["text"] = text_;
    } else {
      json::object message{{"role", "assistant"}};
      message["content"] =
          text_.empty() && tool_calls_.is_array() ? json::value() : json::value(text_);
      if (tool_calls_.is_array()) message["tool_calls"] = tool_calls_;
      choice["message"] = std::move(message);
    }
    choice["logprobs"] = nullptr;
    choice["finish_reason"] = finish_reason();
    return choice;
  }

  json::object identified(json::object object, std::string_view kind) const {
    object.emplace("id", identity_.id);
    object.emplace("object", kind);
    object.emplace("created", identity_.created);
    object.emplace("model", identity_.model);
    return object;
  }

  std::string_view object_name() const {
    return shape_.completion ? "text_completion" : "chat.completion";
  }
  std::string_view stream_object() const {
    return shape_.completion ? "text_completion" : "chat.completion.chunk";
  }

  json::value finish_reason() const {
    if (!finish_.is_null()) return finish_;
    return tool_calls_.is_array() ? "tool_calls" : "stop";
  }

  // OpenAI's clients take the role from the first chunk. Completions have none.
  std::string first_chunk() {
    begun_ = true;
    if (shape_.completion) return {};
    return chunk({{"role", "assistant"}, {"content", ""}}, nullptr);
  }

  // The one chunk there are many of: put together by hand.
  std::string text_chunk(std::string_view text) const {
    const std::string_view before = shape_.completion ? R"("text":)" : R"("delta":{"content":)";
    return fmt::format(
        R"(data: {{"id":{},"object":"{}","created":{},"model":{},"choices":[{{"index":0,{}{}{},"finish_reason":null}}]}})"
        "\n\n",
        quote(identity_.id), stream_object(), identity_.created, quote(identity_.model), before,
        quote(text), shape_.completion ? "" : "}");
  }

  std::string chunk(json::object delta, json::value reason) const {
    json::object choice{{"index", 0}};
    if (shape_.completion) {
      choice["text"] = "";
    } else {
      choice["delta"] = std::move(delta);
    }
    choice["finish_reason"] = std::move(reason);
    json::object object{{"choices", json::array{std::move(choice)}}};
    return event(json::serialize(identified(std::move(object), stream_object())));
  }

  std::string usage_chunk(const json::object& usage) const {
    json::object object{{"choices", json::array()}, {"usage", usage}};
    return event(json::serialize(identified(std::move(object), stream_object())));
  }

  AnswerIdentity identity_;
  ChatShape shape_;
  std::string text_;
  json::value tool_calls_;
  json::value finish_;
  std::optional<json::object> complete_;
  bool begun_ = false;     // the first chunk is out
  bool finished_ = false;  // a chunk of the handler's said finish_reason
};

}  // namespace

std::unique_ptr<TaskAdapter> chat_adapter(AnswerIdentity identity, ChatShape shape) {
  return std::make_unique<ChatAdapter>(std::move(identity), shape);
}

Result<std::string> prompt_of(const json::object& parameters) {
  const json::value* prompt = parameters.if_contains("prompt");
  if (prompt && prompt->is_array() && prompt->get_array().size() == 1) {
    prompt = &prompt->get_array().front();
  }
  if (!prompt || !prompt->is_string()) {
    return Error{ErrorCode::invalid_request,
                 "`prompt` must be a string: lists and token arrays are not supported"};
  }
  return std::string(prompt->get_string().c_str(), prompt->get_string().size());
}

Result<void> completion_as_chat(json::object& parameters) {
  TRY(std::string prompt, prompt_of(parameters));
  parameters.erase("prompt");
  parameters["messages"] = json::array{json::object{{"role", "user"}, {"content", prompt}}};
  return {};
}

}  // namespace omni::gateway
