// The pauses between starts of a model that keeps failing. Pure.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace omni::scheduling {

class CrashLoop {
 public:
  // A start failed: pause at once, twice as long each time.
  void start_failed(TimePoint now, Duration first, Duration last) {
    ++failures_;
    retry_at_ = now + pause(failures_, first, last);
  }
  // A resident instance died. The first death is forgiven: it is started again on demand.
  void died(TimePoint now, Duration first, Duration last) {
    ++failures_;
    if (failures_ > 1) retry_at_ = now + pause(failures_ - 1, first, last);
  }
  // It ran well, or an operator wants another try.
  void reset() { *this = {}; }

  bool backing_off(TimePoint now) const { return now < retry_at_; }
  TimePoint retry_at() const { return retry_at_; }
  std::uint32_t failures() const { return failures_; }

 private:
  static Duration pause(std::uint32_t failures, Duration first, Duration last) {
    Duration length = first;
    for (std::uint32_t i = 1; i < failures && length < last; ++i) length *= 2;
    return length < last ? length : last;
  }

  std::uint32_t failures_ = 0;
  TimePoint retry_at_ = TimePoint::min();
};

}  // namespace omni::scheduling
