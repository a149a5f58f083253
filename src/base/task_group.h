// Coroutines that belong to one owner. Lives on one executor (a loop or strand) and is used from it
// alone.
//
//   TaskGroup tasks(loop.get_executor());
//   tasks.spawn(watch(instance));
//   co_await tasks.stop();              // cancels every task (terminal) and waits until all have
//   ended
//
// A cancelled task ends at its next co_await: Asio throws operation_aborted there, which the group
// takes as its normal end. A task with work to do after cancellation first awaits
// `asio::this_coro::reset_cancellation_state(asio::disable_cancellation())`. Any other exception
// that escapes ends the process: what a caller can handle is a Result.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <list>

#include "base/clock.h"

namespace omni {

namespace asio = boost::asio;

class TaskGroup {
 public:
  explicit TaskGroup(asio::io_context::executor_type executor)
      : executor_(executor), idle_(executor) {
    idle_.expires_at(TimePoint::max());
  }
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;

  using Id = std::uint64_t;

  // The id is for cancel(id).
  Id spawn(asio::awaitable<void> task) {
    signals_.emplace_front();
    auto signal = signals_.begin();
    signal->id = ++last_id_;
    const Id id = signal->id;
    asio::co_spawn(executor_, std::move(task),
                   asio::bind_cancellation_slot(signal->stop.slot(),
                                                [this, signal](std::exception_ptr failure) {
                                                  if (failure) rethrow_unless_cancelled(failure);
                                                  signals_.erase(signal);
                                                  if (signals_.empty()) idle_.cancel();
                                                }));
    return id;
  }

  std::size_t size() const { return signals_.size(); }

  void cancel() {
    // emit() may run a task to its end, which erases its signal.
    for (auto it = signals_.begin(); it != signals_.end();) {
      auto signal = it++;
      signal->stop.emit(asio::cancellation_type::terminal);
    }
  }
  // One task; nothing when it has ended.
  void cancel(Id id) {
    for (Task& task : signals_) {
      if (task.id != id) continue;
      task.stop.emit(asio::cancellation_type::terminal);
      return;
    }
  }

  asio::awaitable<void> stop() {
    cancel();
    co_await wait();
  }

  // Until every task has ended by itself.
  asio::awaitable<void> wait() {
    while (!signals_.empty()) {
      boost::system::error_code status;
      auto token = asio::redirect_error(asio::use_awaitable, status);
      co_await idle_.async_wait(token);
    }
  }

 private:
  static void rethrow_unless_cancelled(std::exception_ptr failure) {
    try {
      std::rethrow_exception(failure);
    } catch (const boost::system::system_error& error) {
      if (error.code() != asio::error::operation_aborted) throw;
    }
  }

  asio::io_context::executor_type executor_;
  asio::steady_timer idle_;
  struct Task {
    Id id = 0;
    asio::cancellation_signal stop;
  };
  std::list<Task> signals_;
  Id last_id_ = 0;
};

}  // namespace omni
