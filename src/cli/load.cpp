#include <CLI/CLI.hpp>

#include "base/clock.h"
#include "cli/fields.h"
#include "cli/program.h"
#include "cli/table.h"

namespace omni::cli {
namespace {

// A first load may build an environment and fetch weights; the daemon itself gives up on one that
// makes no progress.
constexpr auto kLoadTimeout = std::chrono::hours(2);

asio::awaitable<Result<void>> load(Daemon& daemon, Program& program,
                                   std::vector<std::string> models) {
  for (const std::string& model : models) {
    const TimePoint begin = Clock::now();
    Request request{.method = "POST",
                    .target = fmt::format("/admin/models/{}/load", percent_encode(model)),
                    .read_timeout = kLoadTimeout};
    CO_TRY(const json::object answer, co_await daemon.ask(std::move(request)));
    if (program.json) {
      CO_CHECK(write_json(program.console, answer));
      continue;
    }
    const Seconds took = Clock::now() - begin;
    CO_CHECK(program.console.write_line(fmt::format("{}: {} after {}", text_at(answer, "name"),
                                                    text_at(answer, "state"),
                                                    format_age(took.count()))));
  }
  co_return Result<void>();
}

}  // namespace

void add_load(CLI::App& app, Program& program) {
  auto models = std::make_shared<std::vector<std::string>>();
  CLI::App* command = add_command(app, "load", "Load models and wait until they are resident");
  command->add_option("model", *models, "Names or aliases")->required()->type_name("MODEL");
  set_client_command(*command, program,
                     [&program, models](Daemon& daemon) { return load(daemon, program, *models); });
}

}  // namespace omni::cli
