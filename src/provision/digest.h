// SHA-256: names environments, weights and versions by their content.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/result.h"

namespace omni {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void update(std::string_view bytes);
  // With its length before it, so that no two lists of fields look the same.
  void field(std::string_view content);
  // Lower-case hex; ends the object's use.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The name that git gives to this content: SHA-1 of "blob SIZE\0" and the content. Blocking.
Result<std::string> git_blob_sha1(const std::filesystem::path& file);

// Digests of files, kept while a file's inode, size and times stand still, so that gigabytes of
// weights are read once and not at each start. Shared by the worker threads.
class FileDigests {
 public:
  // Blocking. Only regular files.
  Result<std::string> of(const std::filesystem::path& file);

 private:
  struct Entry {
    struct stat seen;
    std::string digest;
  };
  std::mutex mutex_;
  std::map<std::filesystem::path, Entry> entries_;
};

}  // namespace omni
