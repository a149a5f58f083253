// Bytes both ways between two sockets: WebSockets of the raw path.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/fd.h"

namespace omni::gateway {

namespace asio = boost::asio;

// The lease that the connection holds, as the tunnel sees it.
struct TunnelLease {
  bool is_websocket = false;  // pings and pongs are no work
  Duration pause_after{};     // without work
  std::function<void()> pause;
  std::function<bool()> over;    // nobody waits for a connection without work any more
  std::function<bool()> resume;  // false: what the tunnel leads to is going
};

struct TunnelEnd {
  Fd socket;
  std::string read_ahead;  // what came from this end already
};

// Until both directions have ended, one breaks, nothing moved for `idle`, or there is work and the
// lease cannot be resumed. An end of one direction is passed on as such.
asio::awaitable<void> tunnel(asio::io_context& loop, TunnelEnd left, TunnelEnd right, Duration idle,
                             TunnelLease lease);

}  // namespace omni::gateway
