// Coarse deadlines for the many waits of one I/O thread, with one timer for all of them: re-arming
// is a store, where a timer per connection would be a heap operation and a system call per request.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/intrusive/list.hpp>
#include <memory>

#include "base/clock.h"

namespace omni::http {

namespace asio = boost::asio;

class Deadlines : public std::enable_shared_from_this<Deadlines> {
 public:
  // Deadlines are met this much late at most.
  static constexpr Duration kResolution = std::chrono::milliseconds(20);

  // One wait that comes again and again; registered for its whole life. on_deadline() may destroy
  // any entry.
  class Entry : public boost::intrusive::list_base_hook<
                    boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
   public:
    explicit Entry(Deadlines& deadlines) : deadlines_(deadlines.shared_from_this()) {
      deadlines_->entries_.push_back(*this);
    }
    virtual ~Entry() = default;
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    void arm(TimePoint at) {
      at_ = at;
      if (at < deadlines_->wake_) deadlines_->wake_at(at);
    }
    void disarm() { at_ = TimePoint::max(); }

   protected:
    virtual void on_deadline() = 0;

   private:
    friend Deadlines;
    std::shared_ptr<Deadlines> deadlines_;  // shared by all entries and their owner
    TimePoint at_ = TimePoint::max();
  };

  explicit Deadlines(asio::io_context& loop) : timer_(loop.get_executor()) {}

 private:
  using List = boost::intrusive::list<Entry, boost::intrusive::constant_time_size<false>>;

  void wake_at(TimePoint at);
  void sweep();

  asio::basic_waitable_timer<Clock, asio::wait_traits<Clock>, asio::io_context::executor_type>
      timer_;
  TimePoint wake_ = TimePoint::max();  // when the timer fires next: never after the first deadline
  TimePoint last_sweep_{};
  List entries_;
};

}  // namespace omni::http
