// A helper program, run from a coroutine: uv, curl, python.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace omni {

namespace asio = boost::asio;

struct ProcessSpec {
  std::vector<std::string> argv;  // argv[0] is a path
  std::vector<std::string> env;   // "NAME=VALUE", the whole environment
  // Stays open in the process as descriptor 3: a lock (flock) passed so is held until the process
  // has ended, even if the daemon ends before it. -1: none.
  int inherited_fd = -1;
  // Standard input, whole. The way for secrets: arguments and environments show in process lists.
  std::string input = {};
};

struct ExitStatus {
  bool by_signal = false;
  int value = 0;  // exit code or signal number

  bool success() const { return !by_signal && value == 0; }
};
std::string to_string(ExitStatus status);  // "exit code 1", "signal 9"

using LineSink = std::function<void(std::string_view line)>;

// Runs it in a process group of its own, output and errors to `on_line`.
// When this returns, the process has ended and what was left of its group has been killed. After
// `limit`, or when the coroutine is cancelled, all of it is killed; a cancelled call ends by Asio's
// operation_aborted, like any other.
asio::awaitable<Result<ExitStatus>> run_process(ProcessSpec spec, Duration limit, LineSink on_line);

}  // namespace omni
