// Makes what a version needs ready ahead of its start: the environment (uv, from a hashed lock or
// requirements.txt, cached by hash, shared), the weights, and the version's hash. Notes what each
// model uses, for `omni gc`. docs/contracts/provision.md.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/result.h"
#include "config/model_spec.h"
#include "config/node_config.h"
#include "provision/curl.h"

namespace omni {

namespace asio = boost::asio;

struct Provisioned {
  std::string version;            // hex hash of spec, files and environment
  std::filesystem::path python;   // what runs handlers: the environment's, else engine.python
  std::filesystem::path env_dir;  // the virtual environment, or empty
  std::map<std::string, std::filesystem::path> weights;  // by weight name
};

// A line a person reads: "minilm: installing 14 packages". Called on the control loop.
using ProgressSink = std::function<void(std::string_view line)>;

class Provisioner {
 public:
  Provisioner(asio::io_context& loop, asio::thread_pool& workers, NodePaths paths,
              DownloadLimits limits = {});
  ~Provisioner();

  // Idempotent and safe from several at once: the second waits for the first. An interrupted build
  // leaves nothing that a later one would take for whole (.complete marker, lock file). Cancelling
  // the last caller of a build ends uv and returns when uv is gone; a cancelled call ends by Asio's
  // operation_aborted (see TaskGroup). Called and awaited on the loop.
  asio::awaitable<Result<Provisioned>> provision(const ModelSpec& spec, ProgressSink progress);
  // No model has this name any more: what was prepared for it is anybody's to remove.
  void release(const std::string& model);

 private:
  struct Impl;
  class Preparation;            // one call
  std::shared_ptr<Impl> impl_;  // with calls that still run
};

}  // namespace omni
