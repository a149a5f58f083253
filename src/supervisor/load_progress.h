// Whether a loading engine gets on. Pure: takes samples and times.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "supervisor/process_tree.h"

namespace omni {

// Whether `now` shows work beyond `before`, a `window` earlier. Health probes that the engine
// answered ("not yet") cost it CPU time, reads and often a log line: that much is not progress.
bool progressed(const Work& before, const Work& now, Duration window,
                std::uint32_t answered_probes);

// Cuts a load that stands still for `limit`, however slow the ones are that do not.
class StallWatch {
 public:
  StallWatch(Duration limit, Work first, TimePoint now)
      : limit_(limit), last_(first), sampled_(now), progress_(now) {}

  void on_answered_probe() { ++answered_; }
  bool wants_sample(TimePoint now) const { return now - sampled_ >= window(); }
  void on_sample(Work work, TimePoint now);
  bool stalled(TimePoint now) const { return now - progress_ >= limit_; }

 private:
  // Short enough to date the last progress, long enough to tell work from a heartbeat.
  Duration window() const;

  Duration limit_;
  Work last_;
  TimePoint sampled_;
  TimePoint progress_;
  std::uint32_t answered_ = 0;
};

}  // namespace omni
