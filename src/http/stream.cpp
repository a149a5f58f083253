#include "http/stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <cerrno>
#include <span>

namespace omni::http {
namespace {

IoResult of_errno(int error) {
  if (error == EAGAIN || error == EWOULDBLOCK) return {IoResult::Kind::would_block};
  return {IoResult::Kind::failed, error};
}

// One call. Small parts are copied together: the kernel takes longer over a vector of them.
ssize_t write_once(int fd, Gather& parts) {
  constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
  std::array<char, 4096> copy;
  const std::size_t size = parts.size();
  if (parts.count() == 1 || size > copy.size()) {
    msghdr message{};
    message.msg_iov = parts.parts();
    message.msg_iovlen = parts.count();
    return ::sendmsg(fd, &message, kFlags);
  }
  char* end = copy.data();
  for (const iovec& part : std::span(parts.parts(), parts.count())) {
    end = std::copy_n(static_cast<const char*>(part.iov_base), part.iov_len, end);
  }
  return ::send(fd, copy.data(), size, kFlags);
}

}  // namespace

std::size_t Gather::size() const {
  std::size_t size = 0;
  for (std::size_t i = first_; i < count_; ++i) size += parts_[i].iov_len;
  return size;
}

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

Stream::Stream(asio::io_context& loop, Deadlines& deadlines)
    : readiness_(asio::use_service<Readiness>(loop)),
      read_wait_(*this, deadlines),
      write_wait_(*this, deadlines) {}

Stream::~Stream() { leave(); }

bool Stream::leave() {
  if (!socket_) return false;
  readiness_.remove(*this, socket_.get());
  return true;
}

IoResult Stream::open(Fd socket, int family) {
  if (const int error = readiness_.add(*this, socket.get()); error != 0) {
    return {IoResult::Kind::failed, error};
  }
  socket_ = std::move(socket);
  is_unix_ = family == AF_UNIX;
  return {};
}

// ---- at once

IoResult Stream::fill_now() {
  if (!is_open()) return {IoResult::Kind::closed};
  if (!readable_ || reads_left_ == 0) return {IoResult::Kind::would_block};
  --reads_left_;
  return receive();
}

IoResult Stream::receive() {
  if (!is_open()) return {IoResult::Kind::closed};
  const std::span<char> room = input_.prepare();
  const ssize_t count = read_into(room);
  if (count < 0) {
    const IoResult result = of_errno(errno);
    if (result.would_block()) readable_ = false;
    return result;
  }
  // A short read leaves nothing behind but, perhaps, the end.
  if (count > 0 && static_cast<std::size_t>(count) < room.size()) {
    readable_ = peer_gone_ || stops_short_;
  }
  input_.commit(static_cast<std::size_t>(count));
  return {count == 0 ? IoResult::Kind::eof : IoResult::Kind::ok};
}

ssize_t Stream::read_into(std::span<char> room) {
  for (;;) {
    ssize_t count = 0;
    if (is_unix_) {
      iovec part{room.data(), room.size()};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      count = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
      // Descriptors came with it; they are dropped, but they ended the read.
      if ((message.msg_flags & MSG_CTRUNC) != 0) stops_short_ = true;
    } else {
      count = ::recv(socket_.get(), room.data(), room.size(), MSG_DONTWAIT);
    }
    if (count >= 0 || errno != EINTR) return count;
  }
}

bool Stream::is_drained() {
  // While the loop tells its streams, what it has not told has not come.
  if (!readable_ && readiness_.in_turn()) return true;
  char byte = 0;
  const ssize_t count = ::recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  readable_ = count >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  return !readable_;
}

IoResult Stream::write_now(Gather& parts) {
  if (!is_open()) return {IoResult::Kind::closed};
  while (!parts.empty()) {
    const ssize_t count = write_once(socket_.get(), parts);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return of_errno(errno);
    parts.advance(static_cast<std::size_t>(count));
  }
  return {};
}

// ---- waiting

asio::awaitable<IoResult> Stream::wait(Wait& wait, TimePoint deadline) {
  const auto start = [this, &wait, deadline](Handler handler) {
    wait.ended = IoResult::Kind::ok;
    wait.arm(deadline);
    auto slot = asio::get_associated_cancellation_slot(handler);
    if (slot.is_connected()) {
      slot.assign([&wait](asio::cancellation_type) { wait.end(IoResult::Kind::closed); });
    }
    wait.handler.emplace(std::move(handler));
    if (!is_open()) wait.end(IoResult::Kind::closed);
    if (&wait == &read_wait_ && readable_) readiness_.make_due(*this);
  };
  asio::use_awaitable_t<> token;
  return asio::async_initiate<asio::use_awaitable_t<>, void(IoResult)>(start, token);
}

asio::awaitable<IoResult> Stream::fill(TimePoint deadline) { return wait(read_wait_, deadline); }

asio::awaitable<IoResult> Stream::wait_writable(TimePoint deadline) {
  if (!is_open()) co_return IoResult{IoResult::Kind::closed};
  writable_ = false;
  readiness_.watch_writes(*this, socket_.get(), true);
  const IoResult result = co_await wait(write_wait_, deadline);
  if (is_open()) readiness_.watch_writes(*this, socket_.get(), false);
  co_return result;
}

asio::awaitable<IoResult> Stream::write_rest(Gather& parts, Duration timeout) {
  for (;;) {
    const IoResult ready = co_await wait_writable(Clock::now() + timeout);
    if (!ready.ok()) co_return ready;
    const IoResult written = write_now(parts);
    if (!written.would_block()) co_return written;
  }
}

asio::awaitable<IoResult> Stream::wait_connected(TimePoint deadline) {
  const IoResult ready = co_await wait_writable(deadline);
  if (!ready.ok()) co_return ready;
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) co_return IoResult{IoResult::Kind::failed, error};
  co_return IoResult{};
}

void Stream::Wait::end(IoResult::Kind why) {
  if (!handler || ended != IoResult::Kind::ok) return;
  ended = why;
  stream.readiness_.make_due(stream);
}

// ---- what the loop tells

void Stream::note(std::uint32_t events) {
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) peer_gone_ = true;
  if ((events & EPOLLPRI) != 0) stops_short_ = true;
  if ((events & (EPOLLIN | EPOLLPRI)) != 0 || peer_gone_) readable_ = true;
  if ((events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) writable_ = true;
}

void Stream::on_ready() {
  reads_left_ = kReadsPerTurn;
  // Each of these may destroy this stream: what else is due comes in the next turn.
  if (read_wait_.handler) {
    const IoResult result = read_outcome();
    if (!result.would_block()) {
      if (write_wait_.handler || peer_gone_) readiness_.make_due(*this);
      return complete(read_wait_, result);
    }
  }
  if (write_wait_.handler) {
    const IoResult result = write_outcome();
    if (!result.would_block()) {
      if (peer_gone_) readiness_.make_due(*this);
      return complete(write_wait_, result);
    }
  }
  if (peer_gone_ && listener_ != nullptr) std::exchange(listener_, nullptr)->on_peer_gone(*this);
}

IoResult Stream::read_outcome() {
  if (read_wait_.ended != IoResult::Kind::ok) return {read_wait_.ended};
  return fill_now();
}

IoResult Stream::write_outcome() {
  if (write_wait_.ended != IoResult::Kind::ok) return {write_wait_.ended};
  return {writable_ ? IoResult::Kind::ok : IoResult::Kind::would_block};
}

void Stream::complete(Wait& wait, IoResult result) {
  wait.disarm();
  Handler handler = std::move(*wait.handler);
  wait.handler.reset();
  handler(result);
}

void Stream::abandon() {
  // With the handlers go their coroutines and what those own, perhaps this stream.
  const std::optional<Handler> reader = std::exchange(read_wait_.handler, std::nullopt);
  const std::optional<Handler> writer = std::exchange(write_wait_.handler, std::nullopt);
}

void Stream::listen(PeerListener* listener) {
  listener_ = listener;
  if (listener_ != nullptr && peer_gone_) readiness_.make_due(*this);
}

// ---- the end

void Stream::shutdown_write() {
  if (is_open()) ::shutdown(socket_.get(), SHUT_WR);
}

void Stream::close(bool reset) {
  if (!leave()) return;
  if (reset) {
    // Without the option, close() after a body of unknown length looks like its proper end.
    const linger now{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  }
  socket_.reset();
  listener_ = nullptr;
  read_wait_.end(IoResult::Kind::closed);
  write_wait_.end(IoResult::Kind::closed);
}

Fd Stream::release() {
  leave();
  return std::move(socket_);
}

}  // namespace omni::http
