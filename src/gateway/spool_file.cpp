#include "gateway/spool_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>

namespace omni::gateway {
namespace {

// For file systems without O_TMPFILE (overlayfs of older kernels, NFS).
Result<Fd> create_and_unlink(const std::filesystem::path& folder) {
  std::string name = (folder / "body-XXXXXX").string();
  Fd file(::mkostemp(name.data(), O_CLOEXEC));
  if (!file) return errno_error(fmt::format("cannot create a file in {}", folder.string()));
  ::unlink(name.c_str());
  return file;
}

}  // namespace

Result<SpoolFile> SpoolFile::create(const std::filesystem::path& folder) {
  Fd file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file) {
    TRY(file, create_and_unlink(folder));
  }
  return SpoolFile(std::move(file), folder);
}

Result<void> SpoolFile::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(size_));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno_error("cannot write a request body to " + folder_.string());
    size_ += static_cast<std::uint64_t>(written);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

Result<std::size_t> SpoolFile::read_at(std::uint64_t offset, std::span<char> buffer) const {
  std::size_t filled = 0;
  while (filled < buffer.size()) {
    const ssize_t count = ::pread(file_.get(), buffer.data() + filled, buffer.size() - filled,
                                  static_cast<off_t>(offset + filled));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_error("cannot read a request body from " + folder_.string());
    if (count == 0) break;
    filled += static_cast<std::size_t>(count);
  }
  return filled;
}

// dup() would share the position, and a request that is sent again would start where the first try
// left off.
Result<Fd> SpoolFile::reopen() const {
  const std::string path = fmt::format("/proc/self/fd/{}", file_.get());
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return errno_error("cannot open a spooled request body");
  return file;
}

}  // namespace omni::gateway
