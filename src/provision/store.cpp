#include "provision/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <optional>

#include "base/fd.h"
#include "base/files.h"

namespace omni {
namespace {

namespace fs = std::filesystem;

// What the file looked like when it was last known to be right; beside it, so that a restart need
// not read gigabytes.
fs::path seal_of(const fs::path& content) { return content.string() + ".stat"; }

std::string describe(const struct stat& info) {
  return fmt::format("{} {}.{:09} {}.{:09} {}\n", info.st_size, info.st_mtim.tv_sec,
                     info.st_mtim.tv_nsec, info.st_ctim.tv_sec, info.st_ctim.tv_nsec, info.st_ino);
}

Result<void> seal(const fs::path& content) {
  struct stat info = {};
  if (::stat(content.c_str(), &info) != 0) return errno_error("cannot open " + content.string());
  return write_file_atomic(seal_of(content), describe(info));
}

}  // namespace

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

fs::path WeightStore::path_of(const std::string& digest) const {
  return root_ / "sha256" / digest.substr(0, 2) / digest;
}

WeightStore::Found WeightStore::find(const std::string& digest) const {
  const fs::path content = path_of(digest);
  struct stat info = {};
  if (::stat(content.c_str(), &info) != 0) return {};
  if (!S_ISREG(info.st_mode)) return {.damaged = true};
  const auto noted = read_file(seal_of(content));
  const std::string seen = describe(info);
  if (noted.ok() && *noted == seen) return {.path = content};
  const bool same_size =
      noted.ok() && noted->substr(0, noted->find(' ')) == seen.substr(0, seen.find(' '));
  if (noted.ok() && !same_size) return {.damaged = true};
  const auto real = digests_->of(content);
  if (!real.ok() || *real != digest) return {.damaged = true};
  // Without its note the file is read once more by the next daemon, and no worse.
  [[maybe_unused]] const auto sealed = seal(content);
  return {.path = content};
}

Result<fs::path> WeightStore::add(const fs::path& file, const std::string& digest) const {
  const fs::path content = path_of(digest);
  CHECK(make_directories(root_ / "sha256"));
  CHECK(make_directories(content.parent_path()));
  if (::chmod(file.c_str(), 0644) != 0)
    return errno_error("cannot set the mode of " + file.string());
  Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return errno_error("cannot sync " + file.string());
  if (::rename(file.c_str(), content.c_str()) != 0) {
    return errno_error("cannot move to " + content.string());
  }
  CHECK(seal(content));
  return content;
}

std::string read_digest_index(const fs::path& file) {
  auto index = read_file(file);
  if (!index.ok() || !index->ends_with('\n')) return {};
  index->pop_back();
  return is_sha256(*index) ? *index : std::string();
}

Result<void> write_digest_index(const fs::path& file, const std::string& digest) {
  return write_file_atomic(file, digest + "\n");
}

}  // namespace omni
