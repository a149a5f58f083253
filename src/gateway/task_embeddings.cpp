#include "gateway/task_embeddings.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "gateway/base64.h"

namespace omni::gateway {
namespace {

Error wrong_input() {
  return {ErrorCode::invalid_request, "`input` must be a string or a list of strings"};
}

// Little-endian float32, as OpenAI's clients decode it.
Result<std::string> packed(const json::array& vector) {
  static_assert(std::endian::native == std::endian::little);
  std::string bytes(vector.size() * sizeof(float), '\0');
  for (std::size_t i = 0; i < vector.size(); ++i) {
    boost::system::error_code failure;
    const float number = static_cast<float>(vector[i].to_number<double>(failure));
    if (failure) return unfit_answer("an embedding must be a list of numbers");
    std::memcpy(bytes.data() + i * sizeof(float), &number, sizeof(float));
  }
  return base64(bytes);
}

class EmbeddingsAdapter final : public DictAdapter {
 public:
  EmbeddingsAdapter(AnswerIdentity identity, std::size_t inputs, bool base64)
      : identity_(std::move(identity)), inputs_(inputs), base64_(base64) {}

 private:
  Result<json::object> answer(json::object& given) const override {
    json::value* embeddings = given.if_contains("embeddings");
    if (!embeddings || !embeddings->is_array()) {
      return unfit_answer("a dict with `embeddings` is needed");
    }
    if (embeddings->get_array().size() != inputs_) {
      return unfit_answer(
          fmt::format("{} embeddings for {} inputs", embeddings->get_array().size(), inputs_));
    }
    TRY(json::array data, list(std::move(embeddings->get_array())));
    return json::object{{"object", "list"}, {"data", std::move(data)}, {"model", identity_.model}};
  }

  Result<json::array> list(json::array embeddings) const {
    json::array data;
    data.reserve(embeddings.size());
    for (json::value& vector : embeddings) {
      if (!vector.is_array()) return unfit_answer("an embedding must be a list of numbers");
      json::object entry{{"object", "embedding"}, {"index", data.size()}};
      if (base64_) {
        TRY(std::string text, packed(vector.get_array()));
        entry["embedding"] = text;
      } else {
        entry["embedding"] = std::move(vector);
      }
      data.push_back(std::move(entry));
    }
    return data;
  }

  AnswerIdentity identity_;
  std::size_t inputs_;
  bool base64_;
};

}  // namespace

Result<std::size_t> normalise_embeddings(json::object& parameters) {
  json::value* input = parameters.if_contains("input");
  if (!input) return wrong_input();
  if (input->is_string()) {
    json::value text = std::move(*input);
    *input = json::array{std::move(text)};
    return std::size_t{1};
  }
  if (!input->is_array() || input->get_array().empty()) return wrong_input();
  for (const json::value& entry : input->get_array()) {
    if (entry.is_number() || entry.is_array()) {
      return Error{ErrorCode::invalid_request,
                   "`input` holds token arrays, which depend on the model's tokenizer: send text"};
    }
    if (!entry.is_string()) return wrong_input();
  }
  return input->get_array().size();
}

Result<bool> take_encoding_format(json::object& parameters) {
  const json::value* format = parameters.if_contains("encoding_format");
  if (!format) return false;
  const bool base64 = format->is_string() && format->get_string() == "base64";
  const bool numbers =
      format->is_null() || (format->is_string() && format->get_string() == "float");
  if (!base64 && !numbers) {
    return Error{ErrorCode::invalid_request, "`encoding_format` must be \"float\" or \"base64\""};
  }
  parameters.erase("encoding_format");
  return base64;
}

std::unique_ptr<TaskAdapter> embeddings_adapter(AnswerIdentity identity, std::size_t inputs,
                                                bool base64) {
  return std::make_unique<EmbeddingsAdapter>(std::move(identity), inputs, base64);
}

}  // namespace omni::gateway
