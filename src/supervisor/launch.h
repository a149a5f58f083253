// From a LaunchPlan to a shim: the run folder, the start request, the hand-over to the spawner.
#pragma once

#include <cstdint>

#include "base/fd.h"
#include "base/result.h"
#include "supervisor/instance.h"

namespace omni {

// What lies on disk before the start. Blocking; for the worker pool.
struct Prepared {
  Fd request;                    // sealed memfd, for the shim
  std::uint64_t log_offset = 0;  // where this instance's lines begin in its log file
};
Result<Prepared> prepare_launch(const LaunchPlan& plan);

// Hands the request to the spawner and returns the daemon's end of the shim's control socket.
// `overloaded` when the spawner's queue is full just now.
Result<Fd> send_launch(int spawner, const Fd& request);

// Removes the run folder and what the instance left in it. Blocking.
void remove_run_dir(const LaunchPlan& plan);

}  // namespace omni
