#include <CLI/CLI.hpp>

#include "base/files.h"
#include "base/task.h"
#include "cli/fields.h"
#include "cli/program.h"
#include "cli/run_request.h"
#include "cli/sink.h"
#include "cli/sse.h"
#include "http/error_body.h"

namespace omni::cli {
namespace {

struct RunFlags {
  std::string model;
  std::string input;  // what it is depends on the task; "-" is standard input
  std::string file;
  std::string output;
  std::string system;
  std::vector<std::string> parameters;
};

constexpr Bytes kInputLimit = Bytes(std::int64_t{1} << 30);  // the daemon's own for a file
// Longer than the daemon's waiting and running limits together, which speak first.
constexpr auto kAnswerTimeout = std::chrono::hours(1);

bool takes_object(Task task) { return task == Task::rerank || task == Task::other; }
bool takes_file(Task task) { return takes_object(task) || !file_part(task).empty(); }
// Their answers are shown as they come, be it text or not.
bool is_raw(Task task) {
  return takes_object(task) || task == Task::text_to_speech || task == Task::image_generation ||
         task == Task::image_to_image || task == Task::audio_to_audio;
}

// ---- input

Result<void> read_content(Console& console, const std::string& path, RunInput& input) {
  if (path == "-") {
    TRY(input.content, console.read_input(kInputLimit));
    return {};
  }
  TRY(input.content, read_file(path, kInputLimit));
  input.filename = std::filesystem::path(path).filename();
  return {};
}

// In this order: --file, "-", a JSON object or a path for tasks that take files, else the text
// itself; without an argument what is piped in.
Result<void> read_input(Console& console, Task task, const RunFlags& flags, RunInput& input) {
  if (!flags.file.empty()) return read_content(console, flags.file, input);
  if (flags.input.empty()) {
    if (!console.input_is_terminal()) return read_content(console, "-", input);
    return Error{ErrorCode::usage,
                 fmt::format("{} does {}: give it {} as an argument, or pipe it in", flags.model,
                             to_string(task), takes_file(task) ? "a file" : "a text")};
  }
  const bool literal = flags.input != "-" &&
                       (!takes_file(task) || (takes_object(task) && flags.input.front() == '{'));
  std::error_code status;
  if (!literal && flags.input != "-" && !std::filesystem::exists(flags.input, status)) {
    return Error{
        ErrorCode::io_error,
        fmt::format("there is no file {}: {} does {}, which takes {}", flags.input, flags.model,
                    to_string(task), takes_object(task) ? "a JSON object or a file" : "a file")};
  }
  if (!literal) return read_content(console, flags.input, input);
  input.content = flags.input;
  return {};
}

// ---- answers

// The text that one event of a chat or completion stream adds.
Result<std::string> text_delta(Task task, const SseEvent& event) {
  boost::system::error_code broken;
  const json::value value = json::parse(event.data, broken);
  if (broken || !value.is_object()) {
    return Error{ErrorCode::engine_protocol, "the answer has an event that is not JSON"};
  }
  const json::object& chunk = value.get_object();
  if (chunk.contains("error")) return http::parse_error_body(500, event.data);
  const json::array& choices = array_at(chunk, "choices");
  if (choices.empty()) return std::string();  // usage alone
  const json::object& choice = as_object(choices[0]);
  return task == Task::chat ? text_at(object_at(choice, "delta"), "content")
                            : text_at(choice, "text");
}

asio::awaitable<Result<void>> print_stream(Task task, Answer& answer, Sink& sink) {
  SseReader reader;
  for (;;) {
    CO_TRY(const std::string_view bytes, co_await answer.read_some());
    if (bytes.empty()) {
      co_return Error{ErrorCode::engine_protocol, "the answer ended before it was complete"};
    }
    for (const SseEvent& event : reader.feed(bytes)) {
      if (event.data == "[DONE]") co_return Result<void>();
      CO_TRY(const std::string text, text_delta(task, event));
      CO_CHECK(sink.write(text));
    }
  }
}

// JSON, without the exponents that a serializer gives to every number.
std::string vector_line(const json::array& vector) {
  std::string line;
  for (const json::value& number : vector) {
    if (number.is_number())
      line += fmt::format("{}{}", line.empty() ? "" : ",", number.to_number<double>());
  }
  return fmt::format("[{}]\n", line);
}

// What a person wants to see of a whole answer.
std::string readable(Task task, const json::object& answer) {
  if (task == Task::speech_to_text) return text_at(answer, "text");
  if (task == Task::embeddings) {
    std::string lines;
    for (const json::value& row : array_at(answer, "data")) {
      lines += vector_line(array_at(as_object(row), "embedding"));
    }
    return lines;
  }
  const json::array& choices = array_at(answer, "choices");
  if (choices.empty()) return {};
  const json::object& choice = as_object(choices[0]);
  return task == Task::chat ? text_at(object_at(choice, "message"), "content")
                            : text_at(choice, "text");
}

asio::awaitable<Result<void>> print_whole(Task task, Answer& answer, Sink& sink, bool as_json) {
  CO_TRY(const std::string body, co_await answer.read_all());
  boost::system::error_code broken;
  const json::value value = json::parse(body, broken);
  if (as_json || broken || !value.is_object()) co_return sink.write(body);
  co_return sink.write(readable(task, value.get_object()));
}

asio::awaitable<Result<void>> copy(Answer& answer, Sink& sink) {
  for (;;) {
    CO_TRY(const std::string_view bytes, co_await answer.read_some());
    if (bytes.empty()) co_return Result<void>();
    CO_CHECK(sink.write(bytes));
  }
}

Error binary_for_terminal(std::string_view what) {
  return {ErrorCode::usage,
          fmt::format("{} is not for a terminal: give a file with --output, or redirect", what)};
}

asio::awaitable<Result<void>> print_answer(Task task, Answer& answer, Sink& sink, bool as_json) {
  const std::string type = answer.media_type();
  const bool raw = is_raw(task);
  if (raw && !is_text(type) && sink.is_terminal()) {
    co_return binary_for_terminal(type.empty() ? "this answer" : type);
  }
  Result<void> printed;
  if (raw) {
    printed = co_await copy(answer, sink);
  } else if (type == "text/event-stream") {
    printed = co_await print_stream(task, answer, sink);
  } else {
    printed = co_await print_whole(task, answer, sink, as_json);
  }
  CO_CHECK(printed);
  const bool text = !raw || is_text(type);
  co_return sink.finish(text);
}

asio::awaitable<Result<void>> run_model(Daemon& daemon, Program& program, RunFlags flags) {
  Request question{.target = "/admin/models/" + percent_encode(flags.model)};
  CO_TRY(const json::object model, co_await daemon.ask(std::move(question)));
  const Task task = parse_task(text_at(model, "task")).value_or(Task::other);

  Sink sink(program.console, flags.output);
  // Told before the work is done, where it is known before.
  if (task == Task::text_to_speech && sink.is_terminal()) co_return binary_for_terminal("speech");

  RunInput input{.model = flags.model,
                 .resolved = text_at(model, "name"),
                 .system = flags.system,
                 .parameters = flags.parameters,
                 .stream = !program.json};
  CO_CHECK(read_input(program.console, task, flags, input));
  CO_TRY(Request request, run_request(task, input));
  request.read_timeout = kAnswerTimeout;
  CO_TRY(Answer answer, co_await daemon.open(std::move(request)));
  Result<void> printed = co_await print_answer(task, answer, sink, program.json);
  co_return printed;
}

}  // namespace

void add_run(CLI::App& app, Program& program) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* command = add_command(app, "run", "Send a model one request and print its answer");
  command->add_option("model", flags->model, "Name or alias")->required()->type_name("MODEL");
  command->add_option(
      "input", flags->input,
      "Text; a file for audio and image tasks; JSON or a file for rerank and other; - "
      "reads standard input, as does no input that is piped in");
  command->add_option("--file", flags->file, "Read the input from this file")->type_name("FILE");
  command->add_option("-o,--output", flags->output, "Write the answer to this file")
      ->type_name("FILE");
  command->add_option("-s,--system", flags->system, "System message of a chat");
  command
      ->add_option("--set", flags->parameters,
                   "Parameter of the request, for example "
                   "temperature=0.2")
      ->type_name("NAME=VALUE")
      ->expected(1)
      ->take_all();
  set_client_command(*command, program, [&program, flags](Daemon& daemon) {
    return run_model(daemon, program, *flags);
  });
}

}  // namespace omni::cli
