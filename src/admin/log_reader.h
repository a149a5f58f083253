// Reads a log that its writer rotates: FILE is written now, FILE.1 to FILE.3 are older. A reader
// sees every byte once and in order, however slow it is: it holds the file it reads, renamed or
// removed, and then goes on with that file's successor.
//
// Holds no more than the caller's buffer, and reads one block at a time, so that an I/O thread may
// use it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/fd.h"
#include "base/result.h"

namespace omni::admin {

class LogReader {
 public:
  static constexpr int kOldFiles = 3;  // what the shim keeps
  static constexpr std::size_t kBlock = 64 * 1024;

  explicit LogReader(std::filesystem::path file) : path_(std::move(file)) {}

  // Looks for the start of the last `count` lines, a step further back per call; true: found, or
  // the log has fewer. read() starts there.
  Result<bool> seek_back(std::size_t count);
  // The next bytes, at most a block. Zero: no more for now; the log may grow later, also from
  // nothing.
  Result<std::size_t> read(std::span<char> buffer);

 private:
  struct File {
    Fd fd;
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = 0;
  };
  struct Search {
    std::size_t lines = 0;  // newlines passed on the way back
    int index = -1;         // file being searched
    off_t end = 0;          // bytes of it not yet searched
    bool at_end = true;     // the log's last byte ends a line and starts none
  };

  std::filesystem::path name(int index) const;
  // An absent file is a File without a descriptor.
  Result<File> open(int index) const;
  // False: there is none to search.
  Result<bool> enter_older_file();
  Result<std::size_t> read_current(std::span<char> buffer);
  // The file after `file_` in the order of writing; nothing while `file_` is still the current one.
  Result<File> successor() const;

  std::filesystem::path path_;
  File file_;
  off_t offset_ = 0;
  Search search_;
};

}  // namespace omni::admin
