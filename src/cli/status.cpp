#include <CLI/CLI.hpp>

#include "cli/fields.h"
#include "cli/program.h"
#include "cli/table.h"

namespace omni::cli {
namespace {

std::string describe(const json::object& status, const std::string& socket) {
  std::string text = fmt::format("omni {}, pid {}, up {}, {} resident\nadmin socket {}\n",
                                 text_at(status, "version"), integer_at(status, "pid"),
                                 format_age(number_at(status, "uptime_seconds")),
                                 format_bytes(integer_at(status, "rss_bytes")), socket);
  for (const json::value& address : array_at(status, "listen")) {
    if (address.is_string()) text += fmt::format("listens on {}\n", address.get_string().c_str());
  }
  for (const json::value& value : array_at(status, "devices")) {
    const json::object& device = as_object(value);
    text += fmt::format("device {}: {} granted of {}\n", text_at(device, "name"),
                        to_string(Bytes(integer_at(device, "granted_bytes"))),
                        to_string(Bytes(integer_at(device, "budget_bytes"))));
  }
  const std::string reload_error = text_at(status, "reload_error");
  if (!reload_error.empty()) text += fmt::format("the last reload failed:\n{}\n", reload_error);
  return text;
}

asio::awaitable<Result<void>> status(Daemon& daemon, Program& program) {
  Request request{.target = "/admin/status"};
  CO_TRY(const json::object answer, co_await daemon.ask(std::move(request)));
  if (program.json) co_return write_json(program.console, answer);
  co_return program.console.write(describe(answer, daemon.socket()));
}

}  // namespace

void add_status(CLI::App& app, Program& program) {
  CLI::App* command = add_command(app, "status", "Show the daemon and its devices");
  set_client_command(*command, program,
                     [&program](Daemon& daemon) { return status(daemon, program); });
}

}  // namespace omni::cli
