#include "config/machine_memory.h"

#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <sstream>

#include "base/files.h"

namespace omni {
namespace {

// The limit in this file, or the most there is: "max" is no number, and neither is a missing file.
Bytes limit_in(const std::filesystem::path& file, Bytes most) {
  auto content = read_file(file);
  if (!content.ok()) return most;
  std::int64_t limit = 0;
  auto [end, status] = std::from_chars(content->data(), content->data() + content->size(), limit);
  return status == std::errc() && limit > 0 ? std::min(most, Bytes(limit)) : most;
}

}  // namespace

Bytes usable_machine_memory() {
  Bytes most(static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE));
  auto groups = read_file("/proc/self/cgroup");
  if (!groups.ok()) return most;
  // Lines are "ID:CONTROLLERS:PATH"; "0::PATH" is version 2. Every ancestor's limit counts.
  std::istringstream lines(*groups);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty();
    if (!v2 && controllers != "memory") continue;
    const std::filesystem::path mount = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    const char* file = v2 ? "memory.max" : "memory.limit_in_bytes";
    std::filesystem::path group = std::filesystem::path(line.substr(second + 1)).relative_path();
    for (;; group = group.parent_path()) {
      most = limit_in(mount / group / file, most);
      if (group.empty()) break;
    }
  }
  return most;
}

}  // namespace omni
