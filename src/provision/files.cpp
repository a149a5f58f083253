#include "provision/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

namespace omni {
namespace {

namespace fs = std::filesystem;

Result<void> make_entry_readable(const fs::path& path, fs::file_status status) {
  if (status.type() != fs::file_type::regular && status.type() != fs::file_type::directory)
    return {};
  const auto mode = static_cast<mode_t>(status.permissions());
  const bool executable = status.type() == fs::file_type::directory || (mode & 0100) != 0;
  const mode_t wanted = ((mode | 0444) & ~mode_t{022}) | (executable ? 0111 : 0);
  if (wanted != mode && ::chmod(path.c_str(), wanted) != 0) {
    return errno_error("cannot make " + path.string() + " readable");
  }
  return {};
}

}  // namespace

Result<void> remove_tree(const fs::path& path) {
  std::error_code status;
  fs::remove_all(path, status);
  if (status) return errno_error("cannot remove " + path.string(), status.value());
  return {};
}

Result<void> make_readable(const fs::path& path) {
  std::error_code status;
  CHECK(make_entry_readable(path, fs::symlink_status(path, status)));
  fs::recursive_directory_iterator entry(path, status);
  for (; !status && entry != fs::recursive_directory_iterator(); entry.increment(status)) {
    CHECK(make_entry_readable(entry->path(), entry->symlink_status(status)));
  }
  if (status) return errno_error("cannot read " + path.string(), status.value());
  return {};
}

Result<void> sync_file_system(const fs::path& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd || ::syncfs(fd.get()) != 0) return errno_error("cannot sync " + path.string());
  return {};
}

}  // namespace omni
