#include <CLI/CLI.hpp>

#include "cli/fields.h"
#include "cli/program.h"

namespace omni::cli {
namespace {

// Running requests end first: at most the daemon's request_timeout, and the grace of the process.
constexpr auto kStopTimeout = std::chrono::minutes(30);

asio::awaitable<Result<void>> stop(Daemon& daemon, Program& program,
                                   std::vector<std::string> models) {
  for (const std::string& model : models) {
    Request request{.method = "POST",
                    .target = fmt::format("/admin/models/{}/stop", percent_encode(model)),
                    .read_timeout = kStopTimeout};
    CO_TRY(const json::object answer, co_await daemon.ask(std::move(request)));
    CO_CHECK(program.json ? write_json(program.console, answer)
                          : program.console.write_line(fmt::format(
                                "{}: {}", text_at(answer, "name"), text_at(answer, "state"))));
  }
  co_return Result<void>();
}

}  // namespace

void add_stop(CLI::App& app, Program& program) {
  auto models = std::make_shared<std::vector<std::string>>();
  CLI::App* command =
      add_command(app, "stop", "Stop models and wait until nothing of them is left");
  command->add_option("model", *models, "Names or aliases")->required()->type_name("MODEL");
  set_client_command(*command, program,
                     [&program, models](Daemon& daemon) { return stop(daemon, program, *models); });
}

}  // namespace omni::cli
