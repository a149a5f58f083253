// What /proc tells of a process tree. Blocking; for the worker pool.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <vector>

#include "base/clock.h"
#include "supervisor/instance.h"

namespace omni {

// The descendants of `root`, parents first, without itself. Not a snapshot: a process that starts
// or ends meanwhile may be missed.
std::vector<pid_t> descendants(pid_t root);

// Sum over the descendants of `root`, which is a shim and not counted.
InstanceUsage read_usage(pid_t root, bool with_pss);

// The traces that a loading process leaves.
struct Work {
  Duration cpu{};                // of the tree, ended children included
  std::uint64_t bytes_read = 0;  // by read() and the like
  std::uint64_t log_bytes = 0;   // of the current log file
  std::uint64_t log_inode = 0;
};
Work read_work(pid_t root, const std::filesystem::path& log);

}  // namespace omni
