#include "gateway/task_adapter.h"

#include <fmt/format.h>

#include "base/text.h"
#include "gateway/json_body.h"

namespace omni::gateway {

const json::object* TaskAdapter::note_usage(const json::object& from) {
  const json::value* usage = from.if_contains("usage");
  if (!usage || !usage->is_object()) return nullptr;
  usage_ = parse_usage(json::serialize(*usage));
  told_ = usage->get_object();
  // OpenAI's clients look for the sum.
  if (told_.contains("prompt_tokens") && !told_.contains("total_tokens")) {
    told_["total_tokens"] = usage_->prompt_tokens + usage_->completion_tokens;
  }
  return &told_;
}

Result<TaskAdapter::Head> DictAdapter::begin(const engine::ResponseStart&, FirstKind) {
  return Head{"application/json", false, false};
}

Result<std::string> DictAdapter::item(engine::Item item) {
  if (given_) return unfit_answer("one dict is needed");
  TRY(json::object given, object_of(item));
  given_ = std::move(given);
  return std::string();
}

Result<std::string> DictAdapter::end(const json::object& trailer) {
  json::object given = given_ ? std::move(*given_) : json::object();
  TRY(json::object out, answer(given));
  const json::object* usage = note_usage(trailer);
  if (!usage) usage = note_usage(given);
  if (usage) out["usage"] = *usage;
  return json::serialize(out);
}

Error unfit_answer(std::string_view what) {
  return {ErrorCode::handler_failed, fmt::format("the handler's answer does not fit: {}", what)};
}

Result<json::object> object_of(const engine::Item& item) {
  boost::system::error_code failure;
  json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  json::value parsed = json::parse(item.data, failure, {}, options);
  if (failure) return unfit_answer("it is not valid JSON");
  if (!parsed.is_object()) return unfit_answer("a JSON object is needed");
  return std::move(parsed.get_object());
}

Result<std::string> text_of(engine::Item item) {
  if (!is_utf8(item.data)) return unfit_answer("text in UTF-8 is needed");
  return std::move(item.data);
}

}  // namespace omni::gateway
