#include <CLI/CLI.hpp>

#include "cli/fields.h"
#include "cli/program.h"

namespace omni::cli {
namespace {

// "added: a b\n", or nothing.
std::string list_line(const json::object& report, std::string_view key, std::string_view label) {
  std::string names;
  for (const json::value& name : array_at(report, key)) {
    if (name.is_string()) names += fmt::format(" {}", name.get_string().c_str());
  }
  return names.empty() ? std::string() : fmt::format("{}:{}\n", label, names);
}

std::string report_text(const json::object& report) {
  std::string text = list_line(report, "added", "added") + list_line(report, "removed", "removed") +
                     list_line(report, "changed", "changed") +
                     list_line(report, "at_next_start", "takes effect at the next start");
  if (text.empty()) text = "nothing has changed\n";
  return text;
}

asio::awaitable<Result<void>> reload(Daemon& daemon, Program& program) {
  Request request{.method = "POST", .target = "/admin/reload"};
  CO_TRY(const json::object answer, co_await daemon.ask(std::move(request)));
  if (program.json) co_return write_json(program.console, answer);
  co_return program.console.write(report_text(answer));
}

}  // namespace

void add_reload(CLI::App& app, Program& program) {
  CLI::App* command = add_command(app, "reload", "Read omni.toml and the models' folders again");
  set_client_command(*command, program,
                     [&program](Daemon& daemon) { return reload(daemon, program); });
}

}  // namespace omni::cli
