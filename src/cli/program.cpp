#include "cli/program.h"

#include <CLI/CLI.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>

namespace omni::cli {

CLI::App* add_command(CLI::App& app, std::string name, std::string description) {
  return app.add_subcommand(std::move(name), std::move(description));
}

void add_root_flag(CLI::App& command, Program& program) {
  // An empty variable in a script must not mean the system's own daemon.
  const auto not_empty = [](const std::string& folder) {
    return folder.empty() ? std::string("must not be empty") : std::string();
  };
  command.add_option("--root", program.root, "Folder that holds all of the daemon's files")
      ->type_name("DIR")
      ->check(not_empty);
}

void add_place_flags(CLI::App& command, Program& program) {
  command.add_option("--socket", program.socket, "Admin socket of the daemon")->type_name("FILE");
  add_root_flag(command, program);
}

void add_json_flag(CLI::App& command, Program& program) {
  command.add_flag("--json", program.json, "Print JSON");
}

void set_client_command(CLI::App& command, Program& program, ClientCommand action) {
  add_place_flags(command, program);
  add_json_flag(command, program);
  command.callback([&program, action = std::move(action)] {
    program.command = [&program, action] { return run_client(program, action); };
  });
}

NodePaths node_paths(const Program& program) {
  return program.root.empty() ? NodePaths::of_user() : NodePaths::below(program.root);
}

Result<void> write_json(Console& console, const boost::json::object& object) {
  return console.write_line(boost::json::serialize(object));
}

Result<void> run_client(Program& program, const ClientCommand& command) {
  TRY(std::string socket, find_daemon(program.socket, program.root));
  asio::io_context loop(1);
  http::Client client(loop);
  Daemon daemon(client, std::move(socket));

  // The first signal cancels the command; after it they have their default effect again, so that a
  // second one ends a command that hangs.
  asio::cancellation_signal cancellation;
  bool signalled = false;
  asio::signal_set signals(loop, SIGINT, SIGTERM);
  signals.async_wait([&](boost::system::error_code status, int) {
    if (status) return;
    signalled = true;
    signals.clear();
    cancellation.emit(asio::cancellation_type::terminal);
  });

  Result<void> result;
  const auto on_end = [&](std::exception_ptr failure, Result<void> ended) {
    result = std::move(ended);
    // A cancelled coroutine ends by an exception; any other is a bug and ends the process.
    if (failure && !signalled) std::rethrow_exception(failure);
    loop.stop();
  };
  asio::co_spawn(loop, command(daemon), asio::bind_cancellation_slot(cancellation.slot(), on_end));
  loop.run();
  return signalled ? interrupted() : result;
}

}  // namespace omni::cli
