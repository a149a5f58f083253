// One run of the command line: what the chosen command finds, and how a command of the daemon is
// carried out. Each command is one file that adds itself here.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/cli.h"
#include "cli/console.h"
#include "cli/daemon.h"

namespace CLI {
class App;
}

namespace omni::cli {

struct Program {
  Console& console;
  const ServeFn& serve;

  // Flags that many commands share.
  std::string socket;
  std::string root;
  bool json = false;

  // Set by the command that the arguments name.
  std::function<Result<void>()> command;
};

// How a client's command is carried out: on a loop of its own, until it ends, fails or a signal
// cancels it.
using ClientCommand = std::function<asio::awaitable<Result<void>>(Daemon& daemon)>;
Result<void> run_client(Program& program, const ClientCommand& command);

// Adds a command with the flags that its kind shares.
CLI::App* add_command(CLI::App& app, std::string name, std::string description);
void add_root_flag(CLI::App& command, Program& program);
void add_place_flags(CLI::App& command, Program& program);  // --socket, --root
void add_json_flag(CLI::App& command, Program& program);
// Both of them, and what the command does.
void set_client_command(CLI::App& command, Program& program, ClientCommand action);

void add_serve(CLI::App& app, Program& program);
void add_ps(CLI::App& app, Program& program);
void add_models(CLI::App& app, Program& program);
void add_status(CLI::App& app, Program& program);
void add_run(CLI::App& app, Program& program);
void add_explain(CLI::App& app, Program& program);
void add_load(CLI::App& app, Program& program);
void add_stop(CLI::App& app, Program& program);
void add_reload(CLI::App& app, Program& program);
void add_logs(CLI::App& app, Program& program);
void add_events(CLI::App& app, Program& program);
void add_shutdown(CLI::App& app, Program& program);
void add_check(CLI::App& app, Program& program);
void add_key(CLI::App& app, Program& program);
void add_gc(CLI::App& app, Program& program);
void add_doctor(CLI::App& app, Program& program);
void add_version(CLI::App& app, Program& program);
void add_completion(CLI::App& app, Program& program);

// The paths that --root names, else the user's.
NodePaths node_paths(const Program& program);
// One line of JSON.
Result<void> write_json(Console& console, const boost::json::object& object);

}  // namespace omni::cli
