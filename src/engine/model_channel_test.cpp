// The channel against a peer that does what a runtime must not.
#include "engine/model_channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "engine/test_support.h"
#include "protocol/model_protocol.h"

namespace omni::engine {
namespace {

using namespace std::chrono_literals;
using protocol::encode_frame;
using protocol::FrameType;
using Socket = asio::local::stream_protocol::socket;

const std::string kHello = encode_frame(FrameType::hello, 0, R"({"version":1})");
const std::string kReady = encode_frame(FrameType::ready, 0, R"({"concurrency":1})");

struct Received {
  protocol::FrameHeader header;
  std::string payload;
};

class HostilePeer : public testing::Test {
 protected:
  HostilePeer() : acceptor_(loop_), peer_(loop_) {
    const std::string path = (folder_.path() / "model.sock").string();
    acceptor_ = asio::local::stream_protocol::acceptor(loop_, {path});
    endpoint_ = Endpoint::unix_at(path);
  }

  // A channel to a peer that has said HELLO and READY.
  asio::awaitable<std::shared_ptr<ModelChannel>> open() {
    auto channel = co_await open_with(kHello + kReady);
    EXPECT_TRUE(channel.ok()) << channel.error().message;
    co_return channel.ok() ? *channel : nullptr;
  }

  asio::awaitable<Result<std::shared_ptr<ModelChannel>>> open_with(std::string greeting,
                                                                   Duration timeout = 20s) {
    // The backlog takes the connection and the socket's buffer the greeting before anyone reads.
    asio::co_spawn(loop_, accept_and_send(std::move(greeting)), asio::detached);
    co_return co_await ModelChannel::connect(loop_, endpoint_, timeout);
  }

  asio::awaitable<void> accept_and_send(std::string bytes) {
    peer_ = co_await acceptor_.async_accept(asio::use_awaitable);
    co_await send(std::move(bytes));
  }

  asio::awaitable<void> send(std::string bytes) {
    boost::system::error_code status;
    auto buffer = asio::buffer(bytes);
    auto token = asio::redirect_error(asio::use_awaitable, status);
    co_await asio::async_write(peer_, buffer, token);
  }

  asio::awaitable<Received> read_frame() {
    std::array<std::byte, protocol::kFrameHeaderSize> head;
    auto head_buffer = asio::buffer(head);
    co_await asio::async_read(peer_, head_buffer, asio::use_awaitable);
    Received received;
    received.header = protocol::decode_header(head).value();
    received.payload.resize(received.header.length);
    auto buffer = asio::buffer(received.payload);
    co_await asio::async_read(peer_, buffer, asio::use_awaitable);
    co_return received;
  }

  asio::awaitable<Received> read_until(FrameType type) {
    for (;;) {
      Received received = co_await read_frame();
      if (received.header.type == type) co_return received;
    }
  }

  asio::io_context loop_;
  TempFolder folder_;
  asio::local::stream_protocol::acceptor acceptor_;
  Socket peer_;
  Endpoint endpoint_;
};

TEST_F(HostilePeer, GreetingsThatAreNoneFailTheConnect) {
  const auto body = [&]() -> asio::awaitable<void> {
    for (const std::string& greeting :
         {std::string("HTTP/1.1 400 Bad Request\r\n\r\n"), kReady, kHello + kHello,
          encode_frame(FrameType::hello, 0, "[]"), encode_frame(FrameType::hello, 0, "{}"),
          encode_frame(FrameType::hello, 0, R"({"version":2})"),
          encode_frame(FrameType::hello, 0, R"({"version":0})"),
          kHello + encode_frame(FrameType::request, 1, "{}"),
          kHello + encode_frame(FrameType::end, 1, "")}) {
      auto channel = co_await open_with(greeting);
      EXPECT_FALSE(channel.ok()) << greeting;
      if (!channel) EXPECT_EQ(channel.error().code, ErrorCode::engine_protocol) << greeting;
    }
  };
  run(loop_, body());
}

TEST_F(HostilePeer, NoReadyIsATimeout) {
  const auto body = [&]() -> asio::awaitable<void> {
    auto channel = co_await open_with(kHello, 30ms);
    EXPECT_FALSE(channel.ok());
    EXPECT_EQ(channel.error().code, ErrorCode::engine_timeout);
  };
  run(loop_, body());
}

TEST_F(HostilePeer, NobodyListensIsACrash) {
  const auto body = [&]() -> asio::awaitable<void> {
    Endpoint nowhere = Endpoint::unix_at((folder_.path() / "none.sock").string());
    auto channel = co_await ModelChannel::connect(loop_, nowhere, 1s);
    EXPECT_EQ(channel.error().code, ErrorCode::instance_crashed);
    Endpoint long_path = Endpoint::unix_at(std::string(200, 'x'));
    auto other = co_await ModelChannel::connect(loop_, long_path, 1s);
    EXPECT_FALSE(other.ok());
  };
  run(loop_, body());
}

TEST_F(HostilePeer, GarbageFailsUnansweredCallsAsACrashAndBegunOnesAsABreach) {
  const auto body = [&]() -> asio::awaitable<void> {
    auto channel = co_await open();
    auto begun = channel->call(make_request(), 20s);
    auto fresh = channel->call(make_request(), 20s);
    co_await send(encode_frame(FrameType::response, 1, R"({"streaming":true})") +
                  encode_frame(FrameType::data, 1, "first", protocol::kKindText) +
                  std::string(64, '\xee'));
    const Answer first = co_await read_all(*begun);
    EXPECT_EQ(first.text(), "first") << "what came before the breach is delivered";
    EXPECT_EQ(first.error->code, ErrorCode::engine_protocol);
    const Answer second = co_await read_all(*fresh);
    EXPECT_EQ(second.error->code, ErrorCode::instance_crashed);
    EXPECT_FALSE(fresh->answered());
    EXPECT_FALSE(channel->alive());
  };
  run(loop_, body());
}

TEST_F(HostilePeer, FramesOfUnknownStreamsCloseTheConnection) {
  for (const std::string& frame :
       {encode_frame(FrameType::data, 77, "x"), encode_frame(FrameType::end, 0, ""),
        encode_frame(FrameType::credit, 2, std::string(4, '\1')),
        encode_frame(FrameType::cancel, 1, ""), encode_frame(FrameType::fd, 1, "")}) {
    const auto body = [&]() -> asio::awaitable<void> {
      auto channel = co_await open();
      auto call = channel->call(make_request(), 20s);
      co_await send(frame);
      const Answer answer = co_await read_all(*call);
      EXPECT_EQ(answer.error->code, ErrorCode::instance_crashed);
      EXPECT_FALSE(channel->alive());
    };
    run(loop_, body());
  }
}

TEST_F(HostilePeer, DataWithoutCreditClosesTheConnection) {
  const auto body = [&]() -> asio::awaitable<void> {
    auto channel = co_await open();
    auto call = channel->call(make_request(), 20s);
    std::string flood = encode_frame(FrameType::response, 1, R"({"streaming":true})");
    for (int i = 0; i < 10; ++i) {
      flood += encode_frame(FrameType::data, 1, std::string(protocol::kMaxPayload, 'x'));
    }
    co_await send(std::move(flood));
    auto start = co_await call->start();
    EXPECT_TRUE(start.ok());
    while (channel->alive()) {
      asio::steady_timer pause(loop_, 1ms);
      co_await pause.async_wait(asio::use_awaitable);
    }
    const Answer answer = co_await read_all(*call);
    EXPECT_EQ(answer.error->code, ErrorCode::engine_protocol);
    EXPECT_LE(answer.items.size(), 4u);
  };
  run(loop_, body());
}

TEST_F(HostilePeer, PingsAreAnsweredAndAFloodOfThemIsNot) {
  const auto body = [&]() -> asio::awaitable<void> {
    auto channel = co_await open();
    co_await send(encode_frame(FrameType::ping, 0, "are you there"));
    const Received pong = co_await read_until(FrameType::pong);
    EXPECT_EQ(pong.payload, "are you there");
    // It reads no PONG: what waits for it stays bounded, and the connection ends.
    const std::string ping = encode_frame(FrameType::ping, 0, std::string(60'000, 'x'));
    for (int i = 0; i < 100 && channel->alive(); ++i) co_await send(ping);
    EXPECT_FALSE(channel->alive());
  };
  run(loop_, body());
}

TEST_F(HostilePeer, RequestsToAPeerThatReadsNothingTimeOut) {
  const auto body = [&]() -> asio::awaitable<void> {
    auto channel = co_await open();
    ModelRequest request = make_request();
    request.raw = true;
    request.body = std::string(8'000'000, 'x');
    auto call = channel->call(std::move(request), 30ms);
    const Answer answer = co_await read_all(*call);
    EXPECT_EQ(answer.error->code, ErrorCode::engine_timeout);
  };
  run(loop_, body());
}

TEST_F(HostilePeer, AnswersSentBeforeTheEndAreDelivered) {
  const auto body = [&]() -> asio::awaitable<void> {
    auto channel = co_await open();
    auto answered = channel->call(make_request(), 20s);
    auto other = channel->call(make_request(), 20s);
    co_await send(encode_frame(FrameType::response, 1, R"({"streaming":false})") +
                  encode_frame(FrameType::data, 1, "{}") + encode_frame(FrameType::end, 1, ""));
    peer_.close();
    // The peer no longer reads: this write fails before the answer is read.
    auto late = channel->call(make_request(), 20s);
    const Answer first = co_await read_all(*answered);
    EXPECT_FALSE(first.error);
    EXPECT_EQ(first.text(), "{}");
    const Answer second = co_await read_all(*other);
    EXPECT_EQ(second.error->code, ErrorCode::instance_crashed);
    const Answer third = co_await read_all(*late);
    EXPECT_EQ(third.error->code, ErrorCode::instance_crashed);
  };
  run(loop_, body());
}

TEST_F(HostilePeer, LargeBodyDoesNotHoldUpASmallRequest) {
  const auto body = [&]() -> asio::awaitable<void> {
    auto channel = co_await open();
    boost::json::array input;
    for (int i = 0; i < 100'000; ++i) input.push_back("twenty-five characters ...");
    auto large = channel->call(make_request({{"input", std::move(input)}}), 20s);
    auto small = channel->call(make_request(), 20s);
    std::size_t before = 0;
    for (;;) {
      const Received frame = co_await read_frame();
      if (frame.header.stream == 2) break;
      before += frame.payload.size();
    }
    // What the socket and one batch hold, of 2.9 MB.
    EXPECT_LT(before, 1'000'000u);
    large->cancel();
    const Received cancel = co_await read_until(FrameType::cancel);
    EXPECT_EQ(cancel.header.stream, 1u);
  };
  run(loop_, body());
}

TEST_F(HostilePeer, CancelEndsAPendingWait) {
  const auto body = [&]() -> asio::awaitable<void> {
    auto channel = co_await open();
    auto call = channel->call(make_request(), 20s);
    asio::post(loop_, [&] { call->cancel(); });
    const Answer answer = co_await read_all(*call);
    EXPECT_EQ(answer.error->code, ErrorCode::cancelled);
    const Received cancel = co_await read_until(FrameType::cancel);
    EXPECT_EQ(cancel.header.stream, 1u);
    EXPECT_TRUE(channel->oldest_cancel(Clock::now()));
    EXPECT_TRUE(channel->alive()) << "one stuck request is no reason to drop the others";
  };
  run(loop_, body());
}

TEST_F(HostilePeer, CallMayBeDestroyedAfterAndBeforeTheChannel) {
  const auto body = [&]() -> asio::awaitable<void> {
    auto channel = co_await open();
    auto call = channel->call(make_request(), 20s);
    channel.reset();
    co_await send(encode_frame(FrameType::response, 1, R"({"streaming":false})") +
                  encode_frame(FrameType::data, 1, "{}") + encode_frame(FrameType::end, 1, ""));
    const Answer answer = co_await read_all(*call);
    EXPECT_FALSE(answer.error);
    call.reset();
    // The last owner is gone: the peer sees the end of the connection.
    boost::system::error_code status;
    for (std::array<char, 4096> sink; !status;) {
      auto buffer = asio::buffer(sink);
      auto token = asio::redirect_error(asio::use_awaitable, status);
      co_await peer_.async_read_some(buffer, token);
    }
    EXPECT_EQ(status, asio::error::eof);
  };
  run(loop_, body());
}

TEST_F(HostilePeer, CloseFailsWhatRuns) {
  const auto body = [&]() -> asio::awaitable<void> {
    auto channel = co_await open();
    auto call = channel->call(make_request(), 20s);
    channel->close();
    const Answer answer = co_await read_all(*call);
    EXPECT_EQ(answer.error->code, ErrorCode::instance_crashed);
    EXPECT_FALSE(channel->alive());
  };
  run(loop_, body());
}

TEST_F(HostilePeer, TooLargeARequestIsRefusedBeforeItIsSent) {
  const auto body = [&]() -> asio::awaitable<void> {
    auto channel = co_await open();
    ModelRequest request = make_request();
    request.raw = true;
    request.body.resize(protocol::kMaxRequest + 1);
    auto call = channel->call(std::move(request), 20s);
    const Answer answer = co_await read_all(*call);
    EXPECT_EQ(answer.error->code, ErrorCode::body_too_large);
    auto next = channel->call(make_request(), 20s);
    const Received frame = co_await read_until(FrameType::request);
    EXPECT_EQ(frame.header.stream, 1u);
  };
  run(loop_, body());
}

}  // namespace
}  // namespace omni::engine
