// How often something is tried again, and after which pauses.
#pragma once

#include <algorithm>
#include <optional>

#include "provision/curl.h"

namespace omni {

class Retries {
 public:
  explicit Retries(const DownloadLimits& limits)
      : limits_(limits), pause_(limits.first_pause), deadline_(Clock::now() + limits.total) {}

  // The last try was of use.
  void start_again() {
    failed_ = 0;
    pause_ = limits_.first_pause;
  }
  // A try has failed: the pause before the next, or nothing when it was the last.
  std::optional<Duration> next() {
    if (++failed_ >= limits_.tries || Clock::now() >= deadline_) return std::nullopt;
    const Duration pause = pause_;
    pause_ = std::min(pause_ * 2, limits_.longest_pause);
    return pause;
  }

 private:
  DownloadLimits limits_;
  Duration pause_;
  TimePoint deadline_;
  int failed_ = 0;
};

}  // namespace omni
