#include "gateway/engine_request.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "gateway/defaults.h"

namespace omni::gateway {
namespace {

namespace json = boost::json;

EngineRequest api_request(std::string target) {
  EngineRequest wanted;
  wanted.method = "POST";
  wanted.target = std::move(target);
  wanted.answer_is_read = true;
  return wanted;
}

// stream_options with include_usage, the client's other options kept.
std::string with_usage(std::string_view options) {
  boost::system::error_code failure;
  json::value value = json::parse(options, failure);
  json::object changed;
  if (!failure && value.is_object()) changed = std::move(value.get_object());
  changed["include_usage"] = true;
  return json::serialize(changed);
}

std::string_view text_at(const std::string& body, const std::optional<ByteRange>& range) {
  if (!range) return {};
  return std::string_view(body).substr(range->begin, range->end - range->begin);
}

void ask_for_usage(EngineRequest& wanted, JsonEdit& edit, const JsonFacts& facts,
                   const std::string& body) {
  if (facts.include_usage) return;
  edit.set("stream_options", facts.stream_options_value,
           with_usage(text_at(body, facts.stream_options_value)));
  wanted.hide_usage = true;
}

// Media parameters of a form part must not break out of their quotes.
std::string quoted_parameter(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '"') {
      out += "%22";
    } else if (c == '\r') {
      out += "%0D";
    } else if (c == '\n') {
      out += "%0A";
    } else {
      out += c;
    }
  }
  return out;
}

std::string one_line(std::string_view text) {
  std::string out(text);
  std::erase_if(out, [](char c) { return c == '\r' || c == '\n'; });
  return out;
}

std::string field_part(std::string_view boundary, std::string_view name, std::string_view value) {
  return fmt::format("--{}\r\nContent-Disposition: form-data; name=\"{}\"\r\n\r\n{}\r\n", boundary,
                     quoted_parameter(name), value);
}

std::string file_part_head(std::string_view boundary, const UploadedFile& file) {
  const std::string type =
      file.content_type.empty() ? "application/octet-stream" : one_line(file.content_type);
  return fmt::format(
      "--{}\r\nContent-Disposition: form-data; name=\"{}\"; filename=\"{}\"\r\nContent-Type: "
      "{}\r\n\r\n",
      boundary, quoted_parameter(file.name), quoted_parameter(file.filename), type);
}

void set_form(EngineRequest& wanted, const Request& request, const Form& form) {
  const std::string boundary = request.services.new_boundary();
  std::string fields;
  for (const auto& [name, value] : form.fields) fields += field_part(boundary, name, value);
  wanted.body.add(std::move(fields));
  for (const UploadedFile& file : form.files) {
    wanted.body.add(file_part_head(boundary, file));
    wanted.body.add(file.content);
    wanted.body.add("\r\n");
  }
  wanted.body.add(fmt::format("--{}--\r\n", boundary));
  wanted.content_type = "multipart/form-data; boundary=" + boundary;
}

std::string own_name(const Request& request) {
  return request.model->served_name.empty() ? request.model_name : request.model->served_name;
}

void name_model(Form& form, std::string name) {
  for (auto& [field, value] : form.fields) {
    if (field == "model") {
      value = std::move(name);
      return;
    }
  }
  form.fields.emplace_back("model", std::move(name));
}

Result<std::string> run_path(const Request& request) {
  switch (request.model->task) {
    case Task::chat:
      return std::string("/v1/chat/completions");
    case Task::completion:
      return std::string("/v1/completions");
    case Task::embeddings:
      return std::string("/v1/embeddings");
    case Task::rerank:
      return std::string("/v1/rerank");
    case Task::speech_to_text:
      return std::string("/v1/audio/transcriptions");
    case Task::text_to_speech:
      return std::string("/v1/audio/speech");
    case Task::image_generation:
      return std::string("/v1/images/generations");
    case Task::image_to_image:
      return std::string("/v1/images/edits");
    case Task::audio_to_audio:
    case Task::other:
      break;
  }
  return Error{ErrorCode::task_mismatch,
               fmt::format("model \"{}\" runs a command, and there is no common path for its task: "
                           "call its own paths below /upstream/{}/",
                           request.model->name, request.model->name)};
}

bool counts_tokens(Task task) {
  return task == Task::chat || task == Task::completion || task == Task::embeddings;
}

}  // namespace

Error needs_file(const ModelRoute& model) {
  return {ErrorCode::invalid_request,
          fmt::format("model \"{}\" does {}: send the file as the body with its content type, or a "
                      "form with the part `{}`",
                      model.name, to_string(model.task), file_part(model.task))};
}

EngineRequest json_request(const Request& request, std::string body, const JsonFacts& facts) {
  EngineRequest wanted = api_request(request.head().target);
  wanted.content_type = "application/json";
  wanted.count_tokens = counts_tokens(request.model->task);
  JsonEdit edit(facts);
  const std::string& served = request.model->served_name;
  if (!served.empty() && served != facts.model) edit.set("model", facts.model_value, quote(served));
  add_defaults(*request.model, request.services.json, edit);
  if (request.wants_events) ask_for_usage(wanted, edit, facts, body);
  wanted.body.add(edit.apply(std::move(body)));
  return wanted;
}

EngineRequest form_request(const Request& request, Form form) {
  EngineRequest wanted = api_request(request.head().target);
  name_model(form, own_name(request));
  set_form(wanted, request, form);
  return wanted;
}

Result<EngineRequest> run_json_request(const Request& request, std::string body,
                                       const JsonFacts& facts) {
  TRY(std::string path, run_path(request));
  if (!file_part(request.model->task).empty()) return needs_file(*request.model);
  EngineRequest wanted = api_request(std::move(path));
  wanted.content_type = "application/json";
  wanted.count_tokens = counts_tokens(request.model->task);
  JsonEdit edit(facts);
  edit.set("model", facts.model_value, quote(own_name(request)));
  add_defaults(*request.model, request.services.json, edit);
  const Task task = request.model->task;
  if (request.wants_events && (task == Task::chat || task == Task::completion)) {
    if (!facts.stream) edit.set("stream", facts.stream_value, "true");
    ask_for_usage(wanted, edit, facts, body);
  }
  wanted.body.add(edit.apply(std::move(body)));
  return wanted;
}

Result<EngineRequest> run_form_request(const Request& request, Form form) {
  TRY(std::string path, run_path(request));
  if (file_part(request.model->task).empty()) {
    return Error{ErrorCode::unsupported_media_type,
                 fmt::format("model \"{}\" takes a JSON object, not a form", request.model->name)};
  }
  EngineRequest wanted = api_request(std::move(path));
  name_model(form, own_name(request));
  set_form(wanted, request, form);
  return wanted;
}

EngineRequest raw_request(const Request& request) {
  EngineRequest wanted;
  wanted.method = request.head().method;
  wanted.target = request.route.rest;
  wanted.upgrade = request.head().headers.has_token("connection", "upgrade") &&
                   request.head().headers.has("upgrade") && !request.head().has_body();
  return wanted;
}

}  // namespace omni::gateway
