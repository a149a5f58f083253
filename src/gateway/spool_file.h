// A file without a name in the spool folder: a body too large for memory, gone with its last
// descriptor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"

namespace omni::gateway {

class SpoolFile {
 public:
  static Result<SpoolFile> create(const std::filesystem::path& folder);

  // Into the page cache: quick enough for an I/O thread.
  Result<void> append(std::string_view bytes);
  std::uint64_t size() const { return size_; }
  // Fills the buffer from `offset`; fewer bytes only at the end.
  Result<std::size_t> read_at(std::uint64_t offset, std::span<char> buffer) const;
  // A read-only descriptor with its own position, at 0.
  Result<Fd> reopen() const;

 private:
  SpoolFile(Fd file, std::filesystem::path folder)
      : file_(std::move(file)), folder_(std::move(folder)) {}

  Fd file_;
  std::filesystem::path folder_;  // for messages
  std::uint64_t size_ = 0;
};

}  // namespace omni::gateway
