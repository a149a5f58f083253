// Virtual time: what happens next, in order; equal times in order of arrival.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.h"

namespace omni::simulation {

class EventQueue {
 public:
  TimePoint now() const { return now_; }

  void at(TimePoint time, std::function<void()> event) {
    events_.push_back({std::max(time, now_), ++last_, std::move(event)});
    std::push_heap(events_.begin(), events_.end(), later);
  }
  void after(Duration delay, std::function<void()> event) { at(now_ + delay, std::move(event)); }

  // False when nothing is left.
  bool run_next() {
    if (events_.empty()) return false;
    std::pop_heap(events_.begin(), events_.end(), later);
    Event event = std::move(events_.back());
    events_.pop_back();
    now_ = event.time;
    event.run();
    return true;
  }

 private:
  struct Event {
    TimePoint time;
    std::uint64_t number;
    std::function<void()> run;
  };
  static bool later(const Event& a, const Event& b) {
    return a.time != b.time ? a.time > b.time : a.number > b.number;
  }

  TimePoint now_{std::chrono::hours(1)};
  std::uint64_t last_ = 0;
  std::vector<Event> events_;
};

}  // namespace omni::simulation
