// One connected socket with its input buffer: reads and gathered writes with deadlines, for the
// server and the client. It tries the system call first and suspends only when that would block.
// Used from its loop's thread alone; at most one read and one write at a time.
#pragma once

#include <sys/uio.h>

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <string_view>

#include "base/clock.h"
#include "base/fd.h"
#include "http/deadlines.h"
#include "http/input_buffer.h"

namespace omni::http {

// The concrete executor keeps type erasure off the data path.
using Socket =
    asio::basic_stream_socket<asio::generic::stream_protocol, asio::io_context::executor_type>;

struct IoResult {
  enum class Kind : std::uint8_t {
    ok,
    would_block,  // of the *_now forms alone
    eof,          // the peer closed its side
    timeout,
    closed,  // by our own close()
    failed,  // see error
  };
  Kind kind = Kind::ok;
  int error = 0;  // errno

  bool ok() const { return kind == Kind::ok; }
  bool would_block() const { return kind == Kind::would_block; }
};

// The parts of one gathered write, of which a first part may have been written already.
class Gather {
 public:
  void add(std::string_view part) {
    if (!part.empty()) parts_[count_++] = {const_cast<char*>(part.data()), part.size()};
  }
  void advance(std::size_t written);
  bool empty() const { return first_ == count_; }
  iovec* parts() { return parts_.data() + first_; }
  std::size_t count() const { return count_ - first_; }

 private:
  std::array<iovec, 4> parts_{};  // head, chunk size, data, chunk end
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

class Stream {
 public:
  Stream(asio::io_context& loop, Deadlines& deadlines)
      : socket_(loop), read_wait_(*this, deadlines), write_wait_(*this, deadlines) {}

  // Takes a non-blocking socket.
  IoResult open(Fd socket, int family);
  bool is_open() const { return socket_.is_open(); }
  int fd() { return socket_.native_handle(); }

  InputBuffer& input() { return input_; }

  // One read into input(), without and with waiting.
  IoResult fill_now();
  asio::awaitable<IoResult> fill(TimePoint deadline);

  // Writes what the socket takes at once; then the rest, where `timeout` is without progress.
  IoResult write_now(Gather& parts);
  asio::awaitable<IoResult> write_rest(Gather& parts, Duration timeout);
  // Until a connect() in progress has its outcome.
  asio::awaitable<IoResult> wait_connected(TimePoint deadline);

  // No more bytes from us; the peer sees the end.
  void shutdown_write();
  // Pending operations end with `closed`. `reset`: the peer sees an error instead of an end.
  void close(bool reset = false);
  // Gives the socket away; no operation may be pending.
  Fd release();

 private:
  struct Wait final : Deadlines::Entry {
    Wait(Stream& owner, Deadlines& deadlines) : Entry(deadlines), stream(owner) {}
    void on_deadline() override {
      expired = true;
      stream.wake();
    }
    Stream& stream;
    bool expired = false;
  };
  void wake();  // every pending operation looks at its deadline again
  asio::awaitable<IoResult> wait(Socket::wait_type direction, Wait& wait, TimePoint deadline);

  Socket socket_;
  InputBuffer input_;
  Wait read_wait_;
  Wait write_wait_;
};

}  // namespace omni::http
