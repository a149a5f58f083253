// Whether a loading engine gets on. Pure: takes samples and times.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "supervisor/process_tree.h"

namespace omni {

// Cuts a load that stands still for `limit`, however slow the ones are that do not.
//
// An engine that answers our health probes ("not yet") spends CPU time, reads and often a log line
// on each, for ever. So only what it does between probes, in quiet time, is taken for progress.
class StallWatch {
 public:
  StallWatch(Duration limit, TimePoint now) : limit_(limit), progress_(now) {}

  // The traces at the begin and the end of a quiet time.
  void on_quiet(const Work& before, const Work& after, Duration quiet, TimePoint now);
  bool stalled(TimePoint now) const { return now - progress_ >= limit_; }

 private:
  Duration limit_;
  TimePoint progress_;
  // Added up since the last progress: a single quiet time is too short to tell work from a
  // heartbeat.
  Duration quiet_{};
  Duration cpu_{};
  std::uint64_t bytes_read_ = 0;
};

}  // namespace omni
