// The command line of omni. `serve` is the daemon; every other command is a client of its admin
// socket, or needs no daemon at all.
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "base/result.h"
#include "config/model_spec.h"
#include "config/node_config.h"

namespace omni::cli {

// What a daemon starts with, read and checked.
struct ServeOptions {
  NodePaths paths;
  std::filesystem::path config_file;  // where `config` came from, though it need not exist
  bool config_required = false;       // it was named: it must exist at a reload too
  NodeConfig config;
  std::vector<ModelFolder> models;  // of all of config.models; a broken one holds its error
};

// Runs the daemon until it is told to stop. Called at most once, before this process has a thread
// or has touched a signal; the log is configured.
using ServeFn = std::function<Result<void>(ServeOptions options)>;

// Where a command reads and writes: descriptors, so that tests give it pipes and terminals.
struct Streams {
  int in = 0;
  int out = 1;
  int err = 2;
};

// The whole program but for the daemon: parses, runs the command, and returns the exit code of the
// error table (base/error.h). 0: done. 130: interrupted. 141: whoever read the output left.
int run(int argc, const char* const* argv, const ServeFn& serve, Streams streams = {});

}  // namespace omni::cli
