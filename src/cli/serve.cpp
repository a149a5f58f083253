#include <CLI/CLI.hpp>
#include <csignal>

#include "base/log.h"
#include "cli/program.h"

namespace omni::cli {
namespace {

struct ServeFlags {
  std::string config;
  std::string log_level = "info";
  std::string log_format = "text";
};

Result<void> serve(Program& program, const ServeFlags& flags) {
  CHECK(configure_log(flags.log_level,
                      flags.log_format == "json" ? LogFormat::json : LogFormat::text));
  ServeOptions options{.paths = node_paths(program)};
  const bool named = !flags.config.empty();
  options.config_file =
      named ? std::filesystem::absolute(flags.config) : options.paths.config / "omni.toml";
  options.config_required = named;
  TRY(options.config, load_node_config(options.config_file, named));
  TRY(options.models, load_model_folders(options.config.models));
  std::signal(SIGPIPE, SIG_DFL);  // the daemon's signals are its own matter
  return program.serve(std::move(options));
}

}  // namespace

void add_serve(CLI::App& app, Program& program) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* command = add_command(app, "serve", "Run the daemon");
  add_root_flag(*command, program);
  command->add_option("--config", flags->config, "Node config, default CONFIG/omni.toml")
      ->type_name("FILE");
  command->add_option("--log-level", flags->log_level, "How much is logged, default info")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error"}));
  command->add_option("--log-format", flags->log_format, "How it is logged, default text")
      ->check(CLI::IsMember({"text", "json"}));
  command->callback([&program, flags] {
    program.command = [&program, flags] { return serve(program, *flags); };
  });
}

}  // namespace omni::cli
