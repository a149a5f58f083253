#include <CLI/CLI.hpp>

#include "cli/program.h"

namespace omni::cli {
namespace {

asio::awaitable<Result<void>> shutdown(Daemon& daemon, Program& program) {
  Request request{.method = "POST", .target = "/admin/shutdown"};
  CO_TRY(const boost::json::object answer, co_await daemon.ask(std::move(request)));
  co_return program.json
      ? write_json(program.console, answer)
      : program.console.write_line("the daemon stops when its requests are done");
}

}  // namespace

void add_shutdown(CLI::App& app, Program& program) {
  CLI::App* command =
      add_command(app, "shutdown", "Tell the daemon to finish its requests and stop");
  set_client_command(*command, program,
                     [&program](Daemon& daemon) { return shutdown(daemon, program); });
}

}  // namespace omni::cli
