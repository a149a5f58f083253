#include "node/event_log.h"

#include <fmt/chrono.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

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
  changed_.cancel();
}

std::vector<admin::Event> EventLog::since(std::uint64_t after) const {
  if (after == last_id_) return {};
  if (after > last_id_) after = 0;  // seen before a restart
  const std::uint64_t count = std::min<std::uint64_t>(last_id_ - after, events_.size());
  return {events_.end() - static_cast<std::ptrdiff_t>(count), events_.end()};
}

asio::awaitable<std::vector<admin::Event>> EventLog::wait(std::uint64_t after, TimePoint until) {
  while (!closed_ && since(after).empty() && Clock::now() < until) {
    // A timer of its own for the deadline, `changed_` for the event: whichever comes first wakes
    // `changed_`.
    asio::steady_timer deadline(changed_.get_executor(), until);
    deadline.async_wait([this](boost::system::error_code status) {
      if (!status) changed_.cancel();
    });
    boost::system::error_code status;
    auto token = asio::redirect_error(asio::use_awaitable, status);
    co_await changed_.async_wait(token);
  }
  co_return since(after);
}

void EventLog::close() {
  closed_ = true;
  changed_.cancel();
}

}  // namespace omni::node
