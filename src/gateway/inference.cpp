#include "gateway/inference.h"

#include <fmt/format.h>

#include <ctime>

#include "gateway/defaults.h"
#include "gateway/engine_request.h"
#include "gateway/relay_http.h"
#include "gateway/relay_python.h"
#include "gateway/task_chat.h"
#include "gateway/task_embeddings.h"
#include "gateway/task_images.h"
#include "gateway/task_rerank.h"
#include "gateway/task_run.h"
#include "gateway/task_speech.h"
#include "gateway/task_transcription.h"

namespace omni::gateway {
namespace {

AnswerIdentity identity_of(const Request& request) {
  return {request.answer.request_id(), request.model_name, std::time(nullptr)};
}

bool is_command(const Request& request) { return request.model->engine == EngineKind::command; }

asio::awaitable<Result<void>> serve_on_command(Request& request, EngineRequest engine_request) {
  HttpBackend backend(std::move(engine_request));
  auto served = co_await serve(request, backend);
  co_return served;
}

asio::awaitable<Result<void>> serve_on_python(Request& request, HandlerRequest handler_request,
                                              PythonBackend::AdapterFactory make_adapter) {
  PythonBackend backend(std::move(handler_request), std::move(make_adapter));
  auto served = co_await serve(request, backend);
  co_return served;
}

Result<json::object> parse_parameters(std::string_view body) {
  json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  boost::system::error_code failure;
  json::value parsed = json::parse(body, failure, {}, options);
  if (failure) return Error{ErrorCode::invalid_json, failure.message()};
  return std::move(parsed.get_object());  // The scan has seen that it is an object.
}

struct HandlerPlan {
  HandlerRequest request;
  PythonBackend::AdapterFactory make_adapter;
};

Result<HandlerPlan> chat_plan(const Request& request, json::object parameters,
                              const JsonFacts& facts) {
  ChatShape shape;
  shape.completion = request.route.api == Api::completions;
  shape.stream = request.wants_events;
  shape.include_usage = facts.include_usage;
  if (shape.completion) {
    if (request.model->task == Task::chat) {
      CHECK(completion_as_chat(parameters));
    } else {
      TRY(std::string prompt, prompt_of(parameters));
      parameters["prompt"] = prompt;
    }
  }
  auto make = [identity = identity_of(request), shape] { return chat_adapter(identity, shape); };
  return HandlerPlan{{std::move(parameters), {}, {}, false, {}}, std::move(make)};
}

Result<HandlerPlan> embeddings_plan(const Request& request, json::object parameters) {
  TRY(bool base64, take_encoding_format(parameters));
  TRY(std::size_t inputs, normalise_embeddings(parameters));
  auto make = [identity = identity_of(request), inputs, base64] {
    return embeddings_adapter(identity, inputs, base64);
  };
  return HandlerPlan{{std::move(parameters), {}, {}, false, {}}, std::move(make)};
}

Result<HandlerPlan> rerank_plan(const Request& request, json::object parameters) {
  TRY(RerankOptions options, normalise_rerank(parameters));
  const bool by_similarity = request.model->task == Task::embeddings;
  if (by_similarity) parameters = as_embeddings(parameters);
  auto make = [identity = identity_of(request), options = std::move(options), by_similarity] {
    return by_similarity ? similarity_adapter(identity, options)
                         : rerank_adapter(identity, options);
  };
  return HandlerPlan{{std::move(parameters), {}, {}, false, {}}, std::move(make)};
}

Result<HandlerPlan> images_plan(const Request& request, json::object parameters) {
  TRY(ImageOptions options, normalise_image_generation(parameters));
  auto make = [identity = identity_of(request), options] {
    return images_adapter(identity, options);
  };
  return HandlerPlan{{std::move(parameters), {}, {}, false, {}}, std::move(make)};
}

Result<HandlerPlan> speech_plan(Request& request, json::object parameters) {
  TRY(SpeechOptions options, normalise_speech(parameters));
  request.wants_events = options.events;
  auto make = [identity = identity_of(request), options] {
    return speech_adapter(identity, options);
  };
  return HandlerPlan{{std::move(parameters), {}, {}, false, {}}, std::move(make)};
}

Result<HandlerPlan> json_plan(Request& request, std::string_view body, const JsonFacts& facts) {
  TRY(json::object parameters, parse_parameters(body));
  parameters.erase("model");
  add_defaults(*request.model, parameters);
  switch (request.route.api) {
    case Api::embeddings:
      return embeddings_plan(request, std::move(parameters));
    case Api::rerank:
      return rerank_plan(request, std::move(parameters));
    case Api::image_generations:
      return images_plan(request, std::move(parameters));
    case Api::speech:
      return speech_plan(request, std::move(parameters));
    default:
      return chat_plan(request, std::move(parameters), facts);
  }
}

Result<void> require_json(const Request& request) {
  const std::string type = media_type(request.head());
  if (is_json(type) || type == "text/plain") return {};
  return Error{ErrorCode::unsupported_media_type,
               fmt::format("send application/json instead of \"{}\"", type)};
}

Error model_required(Request& request) {
  request.answer.blame("model");
  return {ErrorCode::invalid_request, "`model` is required; GET /v1/models lists the names"};
}

Error file_required(Request& request, std::string_view part, std::string_view content) {
  request.answer.blame(std::string(part));
  return {ErrorCode::invalid_request,
          fmt::format("`{}` is required: the {}, as a file part", part, content)};
}

// The form, and the model that it names.
asio::awaitable<Result<Form>> read_task_form(Request& request) {
  CO_TRY(Form form, co_await read_form(request));
  const std::string* name = form.field("model");
  if (!name) co_return model_required(request);
  CO_CHECK(request.choose_model(*name));
  add_defaults(*request.model, form);
  co_return form;
}

asio::awaitable<Result<void>> serve_json_on_python(Request& request, std::string body,
                                                   const JsonFacts& facts) {
  CO_TRY(HandlerPlan plan, json_plan(request, body, facts));
  body = {};
  auto served =
      co_await serve_on_python(request, std::move(plan.request), std::move(plan.make_adapter));
  co_return served;
}

// ---- /ai/run

bool accepts_events(const http::RequestHead& head) {
  return head.headers.get("accept").find("text/event-stream") != std::string_view::npos;
}

// Checks and completes a JSON object as the task's own endpoint would.
Result<void> normalise(Task task, json::object& parameters) {
  if (task == Task::embeddings) CHECK(normalise_embeddings(parameters));
  if (task == Task::rerank) CHECK(normalise_rerank(parameters));
  if (task == Task::image_generation) CHECK(normalise_image_generation(parameters));
  return {};
}

asio::awaitable<Result<void>> run_json(Request& request) {
  CO_TRY(std::string body, co_await read_held_body(request));
  CO_TRY(JsonFacts facts, request.services.json.scan(body));
  request.wants_events = facts.stream || accepts_events(request.head());
  Result<void> served;
  if (is_command(request)) {
    CO_TRY(EngineRequest wanted, run_json_request(request, std::move(body), facts));
    served = co_await serve_on_command(request, std::move(wanted));
  } else {
    HandlerRequest wanted;
    CO_TRY(wanted.parameters, parse_parameters(body));
    add_defaults(*request.model, wanted.parameters);
    const Task task = request.model->task;
    if (!file_part(task).empty()) co_return needs_file(*request.model);
    CO_CHECK(normalise(task, wanted.parameters));
    auto make = [events = request.wants_events] { return run_adapter(events); };
    served = co_await serve_on_python(request, std::move(wanted), std::move(make));
  }
  co_return served;
}

asio::awaitable<Result<void>> run_form(Request& request) {
  CO_TRY(Form form, co_await read_form(request));
  add_defaults(*request.model, form);
  const std::string* stream = form.field("stream");
  request.wants_events = (stream && *stream == "true") || accepts_events(request.head());
  Result<void> served;
  if (is_command(request)) {
    CO_TRY(EngineRequest wanted, run_form_request(request, std::move(form)));
    served = co_await serve_on_command(request, std::move(wanted));
  } else {
    HandlerRequest wanted;
    if (request.model->task == Task::image_to_image) {
      CO_CHECK(normalise_image_edit(form, wanted.parameters));
    } else {
      for (auto& [name, value] : form.fields) wanted.parameters[name] = value;
    }
    wanted.files = std::move(form.files);
    auto make = [events = request.wants_events] { return run_adapter(events); };
    served = co_await serve_on_python(request, std::move(wanted), std::move(make));
  }
  co_return served;
}

// A raw body as the file that the model's task is about.
Result<UploadedFile> as_file(const Request& request, RawBody body, std::string content_type) {
  if (!body.file) {
    TRY(SpoolFile file, SpoolFile::create(request.services.shared.spool));
    CHECK(file.append(body.held));
    body.file = std::make_shared<SpoolFile>(std::move(file));
  }
  const std::string name(file_part(request.model->task));
  return UploadedFile{name, name, std::move(content_type), std::move(body.file)};
}

asio::awaitable<Result<void>> run_raw(Request& request) {
  CO_TRY(RawBody body, co_await read_raw_body(request));
  request.wants_events = accepts_events(request.head());
  std::string type(request.head().headers.get("content-type"));
  const bool about_file = !file_part(request.model->task).empty();
  Result<void> served;
  if (is_command(request)) {
    if (!about_file) {
      co_return Error{
          ErrorCode::unsupported_media_type,
          fmt::format("model \"{}\" takes a JSON object, not \"{}\"", request.model->name, type)};
    }
    Form form;
    CO_TRY(UploadedFile file, as_file(request, std::move(body), std::move(type)));
    form.files.push_back(std::move(file));
    CO_TRY(EngineRequest wanted, run_form_request(request, std::move(form)));
    served = co_await serve_on_command(request, std::move(wanted));
  } else {
    HandlerRequest wanted;
    if (about_file) {
      CO_TRY(UploadedFile file, as_file(request, std::move(body), std::move(type)));
      wanted.files.push_back(std::move(file));
    } else {
      wanted.raw = true;
      wanted.content_type = type;
      wanted.body = std::move(body.held);
      if (body.file) wanted.files.push_back({"", "", std::move(type), std::move(body.file)});
    }
    auto make = [events = request.wants_events] { return run_adapter(events); };
    served = co_await serve_on_python(request, std::move(wanted), std::move(make));
  }
  co_return served;
}

}  // namespace

asio::awaitable<Result<void>> answer_json_task(Request& request) {
  // The two branches are coroutines of their own, so that neither pays for the other's frame.
  CO_CHECK(require_json(request));
  CO_TRY(std::string body, co_await read_held_body(request));
  CO_TRY(JsonFacts facts, request.services.json.scan(body));
  if (!facts.model) co_return model_required(request);
  CO_CHECK(request.choose_model(*facts.model));
  request.wants_events =
      facts.stream && (request.route.api == Api::chat || request.route.api == Api::completions);
  Result<void> served;
  if (is_command(request)) {
    served = co_await serve_on_command(request, json_request(request, std::move(body), facts));
  } else {
    served = co_await serve_json_on_python(request, std::move(body), facts);
  }
  co_return served;
}

asio::awaitable<Result<void>> answer_transcription(Request& request) {
  CO_TRY(Form form, co_await read_task_form(request));
  if (!form.file("file")) co_return file_required(request, "file", "audio");
  CO_TRY(TranscriptionOptions options, transcription_options(form.fields));
  request.wants_events = options.stream;
  Result<void> served;
  if (is_command(request)) {
    EngineRequest wanted = form_request(request, std::move(form));
    served = co_await serve_on_command(request, std::move(wanted));
  } else {
    auto make = [identity = identity_of(request), format = options.format,
                 stream = options.stream] {
      return transcription_adapter(identity, format, stream);
    };
    HandlerRequest wanted;
    wanted.parameters = std::move(options.parameters);
    wanted.files = std::move(form.files);
    served = co_await serve_on_python(request, std::move(wanted), std::move(make));
  }
  co_return served;
}

asio::awaitable<Result<void>> answer_image_edit(Request& request) {
  CO_TRY(Form form, co_await read_task_form(request));
  if (!form.file("image") && !form.file("image[]")) {
    co_return file_required(request, "image", "image");
  }
  Result<void> served;
  if (is_command(request)) {
    EngineRequest wanted = form_request(request, std::move(form));
    served = co_await serve_on_command(request, std::move(wanted));
  } else {
    HandlerRequest wanted;
    CO_TRY(ImageOptions options, normalise_image_edit(form, wanted.parameters));
    wanted.files = std::move(form.files);
    auto make = [identity = identity_of(request), options] {
      return images_adapter(identity, options);
    };
    served = co_await serve_on_python(request, std::move(wanted), std::move(make));
  }
  co_return served;
}

asio::awaitable<Result<void>> answer_run(Request& request) {
  CO_CHECK(request.choose_model(request.route.model));
  const std::string type = media_type(request.head());
  Result<void> served;
  if (is_json(type)) {
    served = co_await run_json(request);
  } else if (type == "multipart/form-data") {
    served = co_await run_form(request);
  } else {
    served = co_await run_raw(request);
  }
  co_return served;
}

asio::awaitable<Result<void>> answer_upstream(Request& request) {
  CO_CHECK(request.choose_model(request.route.model));
  if (!is_command(request)) {
    co_return Error{ErrorCode::task_mismatch,
                    fmt::format("model \"{}\" is a Python handler without an HTTP server of its "
                                "own: call POST /ai/run/{}",
                                request.model->name, request.model->name)};
  }
  EngineRequest wanted = raw_request(request);
  const std::uint64_t limit = static_cast<std::uint64_t>(request.config().json_body.count());
  const http::RequestHead& head = request.head();
  // A small body is held, so that it can be sent again.
  if (head.chunked || head.content_length.value_or(0) > limit) {
    wanted.stream_body = true;
  } else if (head.has_body()) {
    CO_TRY(std::string body, co_await read_held_body(request));
    wanted.body = EngineBody(std::move(body));
  }
  auto served = co_await serve_on_command(request, std::move(wanted));
  co_return served;
}

}  // namespace omni::gateway
