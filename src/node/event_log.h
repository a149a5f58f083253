// The node's recent events, for `omni events` and the admin API. Lives on the control loop.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <deque>
#include <vector>

#include "admin/admin.h"
#include "base/clock.h"
#include "base/notifier.h"

namespace omni::node {

namespace asio = boost::asio;

class EventLog {
 public:
  explicit EventLog(asio::io_context& loop) : changed_(loop) {}

  // Adds "id" and "time".
  void add(admin::Event event);
  // Events with an id above `after` (all, when it is above the newest: from before a restart): at
  // once when there are some, else when one comes, or none at `until`.
  asio::awaitable<std::vector<admin::Event>> wait(std::uint64_t after, TimePoint until);
  // Ends every wait with what there is: the daemon is going down.
  void close();

 private:
  static constexpr std::size_t kKept = 4096;

  std::vector<admin::Event> since(std::uint64_t after) const;

  std::deque<admin::Event> events_;  // ids are last_id_ - size + 1 ... last_id_
  std::uint64_t last_id_ = 0;
  Notifier changed_;
  bool closed_ = false;
};

}  // namespace omni::node
