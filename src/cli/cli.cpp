#include "cli/cli.h"

#include <CLI/CLI.hpp>
#include <csignal>

#include "base/text.h"
#include "cli/program.h"

namespace omni::cli {
namespace {

// What shells report for a program that SIGPIPE ended.
constexpr int kOutputClosed = 128 + SIGPIPE;

using AddCommand = void (*)(CLI::App&, Program&);

// In the order of `omni --help`.
constexpr AddCommand kCommands[] = {
    add_serve, add_status, add_ps,   add_models, add_explain, add_run,
    add_load,  add_stop,   add_logs, add_events, add_reload,  add_shutdown,
    add_check, add_gc,     add_key,  add_doctor, add_version, add_completion,
};

void describe(CLI::App& app, Program& program) {
  app.require_subcommand(1);
  app.set_version_flag("--version", "omni " OMNI_VERSION, "Print the version and exit");
  app.set_help_flag("-h,--help", "Show this help");
  add_place_flags(app, program);  // also before the command
  for (const AddCommand add : kCommands) add(app, program);
}

// CLI11 says which argument it did not expect; for a command people want to hear which they meant.
std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> rest = app.remaining();
  const std::vector<CLI::App*> used = app.get_subcommands();
  if (!used.empty() || rest.empty() || rest.front().starts_with('-')) {
    return fmt::format("{}: see `omni {}--help`", error.what(),
                       used.empty() ? "" : used.front()->get_name() + " ");
  }
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  const std::string nearest = nearest_name(rest.front(), {names.begin(), names.end()});
  return fmt::format(
      "there is no command \"{}\": {}", rest.front(),
      nearest.empty() ? "see `omni --help`" : fmt::format("did you mean `omni {}`?", nearest));
}

int exit_code_of(Console& console, const Result<void>& result) {
  if (result.ok()) return 0;
  if (console.output_closed()) return kOutputClosed;
  const Error& error = result.error();
  if (error.code != ErrorCode::cancelled) console.write_error(error.message);
  return error.info().exit_code;
}

}  // namespace

int run(int argc, const char* const* argv, const ServeFn& serve, Streams streams) {
  // A reader that leaves is an error of write(), also for sockets. `serve` takes it back.
  std::signal(SIGPIPE, SIG_IGN);
  Console console(streams);
  Program program{.console = console, .serve = serve};
  CLI::App app("Runs many AI models behind one OpenAI-compatible port.", "omni");
  describe(app, program);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return exit_code_of(console, console.write(app.help()));
  } catch (const CLI::CallForVersion& version) {
    return exit_code_of(console, console.write_line(version.what()));
  } catch (const CLI::ParseError& error) {
    return exit_code_of(console, Error{ErrorCode::usage, explain(app, error)});
  }
  return exit_code_of(console, program.command());
}

}  // namespace omni::cli
