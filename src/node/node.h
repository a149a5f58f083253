// `omni serve`: one daemon, from its lock file to its last instance gone.
#pragma once

#include <filesystem>
#include <vector>

#include "base/result.h"
#include "config/node_config.h"

namespace omni::node {

struct NodeOptions {
  NodePaths paths;
  std::filesystem::path config_file;  // where `config` came from: a reload reads it again
  bool config_required = false;       // else the file need not exist
  NodeConfig config;
  std::vector<ModelFolder> models;  // a broken one is listed as failed
  std::filesystem::path lib_dir;    // holds omni-shim and python/
};

// Where this installation keeps its helpers: <folder of the executable>/../lib/omni.
Result<std::filesystem::path> installed_lib_dir();

// Serves until SIGTERM or SIGINT: then running requests finish within limits.shutdown_timeout; a
// second signal cuts them. Called from main before any thread exists.
Result<void> serve(NodeOptions options);

}  // namespace omni::node
