#include "gateway/tunnel.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "base/task_group.h"
#include "gateway/websocket_frames.h"

namespace omni::gateway {
namespace {

using Stream = asio::posix::stream_descriptor;

// Whether a connection without work is to end: looked at so often.
constexpr Duration kLookAgain = std::chrono::seconds(1);

struct Traffic {
  explicit Traffic(TunnelLease of) : lease(std::move(of)) {}

  // Notes what moves. False: there is work, and nobody to do it.
  bool note(WebsocketFrames& frames, std::string_view bytes) {
    last = Clock::now();
    if (lease.is_websocket && !frames.feed(bytes)) return true;
    last_work = last;
    if (paused && !lease.resume()) return false;
    paused = false;
    return true;
  }
  // Pauses the lease when its time has come; the time of the next look.
  TimePoint look(TimePoint now, Duration idle) {
    if (!paused && now >= last_work + lease.pause_after) {
      paused = true;
      lease.pause();
    }
    if (paused) return std::min(last + idle, now + kLookAgain);
    return std::min(last + idle, last_work + lease.pause_after);
  }

  TunnelLease lease;
  TimePoint last = Clock::now();
  TimePoint last_work = last;
  bool paused = false;
  int open = 2;  // directions that still run
};

asio::awaitable<void> pump(Stream& from, Stream& to, std::string first, Traffic& traffic,
                           asio::steady_timer& done) {
  std::array<char, 16 * 1024> buffer;
  WebsocketFrames frames;
  boost::system::error_code status;
  auto token = asio::redirect_error(asio::use_awaitable, status);
  std::string_view pending = first;
  while (!status) {
    if (!pending.empty()) {
      const bool was_paused = traffic.paused;
      if (!traffic.note(frames, pending)) break;
      if (was_paused && !traffic.paused) done.cancel();  // its next look is nearer
      co_await asio::async_write(to, asio::buffer(pending), token);
    }
    if (status) break;
    const std::size_t count = co_await from.async_read_some(asio::buffer(buffer), token);
    pending = std::string_view(buffer.data(), count);
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

asio::awaitable<void> tunnel(asio::io_context& loop, TunnelEnd left, TunnelEnd right, Duration idle,
                             TunnelLease lease) {
  // Cut from outside, it still awaits its pumps, which use what is here.
  co_await asio::this_coro::throw_if_cancelled(false);
  const auto cancellation = co_await asio::this_coro::cancellation_state;
  Stream left_stream(loop, left.socket.release());
  Stream right_stream(loop, right.socket.release());
  asio::steady_timer timer(loop);
  Traffic traffic(std::move(lease));
  TaskGroup pumps(loop.get_executor());
  pumps.spawn(pump(left_stream, right_stream, std::move(left.read_ahead), traffic, timer));
  pumps.spawn(pump(right_stream, left_stream, std::move(right.read_ahead), traffic, timer));
  while (traffic.open > 0 && cancellation.cancelled() == asio::cancellation_type::none &&
         Clock::now() < traffic.last + idle && !(traffic.paused && traffic.lease.over())) {
    timer.expires_at(traffic.look(Clock::now(), idle));
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
