#include "http/deadlines.h"

#include <algorithm>

namespace omni::http {

void Deadlines::wake_at(TimePoint at) {
  wake_ = std::max(at, last_sweep_ + kResolution);
  timer_.expires_at(wake_);
  // The timer alone does not keep the loop running: a program whose last request is done ends,
  // though an idle connection waits in its pool. The wait's own count of work is taken back here
  // and given again before Asio takes it.
  const auto executor = timer_.get_executor();
  timer_.async_wait([self = weak_from_this(), executor](boost::system::error_code status) {
    executor.on_work_started();
    if (status) return;
    if (auto alive = self.lock()) alive->sweep();
  });
  executor.on_work_finished();
}

void Deadlines::sweep() {
  const TimePoint now = Clock::now();
  last_sweep_ = now;
  wake_ = TimePoint::max();
  TimePoint next = TimePoint::max();
  // Told only after the pass: an expired entry may destroy others, which then leave `due` as well.
  List due;
  for (auto it = entries_.begin(); it != entries_.end();) {
    auto entry = it++;
    if (entry->at_ <= now) {
      due.splice(due.end(), entries_, entry);
    } else {
      next = std::min(next, entry->at_);
    }
  }
  while (!due.empty()) {
    Entry& entry = due.front();
    entries_.splice(entries_.end(), due, due.begin());
    entry.at_ = TimePoint::max();
    entry.on_deadline();
  }
  if (next < wake_) wake_at(next);
}

}  // namespace omni::http
