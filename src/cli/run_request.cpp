#include "cli/run_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <random>

#include "base/text.h"

namespace omni::cli {
namespace {

namespace json = boost::json;

struct Parameter {
  std::string name;
  std::string text;
};

Result<std::vector<Parameter>> split_parameters(const std::vector<std::string>& parameters) {
  std::vector<Parameter> split;
  for (const std::string& parameter : parameters) {
    const std::size_t equals = parameter.find('=');
    if (equals == 0 || equals == parameter.npos) {
      return Error{ErrorCode::usage,
                   fmt::format("parameter \"{}\" is not of the form NAME=VALUE", parameter)};
    }
    split.push_back({parameter.substr(0, equals), parameter.substr(equals + 1)});
  }
  return split;
}

json::value parameter_value(const std::string& text) {
  boost::system::error_code broken;
  json::value value = json::parse(text, broken);
  return broken ? json::value(text) : value;
}

Request json_request(std::string target, const json::object& body) {
  Request request{.method = "POST", .target = std::move(target), .body = json::serialize(body)};
  request.headers.set("Content-Type", "application/json");
  return request;
}

// A boundary that no file holds but by a chance of 2^-128.
std::string random_boundary() {
  std::random_device random;
  return fmt::format("omni-{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

std::string escape_quotes(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '"') {
      escaped += "%22";
    } else if (static_cast<unsigned char>(c) >= 0x20) {
      escaped += c;
    }
  }
  return escaped;
}

// Fields before the file: a server that streams knows what it does by the time the bytes come.
Request multipart_request(std::string target, const std::vector<Parameter>& fields,
                          const RunInput& input) {
  const std::string boundary = random_boundary();
  Request request{.method = "POST", .target = std::move(target)};
  request.headers.set("Content-Type", "multipart/form-data; boundary=" + boundary);
  for (const Parameter& field : fields) {
    request.body += fmt::format("--{}\r\nContent-Disposition: form-data; name=\"{}\"\r\n\r\n{}\r\n",
                                boundary, escape_quotes(field.name), field.text);
  }
  request.body += fmt::format(
      "--{}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{}\"\r\n"
      "Content-Type: {}\r\n\r\n",
      boundary, escape_quotes(input.filename), media_type_of(input.filename));
  request.body += input.content;
  request.body += fmt::format("\r\n--{}--\r\n", boundary);
  return request;
}

Result<std::string> text_of(const RunInput& input) {
  if (is_utf8(input.content)) return input.content;
  return Error{ErrorCode::invalid_request, "the input is not UTF-8 text"};
}

// JSON as it is given, with the parameters added to an object; other bytes untouched.
Result<Request> other_request(const RunInput& input, const std::vector<Parameter>& parameters) {
  const std::string target = "/ai/run/" + percent_encode(input.resolved);
  boost::system::error_code broken;
  json::value value = json::parse(input.content, broken);
  const bool object = !broken && value.is_object();
  if (object) {
    for (const Parameter& parameter : parameters) {
      value.get_object()[parameter.name] = parameter_value(parameter.text);
    }
    return json_request(target, value.get_object());
  }
  if (!parameters.empty()) {
    return Error{ErrorCode::usage, "--set needs an input that is a JSON object"};
  }
  Request request{.method = "POST", .target = target, .body = input.content};
  request.headers.set("Content-Type", std::string(media_type_of(input.filename)));
  return request;
}

}  // namespace

Result<Request> run_request(Task task, const RunInput& input) {
  TRY(const std::vector<Parameter> parameters, split_parameters(input.parameters));
  if (task == Task::other || task == Task::rerank || task == Task::image_to_image ||
      task == Task::audio_to_audio) {
    return other_request(input, parameters);
  }
  if (task == Task::speech_to_text) {
    std::vector<Parameter> fields{{"model", input.model}};
    fields.insert(fields.end(), parameters.begin(), parameters.end());
    return multipart_request("/v1/audio/transcriptions", fields, input);
  }

  TRY(const std::string text, text_of(input));
  json::object body{{"model", input.model}};
  std::string target;
  switch (task) {
    case Task::chat: {
      json::array messages;
      if (!input.system.empty()) {
        messages.push_back(json::object{{"role", "system"}, {"content", input.system}});
      }
      messages.push_back(json::object{{"role", "user"}, {"content", text}});
      target = "/v1/chat/completions";
      body["messages"] = std::move(messages);
      body["stream"] = input.stream;
      break;
    }
    case Task::completion:
      target = "/v1/completions";
      body["prompt"] = text;
      body["stream"] = input.stream;
      break;
    case Task::embeddings:
      target = "/v1/embeddings";
      body["input"] = text;
      break;
    case Task::image_generation:  // the image itself, where the OpenAI path would give base64
      body.erase("model");
      target = "/ai/run/" + percent_encode(input.resolved);
      body["prompt"] = text;
      break;
    default:
      target = "/v1/audio/speech";
      body["input"] = text;
  }
  for (const Parameter& parameter : parameters) {
    body[parameter.name] = parameter_value(parameter.text);
  }
  return json_request(std::move(target), body);
}

std::string_view media_type_of(std::string_view filename) {
  struct Row {
    std::string_view extension;
    std::string_view type;
  };
  constexpr Row kTypes[] = {
      {".json", "application/json"}, {".txt", "text/plain"},      {".wav", "audio/wav"},
      {".mp3", "audio/mpeg"},        {".flac", "audio/flac"},     {".ogg", "audio/ogg"},
      {".opus", "audio/ogg"},        {".m4a", "audio/mp4"},       {".webm", "audio/webm"},
      {".png", "image/png"},         {".jpg", "image/jpeg"},      {".jpeg", "image/jpeg"},
      {".webp", "image/webp"},       {".pdf", "application/pdf"},
  };
  const std::string extension = std::filesystem::path(filename).extension();
  const auto* row = std::ranges::find(kTypes, extension, &Row::extension);
  return row == std::end(kTypes) ? "application/octet-stream" : row->type;
}

bool is_text(std::string_view media_type) {
  return media_type.starts_with("text/") || media_type == "application/json" ||
         media_type == "application/x-ndjson" || media_type.ends_with("+json");
}

}  // namespace omni::cli
