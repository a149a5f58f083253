// Virtual environments by the hash of what they are made of: <state>/environments/HASH, built once,
// shared by every model that asks for the same. One is whole when its .complete marker says so; all
// else is wiped before the next build.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <filesystem>
#include <map>
#include <string>

#include "base/result.h"
#include "provision/process.h"
#include "provision/shared_jobs.h"
#include "provision/uv.h"

namespace omni {

// What an environment is made of.
struct EnvironmentRecipe {
  std::string requirements;      // the file's content
  std::string overrides;         // content, or empty
  std::string python;            // Interpreter::description
  std::string interpreter = {};  // its path, which `python` starts with
  std::string index = {};        // URL of the package index, or empty

  bool is_lock() const;  // it has hashes
  std::string hash() const;
};

// Reads and checks the two files; `overrides` may be empty. Blocking.
Result<EnvironmentRecipe> read_recipe(const std::filesystem::path& requirements,
                                      const std::filesystem::path& overrides, std::string python);

class Environments {
 public:
  Environments(asio::io_context& loop, asio::thread_pool& workers, std::filesystem::path state,
               Variables variables);

  // The whole environment's folder; builds it if need be.
  asio::awaitable<Result<std::filesystem::path>> get(EnvironmentRecipe recipe, LineSink progress);

 private:
  static asio::awaitable<Result<std::filesystem::path>> build(asio::thread_pool& workers,
                                                              std::filesystem::path state,
                                                              Variables variables,
                                                              EnvironmentRecipe recipe,
                                                              LineSink progress);

  asio::thread_pool& workers_;
  std::filesystem::path state_;
  Variables variables_;
  SharedJobs builds_;
};

}  // namespace omni
