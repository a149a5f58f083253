#include "base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/fd.h"

namespace omni {

Result<std::string> read_file(const std::filesystem::path& path, Bytes limit) {
  // Without O_NONBLOCK the open of a FIFO waits for a writer, for ever.
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return errno_error("cannot open " + path.string());
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return errno_error("cannot read " + path.string());
  if (!S_ISREG(status.st_mode)) {
    return Error{ErrorCode::io_error, path.string() + " is not a regular file"};
  }
  std::string content;
  char buffer[16384];
  for (;;) {
    const ssize_t n = ::read(file.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("cannot read " + path.string());
    if (n == 0) return content;
    content.append(buffer, static_cast<std::size_t>(n));
    if (Bytes(static_cast<std::int64_t>(content.size())) > limit) {
      return Error{ErrorCode::io_error,
                   fmt::format("{} is larger than {}", path.string(), to_string(limit))};
    }
  }
}

Result<void> write_file_atomic(const std::filesystem::path& path, std::string_view content,
                               int mode) {
  const std::string temporary = fmt::format("{}.{}.tmp", path.string(), ::getpid());
  Fd file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
  if (!file) return errno_error("cannot create " + temporary);
  while (!content.empty()) {
    const ssize_t n = ::write(file.get(), content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      Error error = errno_error("cannot write " + temporary);
      ::unlink(temporary.c_str());
      return error;
    }
    content.remove_prefix(static_cast<std::size_t>(n));
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    Error error = errno_error("cannot rename to " + path.string());
    ::unlink(temporary.c_str());
    return error;
  }
  return {};
}

Result<void> make_directories(const std::filesystem::path& path, int mode) {
  std::error_code status;
  std::filesystem::create_directories(path, status);
  if (status) return errno_error("cannot create folder " + path.string(), status.value());
  if (::chmod(path.c_str(), static_cast<mode_t>(mode)) != 0) {
    return errno_error("cannot set the mode of " + path.string());
  }
  return {};
}

}  // namespace omni
