// uv, the program that builds environments and fetches wheels.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "provision/process.h"
#include "provision/programs.h"

namespace omni {

// The interpreter where model.toml names none: the system's, which every instance's user can read.
inline constexpr const char* kPython = "/usr/bin/python3";

class Uv {
 public:
  // $OMNI_UV, then PATH, then the tools folder beside `state`. A missing one is an error that says
  // how to get it.
  static Result<Uv> find(const Variables& environment, const std::filesystem::path& state);

  // Runs it with these arguments. Lines go to `progress` and are appended to `log`. A failure is
  // provision_failed with uv's last lines. `lock` is held until uv has ended, whatever happens to
  // this process.
  asio::awaitable<Result<void>> run(std::vector<std::string> arguments, int lock,
                                    std::filesystem::path log, LineSink progress) const;

  const std::filesystem::path& program() const { return program_; }
  // What uv gets: a clean environment but for what says how to reach an index.
  static std::vector<std::string> environment_for_uv(const Variables& environment,
                                                     const std::filesystem::path& state);

 private:
  Uv(std::filesystem::path program, std::vector<std::string> env)
      : program_(std::move(program)), env_(std::move(env)) {}

  std::filesystem::path program_;
  std::vector<std::string> env_;
};

}  // namespace omni
