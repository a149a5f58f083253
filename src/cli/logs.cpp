#include <CLI/CLI.hpp>

#include "cli/program.h"

namespace omni::cli {
namespace {

struct LogsFlags {
  std::string model;
  std::size_t lines = 100;
  bool follow = false;
};

// A model may be silent for ever; that the daemon is gone shows at once, since its socket closes.
constexpr auto kSilence = std::chrono::hours(24 * 365);

asio::awaitable<Result<void>> logs(Daemon& daemon, Program& program, LogsFlags flags) {
  Request request{.target = fmt::format("/admin/models/{}/logs?lines={}&follow={:d}",
                                        percent_encode(flags.model), flags.lines, flags.follow)};
  if (flags.follow) request.read_timeout = kSilence;
  CO_TRY(Answer answer, co_await daemon.open(std::move(request)));
  for (;;) {
    CO_TRY(const std::string_view text, co_await answer.read_some());
    if (text.empty()) co_return Result<void>();
    CO_CHECK(program.console.write(text));
  }
}

}  // namespace

void add_logs(CLI::App& app, Program& program) {
  auto flags = std::make_shared<LogsFlags>();
  CLI::App* command = add_command(app, "logs", "Print the log of a model's instances");
  command->add_option("model", flags->model, "Name or alias")->required()->type_name("MODEL");
  command->add_flag("-f,--follow", flags->follow, "Go on with what is written from now on");
  command->add_option("-n,--lines", flags->lines, "How many of the last lines, default 100")
      ->type_name("N")
      ->check(CLI::Range(0, 1'000'000));
  add_place_flags(*command, program);
  command->callback([&program, flags] {
    program.command = [&program, flags] {
      return run_client(program, [&](Daemon& daemon) { return logs(daemon, program, *flags); });
    };
  });
}

}  // namespace omni::cli
