// Bytes both ways between two sockets: WebSockets of the raw path.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <string>

#include "base/clock.h"
#include "base/fd.h"

namespace omni::gateway {

namespace asio = boost::asio;

struct TunnelEnd {
  Fd socket;
  std::string read_ahead;  // what came from this end already
};

// Until both directions have ended, one breaks, or nothing moved for `idle`. An end of one
// direction is passed on as such.
asio::awaitable<void> tunnel(asio::io_context& loop, TunnelEnd left, TunnelEnd right,
                             Duration idle);

}  // namespace omni::gateway
