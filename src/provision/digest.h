// Digests of files: they name environments, weights and versions by their content.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <string>

#include "base/result.h"
#include "base/sha256.h"

namespace omni {

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
