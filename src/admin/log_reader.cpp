#include "admin/log_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace omni::admin {
namespace {

Result<std::size_t> read_at(int fd, std::span<char> buffer, off_t offset) {
  for (;;) {
    const ssize_t n = ::pread(fd, buffer.data(), buffer.size(), offset);
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno != EINTR) return errno_error("cannot read a log");
  }
}

}  // namespace

std::filesystem::path LogReader::name(int index) const {
  return index == 0 ? path_ : std::filesystem::path(fmt::format("{}.{}", path_.string(), index));
}

Result<LogReader::File> LogReader::open(int index) const {
  const std::filesystem::path path = name(index);
  File file{.fd = Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK))};
  if (!file.fd) {
    if (errno == ENOENT) return file;
    return errno_error("cannot open " + path.string());
  }
  struct stat status{};
  if (::fstat(file.fd.get(), &status) != 0) return errno_error("cannot stat " + path.string());
  if (!S_ISREG(status.st_mode)) {
    return Error{ErrorCode::io_error, path.string() + " is not a regular file"};
  }
  file.device = status.st_dev;
  file.inode = status.st_ino;
  file.size = status.st_size;
  return file;
}

Result<bool> LogReader::enter_older_file() {
  TRY(File older, open(++search_.index));
  // The current file is absent between a rename and its creation.
  if (!older.fd) return search_.index == 0;
  const bool searched_already = older.device == file_.device && older.inode == file_.inode;
  if (searched_already) return false;  // rotated just now
  search_.end = offset_ = older.size;
  file_ = std::move(older);
  return true;
}

Result<bool> LogReader::seek_back(std::size_t count) {
  if (search_.end == 0) {
    if (search_.index == kOldFiles) return true;
    TRY(const bool entered, enter_older_file());
    return !entered || count == 0;
  }
  std::array<char, kBlock> block;
  const off_t start = std::max<off_t>(0, search_.end - static_cast<off_t>(kBlock));
  const auto length = static_cast<std::size_t>(search_.end - start);
  TRY(const std::size_t n, read_at(file_.fd.get(), std::span(block).first(length), start));
  for (std::size_t i = n; i > 0; --i) {
    const bool ends_the_log = std::exchange(search_.at_end, false);
    if (block[i - 1] != '\n' || ends_the_log) continue;
    if (++search_.lines == count) {
      offset_ = start + static_cast<off_t>(i);
      return true;
    }
  }
  search_.end = offset_ = start;
  return false;
}

Result<LogReader::File> LogReader::successor() const {
  if (!file_.fd) return open(0);
  struct stat status{};
  if (::stat(path_.c_str(), &status) != 0) return File{};  // being rotated: wait
  if (status.st_dev == file_.device && status.st_ino == file_.inode) return File{};
  // Renamed once or more since: what came after it has a number less by one.
  for (int index = 1; index <= kOldFiles; ++index) {
    if (::stat(name(index).c_str(), &status) != 0) continue;
    if (status.st_dev == file_.device && status.st_ino == file_.inode) return open(index - 1);
  }
  // Removed: the reader was slower than three rotations. The oldest kept file comes next.
  for (int index = kOldFiles; index > 0; --index) {
    TRY(File oldest, open(index));
    if (oldest.fd) return oldest;
  }
  return open(0);
}

Result<std::size_t> LogReader::read(std::span<char> buffer) {
  for (;;) {
    TRY(const std::size_t n, read_current(buffer));
    if (n > 0) return n;
    TRY(File next, successor());
    if (!next.fd) break;
    // What was written between the read above and the rotation. Nothing follows it: a file that
    // has a successor is not written to any more.
    TRY(const std::size_t rest, read_current(buffer));
    if (rest > 0) return rest;
    file_ = std::move(next);
    offset_ = 0;
  }
  // Emptied in place by somebody: start again with what is new.
  struct stat status{};
  if (file_.fd && ::fstat(file_.fd.get(), &status) == 0 && status.st_size < offset_) offset_ = 0;
  return std::size_t{0};
}

Result<std::size_t> LogReader::read_current(std::span<char> buffer) {
  if (!file_.fd) return std::size_t{0};
  TRY(const std::size_t n, read_at(file_.fd.get(), buffer, offset_));
  offset_ += static_cast<off_t>(n);
  return n;
}

}  // namespace omni::admin
