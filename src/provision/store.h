// <state>/weights/sha256/ab/HASH: files under the digest of their own content, so that models share
// them whatever they call them and wherever they come from.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "provision/digest.h"

namespace omni {

// A value; copies of it go to the worker threads. All calls block.
class WeightStore {
 public:
  WeightStore(const std::filesystem::path& state, std::shared_ptr<FileDigests> digests)
      : root_(state / "weights"), digests_(std::move(digests)) {}

  const std::filesystem::path& root() const { return root_; }  // <state>/weights
  std::filesystem::path path_of(const std::string& digest) const;
  FileDigests& digests() const { return *digests_; }

  struct Found {
    std::filesystem::path path;  // empty: it is not there, or damaged
    bool damaged = false;        // it is not what was stored and must be fetched anew
  };
  // Looks at inode, size and times each time, and reads the file when they are not those that were
  // noted.
  Found find(const std::string& digest) const;
  // Moves a file with this digest in, from the same file system.
  Result<std::filesystem::path> add(const std::filesystem::path& file,
                                    const std::string& digest) const;

 private:
  std::filesystem::path root_;
  std::shared_ptr<FileDigests> digests_;  // with everybody who hashes
};

// An index file holds the digest that a source has been found to have. Empty: there is none.
std::string read_digest_index(const std::filesystem::path& file);
Result<void> write_digest_index(const std::filesystem::path& file, const std::string& digest);

bool is_sha256(std::string_view text);  // 64 lower-case hexadecimal digits

}  // namespace omni
