// One connected socket with its input buffer: reads and gathered writes with deadlines, for the
// server and the client. What can be done at once is done by the *_now() forms without suspending;
// the others wait. Used from its loop's thread alone; at most one read and one write at a time.
#pragma once

#include <sys/uio.h>

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>
#include <span>
#include <string_view>

#include "base/clock.h"
#include "base/fd.h"
#include "http/deadlines.h"
#include "http/input_buffer.h"
#include "http/readiness.h"

namespace omni::http {

struct IoResult {
  enum class Kind : std::uint8_t {
    ok,
    would_block,  // of the *_now forms alone
    eof,          // the peer closed its side
    timeout,
    closed,  // by our own close(), or the coroutine was cancelled
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
  std::size_t size() const;  // in bytes

 private:
  std::array<iovec, 4> parts_{};  // head, chunk size, data, chunk end
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

class Stream final : private Readiness::Entry {
 public:
  // Told once, in a turn of the loop of its own, when the peer has closed or half-closed: without
  // a read, also behind input that nobody has read.
  class PeerListener {
   public:
    virtual ~PeerListener() = default;
    virtual void on_peer_gone(Stream& stream) = 0;  // may destroy it
  };

  Stream(asio::io_context& loop, Deadlines& deadlines);
  ~Stream() override;

  // Takes a non-blocking socket of this address family.
  IoResult open(Fd socket, int family);
  bool is_open() const { return static_cast<bool>(socket_); }
  int fd() const { return socket_.get(); }

  InputBuffer& input() { return input_; }

  // One read into input(): first this, which after many in a row says would_block though there is
  // more, so that other connections get their turn.
  IoResult fill_now();
  // Then this, when it would block.
  asio::awaitable<IoResult> fill(TimePoint deadline);
  // The same, asking the socket whatever the loop has told.
  IoResult receive();
  // Nothing has come that was not read, neither bytes nor an end.
  bool is_drained();

  // Writes what the socket takes at once; then the rest, where `timeout` is without progress.
  IoResult write_now(Gather& parts);
  asio::awaitable<IoResult> write_rest(Gather& parts, Duration timeout);
  // Until a connect() in progress has its outcome.
  asio::awaitable<IoResult> wait_connected(TimePoint deadline);

  bool peer_gone() const { return peer_gone_; }
  // One listener, or none. It is not told of what happens after close().
  void listen(PeerListener* listener);

  // No more bytes from us; the peer sees the end.
  void shutdown_write();
  // Pending operations end with `closed`. `reset`: the peer sees an error instead of an end.
  void close(bool reset = false);
  // Gives the socket away; no operation may be pending.
  Fd release();

 private:
  using Handler =
      asio::async_result<asio::use_awaitable_t<>, void(IoResult)>::handler_type;  // resumes

  // One direction's pending operation.
  struct Wait final : Deadlines::Entry {
    Wait(Stream& owner, Deadlines& deadlines) : Entry(deadlines), stream(owner) {}
    void on_deadline() override { end(IoResult::Kind::timeout); }
    // Without what it waits for.
    void end(IoResult::Kind why);

    Stream& stream;
    std::optional<Handler> handler;
    IoResult::Kind ended = IoResult::Kind::ok;
  };

  asio::awaitable<IoResult> wait(Wait& wait, TimePoint deadline);
  asio::awaitable<IoResult> wait_writable(TimePoint deadline);
  void complete(Wait& wait, IoResult result);
  IoResult read_outcome();
  IoResult write_outcome();
  ssize_t read_into(std::span<char> room);
  bool leave();  // the loop's readiness; false if the socket is closed

  void note(std::uint32_t events) override;
  void on_ready() override;
  void abandon() override;

  // Reads in a row before others get their turn: at most 1 MiB.
  static constexpr int kReadsPerTurn = 16;

  Readiness& readiness_;
  Fd socket_;
  InputBuffer input_;
  Wait read_wait_;
  Wait write_wait_;
  PeerListener* listener_ = nullptr;
  int reads_left_ = kReadsPerTurn;
  bool is_unix_ = false;
  bool readable_ = true;  // as far as is known
  // A read can stop short of what is there: at urgent data, or behind passed descriptors.
  bool stops_short_ = false;
  bool writable_ = false;
  bool peer_gone_ = false;
};

}  // namespace omni::http
