#include "node/event_log.h"

#include <fmt/chrono.h>

namespace omni::node {
namespace {

std::string utc_now() {
  const auto now = std::chrono::system_clock::now();
  const auto millis =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()) % 1000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(now)), millis.count());
}

}  // namespace

void EventLog::add(admin::Event event) {
  event["id"] = ++last_id_;
  event["time"] = utc_now();
  events_.push_back(std::move(event));
  if (events_.size() > kKept) events_.pop_front();
  changed_.notify();
}

std::vector<admin::Event> EventLog::since(std::uint64_t after) const {
  if (after == last_id_) return {};
  if (after > last_id_) after = 0;  // seen before a restart
  const std::uint64_t count = std::min<std::uint64_t>(last_id_ - after, events_.size());
  return {events_.end() - static_cast<std::ptrdiff_t>(count), events_.end()};
}

asio::awaitable<std::vector<admin::Event>> EventLog::wait(std::uint64_t after, TimePoint until) {
  while (!closed_ && since(after).empty() && Clock::now() < until) {
    co_await changed_.wait(until);
  }
  co_return since(after);
}

void EventLog::close() {
  closed_ = true;
  changed_.notify();
}

}  // namespace omni::node
