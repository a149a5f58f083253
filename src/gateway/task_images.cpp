#include "gateway/task_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "gateway/base64.h"

namespace omni::gateway {
namespace {

constexpr std::int64_t kMostImages = 10;  // of one request, as OpenAI has it

class ImagesAdapter final : public TaskAdapter {
 public:
  ImagesAdapter(AnswerIdentity identity, ImageOptions options)
      : identity_(std::move(identity)), options_(options) {}

  Result<Head> begin(const engine::ResponseStart& start, FirstKind) override {
    type_ = start.content_type.empty() ? "image/png" : start.content_type;
    if (!type_.starts_with("image/")) {
      return unfit_answer(fmt::format("an image is needed, not {}", type_));
    }
    return Head{"application/json", false, false};
  }

  // Each as it comes: only its text is kept.
  Result<std::string> item(engine::Item item) override {
    if (item.kind != engine::ItemKind::bytes || item.data.empty()) {
      return unfit_answer("an image must be bytes, one item for each image");
    }
    std::string out =
        images_ == 0 ? fmt::format(R"({{"created":{},"data":[)", identity_.created) : ",";
    ++images_;
    if (options_.as_url) {
      out += fmt::format(R"({{"url":"data:{};base64,{}"}})", type_, base64(item.data));
    } else {
      out += fmt::format(R"({{"b64_json":"{}"}})", base64(item.data));
    }
    return out;
  }

  Result<std::string> end(const json::object& trailer) override {
    if (images_ != options_.count) {
      return unfit_answer(fmt::format("{} images for `n` = {}", images_, options_.count));
    }
    const json::object* usage = note_usage(trailer);
    return usage ? "],\"usage\":" + json::serialize(*usage) + "}" : std::string("]}");
  }

 private:
  AnswerIdentity identity_;
  ImageOptions options_;
  std::string type_;
  std::size_t images_ = 0;
};

// "512x512", each side at least 1; what a model can make is its handler's to say.
bool is_size(std::string_view text) {
  if (text == "auto") return true;
  const std::size_t cross = std::min(text.find('x'), text.size());
  const auto is_side = [](std::string_view side) {
    std::uint32_t pixels = 0;
    const char* end = side.data() + side.size();
    const auto parsed = std::from_chars(side.data(), end, pixels);
    return parsed.ec == std::errc() && parsed.ptr == end && pixels > 0;
  };
  return cross < text.size() && is_side(text.substr(0, cross)) && is_side(text.substr(cross + 1));
}

Result<ImageOptions> image_options(json::object& parameters) {
  const auto wrong = [](std::string message) {
    return Error{ErrorCode::invalid_request, std::move(message)};
  };
  ImageOptions options;
  if (const json::value* n = parameters.if_contains("n"); n && !n->is_null()) {
    boost::system::error_code failure;
    const auto number = n->to_number<std::int64_t>(failure);
    if (failure || number < 1 || number > kMostImages) {
      return wrong(fmt::format("`n` must be an integer from 1 to {}", kMostImages));
    }
    options.count = static_cast<std::size_t>(number);
  }
  parameters["n"] = options.count;
  if (const json::value* size = parameters.if_contains("size"); size && !size->is_null()) {
    if (!size->is_string() || !is_size(size->get_string())) {
      return wrong("`size` must be WIDTHxHEIGHT in pixels, such as \"256x256\"");
    }
  }
  if (const json::value* format = parameters.if_contains("response_format")) {
    options.as_url = format->is_string() && format->get_string() == "url";
    const bool base64 =
        format->is_null() || (format->is_string() && format->get_string() == "b64_json");
    if (!options.as_url && !base64) {
      return wrong("`response_format` must be \"b64_json\" or \"url\"");
    }
    parameters.erase("response_format");
  }
  return options;
}

}  // namespace

Result<ImageOptions> normalise_image_generation(json::object& parameters) {
  const json::value* prompt = parameters.if_contains("prompt");
  if (!prompt || !prompt->is_string()) {
    return Error{ErrorCode::invalid_request, "`prompt` must be a text"};
  }
  return image_options(parameters);
}

Result<ImageOptions> normalise_image_edit(Form& form, json::object& parameters) {
  for (UploadedFile& file : form.files) {
    if (file.name == "image[]") file.name = "image";
  }
  for (auto& [name, value] : form.fields) {
    if (name == "model") continue;
    // A form has texts alone: what reads as a number is one.
    double number = 0;
    const char* end = value.data() + value.size();
    const auto parsed = std::from_chars(value.data(), end, number);
    const bool is_number = name != "prompt" && parsed.ec == std::errc() && parsed.ptr == end;
    std::int64_t integer = 0;
    const auto whole = std::from_chars(value.data(), end, integer);
    if (is_number && whole.ec == std::errc() && whole.ptr == end) {
      parameters[name] = integer;
    } else if (is_number) {
      parameters[name] = number;
    } else {
      parameters[name] = value;
    }
  }
  return image_options(parameters);
}

std::unique_ptr<TaskAdapter> images_adapter(AnswerIdentity identity, ImageOptions options) {
  return std::make_unique<ImagesAdapter>(std::move(identity), options);
}

}  // namespace omni::gateway
