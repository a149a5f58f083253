// The Python that a model asks for: an absolute path, or a version among those installed.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace omni {

namespace asio = boost::asio;

struct Interpreter {
  std::filesystem::path path;
  std::string version;      // "3.11.2"
  std::string description;  // path, version and platform: what environments depend on
};

// /usr/bin, /usr/local/bin and /opt/*/bin. Blocking.
std::vector<std::filesystem::path> interpreter_folders();

// Lives on one loop. Each interpreter is asked once: an upgrade changes where its link points.
class Interpreters {
 public:
  explicit Interpreters(std::vector<std::filesystem::path> folders)
      : folders_(std::move(folders)) {}

  // `wanted` is engine.python. The error of a version that is not there names those that are.
  asio::awaitable<Result<Interpreter>> find(std::string wanted);

 private:
  asio::awaitable<Result<Interpreter>> describe(std::filesystem::path path);

  std::vector<std::filesystem::path> folders_;
  std::map<std::filesystem::path, Interpreter> known_;  // by path and where it leads
};

}  // namespace omni
