#include "log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

namespace omni::shim {

bool LogFile::open(const char* path, Failure& failure) {
  const char* slash = std::strrchr(path, '/');
  if (!slash || std::strlen(slash + 1) >= sizeof name_ - 4) {
    return failure.set("open log", path, EINVAL);
  }
  char folder[4096];
  const auto length = static_cast<std::size_t>(slash - path);
  if (length >= sizeof folder) return failure.set("open log", path, ENAMETOOLONG);
  std::memcpy(folder, path, length);
  folder[length] = '\0';
  std::strcpy(name_, slash + 1);
  folder_ = ::open(length ? folder : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (folder_ < 0 || !reopen()) return failure.set("open log", path);
  return true;
}

bool LogFile::reopen() {
  file_ = openat(folder_, name_, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
  if (file_ < 0) return false;
  struct stat info{};
  size_ = fstat(file_, &info) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
  return true;
}

void LogFile::rotate() {
  char from[sizeof name_ + 4];
  char to[sizeof name_ + 4];
  for (int i = kOldLogFiles; i >= 1; --i) {
    std::snprintf(to, sizeof to, "%s.%d", name_, i);
    std::snprintf(from, sizeof from, "%s.%d", name_, i - 1);
    if (i == 1) std::strcpy(from, name_);
    renameat(folder_, from, folder_, to);
  }
  close(file_);
  reopen();
  // The rename failed (a folder in the way, rights lost): emptying keeps the bound all the same.
  if (file_ >= 0 && size_ >= kLogFileBytes && ftruncate(file_, 0) == 0) size_ = 0;
}

void LogFile::write(const char* data, std::size_t size) {
  if (file_ < 0) reopen();
  if (file_ >= 0 && size_ >= kLogFileBytes) rotate();
  while (size > 0) {
    const ssize_t written = file_ < 0 ? -1 : ::write(file_, data, size);
    if (written < 0 && file_ >= 0 && errno == EINTR) continue;
    if (written <= 0) {
      dropped_ += size;
      return;
    }
    data += written;
    size -= static_cast<std::size_t>(written);
    size_ += static_cast<std::uint64_t>(written);
    bytes_ += static_cast<std::uint64_t>(written);
  }
}

}  // namespace omni::shim
