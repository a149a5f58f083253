// A file of a web server or a hub, into the store: fetched once, checked against its digest, and
// only then there.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <filesystem>
#include <optional>
#include <string>

#include "base/result.h"
#include "provision/curl.h"
#include "provision/store.h"

namespace omni {

struct RemoteFile {
  std::string url;
  std::string shown;   // the source, in messages
  std::string name;    // the file, in progress lines
  std::string token;   // for the URL's host
  std::string sha256;  // one of the two digests
  std::string git_sha1;
  std::string authority;  // who says that this is the digest: "model.toml", or the hub
  std::optional<Bytes> size;

  // What its part file and lock are called: the digest, so that a file is fetched once whoever
  // wants it. "git-…" for git's digest.
  std::string identity() const { return sha256.empty() ? "git-" + git_sha1 : sha256; }
};

// Where parts lie, and their locks.
std::filesystem::path parts_folder(const std::filesystem::path& weights_root);

// The file's place in the store.
asio::awaitable<Result<std::filesystem::path>> fetch_remote(asio::thread_pool& workers, Curl curl,
                                                            WeightStore store, RemoteFile file,
                                                            DownloadLimits limits,
                                                            LineSink progress);

}  // namespace omni
