// The daemon's end of one shim's control socket: what the shim has reported, and commands to it.
// Shared by the Instance and by the coroutine that reads reports, which ends with the tree or by
// close(). Used on one loop.
#pragma once

#include <sys/types.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <optional>

#include "base/fd.h"
#include "base/notifier.h"
#include "base/result.h"
#include "protocol/shim_protocol.h"

namespace omni {

class ShimLink {
 public:
  ShimLink(boost::asio::io_context& loop, Fd control)
      : events(loop), control_(loop, control.release()) {}

  // Reads reports until the tree is gone: its socket has ended, and so has its shim.
  boost::asio::awaitable<void> run();
  // The tree dies, and run() ends without seeing it.
  void close();

  void signal(int number);
  void kill_tree();
  // SIGKILL of the shim itself: in a pid namespace the kernel kills the rest with it, else the
  // spawner does.
  void kill_shim();

  Notifier events;  // notified at every change of the following
  pid_t shim_pid = 0;
  pid_t main_pid = 0;
  bool started = false;
  std::optional<Error> start_error;
  std::optional<int> wait_status;  // of the main process
  bool gone = false;

  bool main_ended() const { return wait_status.has_value() || gone; }

 private:
  bool read_report();
  void take(const protocol::ShimReport& report, Fd handle);
  void send(const protocol::ShimCommand& command);
  bool shim_has_ended() const;

  boost::asio::posix::stream_descriptor control_;
  Fd shim_handle_;  // pidfd
};

}  // namespace omni
