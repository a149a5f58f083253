#include "provision/disk_space.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

namespace omni {

Result<void> check_disk_space(const std::filesystem::path& folder, std::string_view what,
                              Bytes needed, Bytes margin) {
  struct statvfs info = {};
  if (::statvfs(folder.c_str(), &info) != 0)
    return errno_error("cannot look at " + folder.string());
  const Bytes free(static_cast<std::int64_t>(info.f_bavail) *
                   static_cast<std::int64_t>(info.f_frsize));
  if (free >= needed + margin) return {};
  return Error{ErrorCode::disk_full,
               fmt::format("{} needs {} in {} ({} bytes, and {} for others), and {} ({} bytes) are "
                           "free there: free some, for example with `omni gc`",
                           what, to_string(needed), folder.string(), needed.count(),
                           to_string(margin), to_string(free), free.count())};
}

}  // namespace omni
