#include "http/stream.h"

#include <sys/socket.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>

namespace omni::http {
namespace {

constexpr auto kAsTuple = asio::as_tuple(asio::use_awaitable);

IoResult of_errno(int error) {
  if (error == EAGAIN || error == EWOULDBLOCK) return {IoResult::Kind::would_block};
  return {IoResult::Kind::failed, error};
}

}  // namespace

void Gather::advance(std::size_t written) {
  while (written > 0) {
    iovec& part = parts_[first_];
    const std::size_t here = std::min(written, part.iov_len);
    part.iov_base = static_cast<char*>(part.iov_base) + here;
    part.iov_len -= here;
    written -= here;
    if (part.iov_len == 0) ++first_;
  }
}

IoResult Stream::open(Fd socket, int family) {
  boost::system::error_code status;
  socket_.assign(asio::generic::stream_protocol(family, 0), socket.get(), status);
  if (status) return {IoResult::Kind::failed, status.value()};
  socket.release();
  socket_.native_non_blocking(true, status);
  return {};
}

IoResult Stream::fill_now() {
  if (!is_open()) return {IoResult::Kind::closed};
  const std::span<char> room = input_.prepare();
  for (;;) {
    const ssize_t count = ::recv(socket_.native_handle(), room.data(), room.size(), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return of_errno(errno);
    input_.commit(static_cast<std::size_t>(count));
    return {count == 0 ? IoResult::Kind::eof : IoResult::Kind::ok};
  }
}

asio::awaitable<IoResult> Stream::fill(TimePoint deadline) {
  read_wait_.expired = false;
  for (;;) {
    if (!is_open()) co_return IoResult{IoResult::Kind::closed};
    const std::span<char> room = input_.prepare();
    const asio::mutable_buffer buffer(room.data(), room.size());
    read_wait_.arm(deadline);
    const auto [status, count] = co_await socket_.async_read_some(buffer, kAsTuple);
    read_wait_.disarm();
    if (!status) {
      input_.commit(count);
      co_return IoResult{};
    }
    if (status == asio::error::eof) co_return IoResult{IoResult::Kind::eof};
    if (status != asio::error::operation_aborted) {
      co_return IoResult{IoResult::Kind::failed, status.value()};
    }
    // Aborted by close() (seen above), by our deadline, or by that of the other direction.
    if (read_wait_.expired) co_return IoResult{IoResult::Kind::timeout};
  }
}

IoResult Stream::write_now(Gather& parts) {
  if (!is_open()) return {IoResult::Kind::closed};
  while (!parts.empty()) {
    msghdr message{};
    message.msg_iov = parts.parts();
    message.msg_iovlen = parts.count();
    const ssize_t count = ::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return of_errno(errno);
    parts.advance(static_cast<std::size_t>(count));
  }
  return {};
}

asio::awaitable<IoResult> Stream::write_rest(Gather& parts, Duration timeout) {
  for (;;) {
    const IoResult ready = co_await wait(Socket::wait_write, write_wait_, Clock::now() + timeout);
    if (!ready.ok()) co_return ready;
    const IoResult written = write_now(parts);
    if (!written.would_block()) co_return written;
  }
}

asio::awaitable<IoResult> Stream::wait_connected(TimePoint deadline) {
  const IoResult ready = co_await wait(Socket::wait_write, write_wait_, deadline);
  if (!ready.ok()) co_return ready;
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(socket_.native_handle(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) co_return IoResult{IoResult::Kind::failed, error};
  co_return IoResult{};
}

asio::awaitable<IoResult> Stream::wait(Socket::wait_type direction, Wait& wait,
                                       TimePoint deadline) {
  wait.expired = false;
  for (;;) {
    if (!is_open()) co_return IoResult{IoResult::Kind::closed};
    wait.arm(deadline);
    const auto [status] = co_await socket_.async_wait(direction, kAsTuple);
    wait.disarm();
    if (!status) co_return IoResult{};
    if (status != asio::error::operation_aborted) {
      co_return IoResult{IoResult::Kind::failed, status.value()};
    }
    if (wait.expired) co_return IoResult{IoResult::Kind::timeout};
  }
}

void Stream::wake() {
  boost::system::error_code ignored;
  socket_.cancel(ignored);
}

void Stream::shutdown_write() {
  boost::system::error_code ignored;
  if (is_open()) socket_.shutdown(Socket::shutdown_send, ignored);
}

void Stream::close(bool reset) {
  boost::system::error_code ignored;
  if (reset && is_open()) {
    // Without the option, close() after a body of unknown length looks like its proper end.
    const linger now{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(socket_.native_handle(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  }
  socket_.close(ignored);
}

Fd Stream::release() {
  boost::system::error_code ignored;
  return Fd(socket_.release(ignored));
}

}  // namespace omni::http
