// The instance's log: appended, and rotated so that a flood cannot fill the disk.
#pragma once

#include <cstddef>
#include <cstdint>

#include "failure.h"

namespace omni::shim {

inline constexpr std::uint64_t kLogFileBytes = 10 << 20;  // per file
inline constexpr int kOldLogFiles = 3;                    // name.1 (newest) to name.3

class LogFile {
 public:
  // Holds the folder by descriptor: rotation works where the path is no longer visible.
  bool open(const char* path, Failure& failure);
  // What a full disk does not take is dropped and counted: a model must not stop for its log.
  void write(const char* data, std::size_t size);

  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t dropped() const { return dropped_; }

 private:
  bool reopen();
  void rotate();

  int folder_ = -1;
  int file_ = -1;
  char name_[256] = {};
  std::uint64_t size_ = 0;  // of the current file
  std::uint64_t bytes_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace omni::shim
