// A condition of one loop: coroutines wait for "something has changed" or for a time.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <list>

#include "base/clock.h"

namespace omni {

class Notifier {
 public:
  explicit Notifier(boost::asio::io_context& loop) : loop_(loop) {}
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  // Wakes every waiter; each looks again at what it waits for.
  void notify() {
    for (boost::asio::steady_timer* timer : waiters_) timer->cancel();
  }

  // Until the next notify(), `deadline` or cancellation, which throws at the next await.
  boost::asio::awaitable<void> wait(TimePoint deadline) {
    boost::asio::steady_timer timer(loop_, deadline);
    const Waiting place(waiters_, &timer);
    boost::system::error_code status;
    auto token = boost::asio::redirect_error(boost::asio::use_awaitable, status);
    co_await timer.async_wait(token);
  }

 private:
  using Waiters = std::list<boost::asio::steady_timer*>;
  struct Waiting {
    Waiting(Waiters& waiters, boost::asio::steady_timer* timer)
        : list(waiters), place(waiters.insert(waiters.end(), timer)) {}
    ~Waiting() { list.erase(place); }
    Waiters& list;
    Waiters::iterator place;
  };

  boost::asio::io_context& loop_;
  Waiters waiters_;
};

}  // namespace omni
