#include "gateway/tunnel.h"

#include <sys/socket.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "base/task_group.h"

namespace omni::gateway {
namespace {

using Stream = asio::posix::stream_descriptor;

struct Traffic {
  TimePoint last = Clock::now();
  int open = 2;  // directions that still run
};

asio::awaitable<void> pump(Stream& from, Stream& to, std::string first, Traffic& traffic,
                           asio::steady_timer& done) {
  std::array<char, 16 * 1024> buffer;
  boost::system::error_code status;
  auto token = asio::redirect_error(asio::use_awaitable, status);
  auto pending = asio::buffer(first);
  while (!status) {
    if (pending.size() > 0) co_await asio::async_write(to, pending, token);
    if (status) break;
    traffic.last = Clock::now();
    const std::size_t count = co_await from.async_read_some(asio::buffer(buffer), token);
    pending = asio::buffer(buffer.data(), count);
  }
  // An end is passed on; the other direction may go on. A break ends both.
  if (status == asio::error::eof) {
    ::shutdown(to.native_handle(), SHUT_WR);
    --traffic.open;
  } else {
    traffic.open = 0;
  }
  done.cancel();
}

}  // namespace

asio::awaitable<void> tunnel(asio::io_context& loop, TunnelEnd left, TunnelEnd right,
                             Duration idle) {
  // Cut from outside, it still awaits its pumps, which use what is here.
  co_await asio::this_coro::throw_if_cancelled(false);
  const auto cancellation = co_await asio::this_coro::cancellation_state;
  Stream left_stream(loop, left.socket.release());
  Stream right_stream(loop, right.socket.release());
  asio::steady_timer timer(loop);
  Traffic traffic;
  TaskGroup pumps(loop.get_executor());
  pumps.spawn(pump(left_stream, right_stream, std::move(left.read_ahead), traffic, timer));
  pumps.spawn(pump(right_stream, left_stream, std::move(right.read_ahead), traffic, timer));
  while (traffic.open > 0 && cancellation.cancelled() == asio::cancellation_type::none &&
         Clock::now() < traffic.last + idle) {
    timer.expires_at(traffic.last + idle);
    boost::system::error_code status;
    auto token = asio::redirect_error(asio::use_awaitable, status);
    co_await timer.async_wait(token);
  }
  boost::system::error_code ignored;
  left_stream.close(ignored);
  right_stream.close(ignored);
  co_await pumps.stop();
}

}  // namespace omni::gateway
