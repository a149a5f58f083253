#include "http/stream.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/detached.hpp>
#include <thread>

#include "http/http_test_support.h"

namespace omni::http {
namespace {

using namespace test;

// A stream and the plain blocking socket at its other end.
struct Pair {
  explicit Pair(asio::io_context& on)
      : loop(on),
        deadlines(std::make_shared<Deadlines>(loop)),
        stream(std::make_unique<Stream>(loop, *deadlines)) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    peer.reset(ends[1]);
    EXPECT_TRUE(stream->open(Fd(ends[0]), AF_UNIX).ok());
  }

  void send(std::string_view bytes) const {
    EXPECT_EQ(::send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  asio::awaitable<IoResult> fill(Duration timeout = 5s) {
    IoResult result = stream->fill_now();
    if (result.would_block()) result = co_await stream->fill(Clock::now() + timeout);
    co_return result;
  }

  asio::io_context& loop;
  std::shared_ptr<Deadlines> deadlines;
  std::unique_ptr<Stream> stream;
  Fd peer;
};

TEST(Stream, SeesAnEndThatCameWithTheLastBytes) {
  asio::io_context loop;
  Pair pair(loop);
  run(loop, [&]() -> asio::awaitable<void> {
    EXPECT_TRUE(pair.stream->fill_now().would_block());
    pair.send("last");
    pair.peer.reset();
    const IoResult bytes = co_await pair.fill();
    EXPECT_TRUE(bytes.ok());
    EXPECT_EQ(pair.stream->input().view(), "last");
    const IoResult end = co_await pair.fill();
    EXPECT_EQ(end.kind, IoResult::Kind::eof);
  }());
}

TEST(Stream, SeesAnEndThatCameBeforeItWasWatched) {
  asio::io_context loop;
  Pair pair(loop);
  pair.send("all");
  pair.peer.reset();
  run(loop, [&]() -> asio::awaitable<void> {
    const IoResult bytes = co_await pair.fill();
    EXPECT_TRUE(bytes.ok());
    const IoResult end = co_await pair.fill();
    EXPECT_EQ(end.kind, IoResult::Kind::eof);
  }());
}

TEST(Stream, ReadsOnBehindPassedDescriptors) {
  asio::io_context loop;
  Pair pair(loop);
  run(loop, [&]() -> asio::awaitable<void> {
    EXPECT_TRUE(pair.stream->fill_now().would_block());
    char byte = 'a';
    iovec part{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int passed = pair.peer.get();
    std::memcpy(CMSG_DATA(header), &passed, sizeof(passed));
    EXPECT_EQ(::sendmsg(pair.peer.get(), &message, 0), 1);
    pair.send("bc");
    while (pair.stream->input().view() != "abc") {
      const IoResult result = co_await pair.fill(1s);
      if (!result.ok()) break;
    }
    EXPECT_EQ(pair.stream->input().view(), "abc");
  }());
}

TEST(Stream, ReadsOnBehindUrgentData) {
  asio::io_context loop;
  const Fd listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(listening.get(), raw, size), 0);
  ASSERT_EQ(::listen(listening.get(), 1), 0);
  ASSERT_EQ(::getsockname(listening.get(), raw, &size), 0);
  const Fd peer(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(peer.get(), raw, size), 0);
  auto deadlines = std::make_shared<Deadlines>(loop);
  Stream stream(loop, *deadlines);
  run(loop, [&]() -> asio::awaitable<void> {
    EXPECT_TRUE(stream.open(Fd(::accept(listening.get(), nullptr, nullptr)), AF_INET).ok());
    EXPECT_TRUE(stream.fill_now().would_block());
    ::send(peer.get(), "ab", 2, 0);
    ::send(peer.get(), "!", 1, MSG_OOB);
    ::send(peer.get(), "cd", 2, 0);
    while (stream.input().view() != "abcd") {
      IoResult result = stream.fill_now();
      if (result.would_block()) result = co_await stream.fill(Clock::now() + 1s);
      if (!result.ok()) break;
    }
    EXPECT_EQ(stream.input().view(), "abcd");
  }());
}

TEST(Stream, IsDrainedUntilBytesOrAnEndCome) {
  asio::io_context loop;
  Pair pair(loop);
  run(loop, [&]() -> asio::awaitable<void> {
    EXPECT_TRUE(pair.stream->is_drained());
    pair.send("x");
    const bool told = co_await eventually(loop, [&] { return !pair.stream->is_drained(); });
    EXPECT_TRUE(told);
    EXPECT_TRUE(pair.stream->fill_now().ok());
    EXPECT_TRUE(pair.stream->is_drained());
    pair.peer.reset();
    const bool ended = co_await eventually(loop, [&] { return !pair.stream->is_drained(); });
    EXPECT_TRUE(ended);
  }());
}

TEST(Stream, OneThatAlwaysHasInputLeavesOthersTheirTurn) {
  asio::io_context loop;
  Pair busy(loop);
  Pair quiet(loop);
  bool served = false;
  std::size_t before = 0;
  const auto wait = [&]() -> asio::awaitable<void> {
    const IoResult result = co_await quiet.fill();
    served = result.ok();
  };
  asio::co_spawn(loop, wait(), asio::detached);
  run(loop, [&]() -> asio::awaitable<void> {
    quiet.send("hello");
    const std::string block(32 * 1024, 'x');
    while (!served && before < 10'000) {
      busy.send(block);
      const IoResult result = co_await busy.fill();
      EXPECT_TRUE(result.ok());
      InputBuffer& input = busy.stream->input();
      input.consume(input.view().size());
      ++before;
    }
  }());
  EXPECT_TRUE(served);
  EXPECT_LT(before, 100u);
}

TEST(Stream, AWaitEndsByDeadlineCloseAndCancellation) {
  asio::io_context loop;
  Pair pair(loop);
  run(loop, [&]() -> asio::awaitable<void> {
    const TimePoint began = Clock::now();
    const IoResult late = co_await pair.fill(50ms);
    EXPECT_EQ(late.kind, IoResult::Kind::timeout);
    EXPECT_GE(Clock::now() - began, 50ms);

    // The stream is as good as before.
    pair.send("x");
    const IoResult bytes = co_await pair.fill();
    EXPECT_TRUE(bytes.ok());

    asio::steady_timer closing(loop, 10ms);
    closing.async_wait([&](auto) { pair.stream->close(); });
    const IoResult closed = co_await pair.fill();
    EXPECT_EQ(closed.kind, IoResult::Kind::closed);
    EXPECT_EQ(pair.stream->fill_now().kind, IoResult::Kind::closed);
  }());

  Pair other(loop);
  asio::cancellation_signal cancel;
  bool cancelled = false;
  run(loop, [&]() -> asio::awaitable<void> {
    asio::co_spawn(loop, other.fill(),
                   asio::bind_cancellation_slot(
                       cancel.slot(), [&](std::exception_ptr, IoResult) { cancelled = true; }));
    co_await pause(loop, 10ms);
    EXPECT_FALSE(cancelled);
    cancel.emit(asio::cancellation_type::terminal);
    const bool ended = co_await eventually(loop, [&] { return cancelled; });
    EXPECT_TRUE(ended);
  }());
}

TEST(Stream, WaitsForRoomToWrite) {
  asio::io_context loop;
  Pair pair(loop);
  run(loop, [&]() -> asio::awaitable<void> {
    const std::string large(4 << 20, 'y');
    Gather parts;
    parts.add(large);
    EXPECT_TRUE(pair.stream->write_now(parts).would_block());
    std::thread reader([&] {
      std::string room(1 << 20, 0);
      for (std::size_t left = large.size(); left > 0;) {
        const ssize_t count = ::recv(pair.peer.get(), room.data(), room.size(), 0);
        ASSERT_GT(count, 0);
        left -= static_cast<std::size_t>(count);
      }
    });
    const IoResult written = co_await pair.stream->write_rest(parts, 5s);
    EXPECT_TRUE(written.ok());
    EXPECT_TRUE(parts.empty());
    reader.join();

    Gather more;
    more.add(large);
    EXPECT_TRUE(pair.stream->write_now(more).would_block());
    const IoResult late = co_await pair.stream->write_rest(more, 50ms);
    EXPECT_EQ(late.kind, IoResult::Kind::timeout);
  }());
}

struct CountingListener : Stream::PeerListener {
  void on_peer_gone(Stream&) override { ++gone; }
  int gone = 0;
};

TEST(Stream, TellsThatThePeerHasGoneBehindUnreadInput) {
  asio::io_context loop;
  for (const bool before : {false, true}) {
    Pair pair(loop);
    CountingListener listener;
    run(loop, [&]() -> asio::awaitable<void> {
      if (!before) pair.stream->listen(&listener);
      pair.send("unread");
      ::shutdown(pair.peer.get(), SHUT_WR);
      co_await pause(loop, 10ms);
      EXPECT_TRUE(pair.stream->peer_gone());
      if (before) pair.stream->listen(&listener);
      const bool told = co_await eventually(loop, [&] { return listener.gone == 1; });
      EXPECT_TRUE(told);
      const IoResult bytes = co_await pair.fill();
      EXPECT_TRUE(bytes.ok());
      EXPECT_EQ(listener.gone, 1);
    }());
  }
}

TEST(Stream, WhatWaitsIsDestroyedWithTheLoop) {
  const auto witness = std::make_shared<int>();
  {
    asio::io_context loop;
    // The coroutine owns the stream that it waits for.
    asio::co_spawn(
        loop,
        [](std::shared_ptr<int>, std::unique_ptr<Pair> pair) -> asio::awaitable<void> {
          co_await pair->fill(1h);
        }(witness, std::make_unique<Pair>(loop)),
        asio::detached);
    loop.run_for(10ms);
    EXPECT_EQ(witness.use_count(), 2);
  }
  EXPECT_EQ(witness.use_count(), 1);
}

}  // namespace
}  // namespace omni::http
