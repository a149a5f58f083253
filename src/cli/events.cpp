#include <CLI/CLI.hpp>

#include "cli/fields.h"
#include "cli/program.h"
#include "cli/sse.h"

namespace omni::cli {
namespace {

std::string plain(const json::value& value) {
  return value.is_string() ? std::string(value.get_string()) : json::serialize(value);
}

// "2026-01-02T03:04:05Z  instance_state  minilm  instance=12 state=resident"
std::string describe(const json::object& event) {
  std::string line = fmt::format("{}  {:<16}  {}", text_at(event, "time"), text_at(event, "type"),
                                 text_at(event, "model"));
  for (const json::key_value_pair& field : event) {
    const std::string_view key = field.key();
    if (key == "id" || key == "time" || key == "type" || key == "model") continue;
    line += fmt::format("  {}={}", key, plain(field.value()));
  }
  return line;
}

asio::awaitable<Result<void>> events(Daemon& daemon, Program& program) {
  Request request{.target = "/admin/events"};  // which is never silent for long
  CO_TRY(Answer answer, co_await daemon.open(std::move(request)));
  SseReader reader;
  for (;;) {
    CO_TRY(const std::string_view bytes, co_await answer.read_some());
    if (bytes.empty()) {
      co_return Error{ErrorCode::daemon_unreachable, "the daemon ended the events: it stops"};
    }
    for (const SseEvent& event : reader.feed(bytes)) {
      boost::system::error_code broken;
      const json::value value = json::parse(event.data, broken);
      const bool as_sent = program.json || broken || !value.is_object();
      CO_CHECK(program.console.write_line(as_sent ? event.data : describe(value.get_object())));
    }
  }
}

}  // namespace

void add_events(CLI::App& app, Program& program) {
  CLI::App* command = add_command(app, "events", "Print what happens, from the recent past on");
  set_client_command(*command, program,
                     [&program](Daemon& daemon) { return events(daemon, program); });
}

}  // namespace omni::cli
