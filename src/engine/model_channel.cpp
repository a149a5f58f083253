#include "engine/model_channel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cassert>
#include <deque>
#include <unordered_map>

#include "base/bytes.h"
#include "engine/frame_writer.h"
#include "engine/model_stream.h"
#include "protocol/model_protocol.h"

namespace omni::engine {

namespace json = boost::json;
using namespace std::chrono_literals;
using protocol::FrameType;

namespace {

constexpr int kReadsPerTurn = 4;  // before other connections of the loop get theirs
constexpr std::size_t kMaxPongs = 16;
constexpr std::size_t kMaxCancelling = 1024;  // streams that a stuck runtime may leave behind
constexpr Duration kRetry = 10ms;
constexpr Duration kLongestTimeout = std::chrono::hours(24 * 365);

// The model gets its own file description: another offset than a replay's, and only to read.
Fd reopen_read_only(Fd fd) {
  const std::string path = fmt::format("/proc/self/fd/{}", fd.get());
  Fd own(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return own ? std::move(own) : std::move(fd);
}

// A request that runs, and the one coroutine that waits for it.
struct Exchange {
  Exchange(asio::io_context& loop, std::uint64_t id, ModelRequest request, std::string head)
      : stream(id, std::move(request), std::move(head)), changed(loop) {}

  ModelStream stream;
  asio::steady_timer changed;  // cancelled to wake the waiter
  TimePoint progress = Clock::now();
  TimePoint cancelled_at;
  bool queued = false;  // in the channel's queue of streams with something to send
};
using ExchangePtr = std::shared_ptr<Exchange>;  // of the call, the channel and the frames in flight

class Channel final : public ModelChannel, public std::enable_shared_from_this<Channel> {
 public:
  Channel(asio::io_context& loop, asio::local::stream_protocol::socket socket)
      : loop_(loop), socket_(std::move(socket)), opened_(loop), retry_(loop) {}

  asio::awaitable<Result<void>> open(TimePoint deadline);

  std::unique_ptr<ModelCall> call(ModelRequest request, Duration timeout) override;
  bool alive() const override { return ready_ && !broken_ && !write_broken_; }
  std::optional<Duration> oldest_cancel(TimePoint now) const override;
  void close() override {
    break_connection({ErrorCode::instance_crashed, "the channel to the instance was closed"},
                     false);
  }

  void cancel(const ExchangePtr& exchange, Error reason);
  // The stream may have something to send, or be over.
  void update(const ExchangePtr& exchange);

 private:
  void flush();
  // More frames for the writer, one of each stream in turn.
  void fill_writer();
  void wait_readable();
  void on_readable();
  Result<void> on_frame(const protocol::Frame& frame);
  Result<void> on_stream_frame(const protocol::Frame& frame);
  Result<void> on_hello(std::string_view payload);
  // The peer is gone, or is none: every call ends. With `violated`, calls whose answer has begun
  // say so; the others can be sent again elsewhere and are told that the instance crashed.
  void break_connection(Error reason, bool violated);

  asio::io_context& loop_;
  asio::local::stream_protocol::socket socket_;
  asio::steady_timer opened_;  // cancelled when READY has come or the connection is broken
  asio::steady_timer retry_;
  protocol::FrameReader reader_;
  bool greeted_ = false;
  bool ready_ = false;
  bool write_broken_ = false;
  bool write_waits_ = false;
  std::optional<Error> broken_;

  std::uint64_t last_id_ = 0;
  std::unordered_map<std::uint64_t, ExchangePtr> exchanges_;  // until END, cancelled ones too
  std::size_t cancelling_ = 0;
  std::deque<ExchangePtr> sending_;  // in turn, one frame each
  FrameWriter writer_;
};

class Call final : public ModelCall {
 public:
  Call(std::shared_ptr<Channel> channel, ExchangePtr exchange, Duration timeout)
      : channel_(std::move(channel)), exchange_(std::move(exchange)), timeout_(timeout) {}
  ~Call() override { cancel(); }

  bool answered() const override { return exchange_->stream.answered(); }

  asio::awaitable<Result<ResponseStart>> start() override {
    const ExchangePtr exchange = exchange_;  // this call may be destroyed while it waits
    const ModelStream& stream = exchange->stream;
    const auto arrived = [&stream] { return stream.response().has_value(); };
    co_await wait(channel_, exchange, timeout_, arrived);
    if (stream.response() && !stream.cancelled()) co_return *stream.response();
    co_return *stream.failure();
  }

  asio::awaitable<Result<std::optional<Item>>> next() override {
    const std::shared_ptr<Channel> channel = channel_;
    const ExchangePtr exchange = exchange_;
    ModelStream& stream = exchange->stream;
    if (!stream.has_item() && !stream.ended()) {
      stream.set_hungry(true);
      channel->update(exchange);
      const auto arrived = [&stream] { return stream.has_item(); };
      co_await wait(channel, exchange, timeout_, arrived);
      stream.set_hungry(false);
    }
    if (stream.has_item()) {
      std::optional<Item> item = stream.take_item();
      channel->update(exchange);
      co_return item;
    }
    if (stream.failure()) co_return *stream.failure();
    co_return std::nullopt;
  }

  const json::object& trailer() const override { return exchange_->stream.trailer(); }
  std::string_view error_param() const override { return exchange_->stream.error_param(); }
  void cancel() override {
    channel_->cancel(exchange_, {ErrorCode::cancelled, "the request was cancelled"});
  }

 private:
  // Until the predicate holds, the stream is over or nothing came for `timeout`.
  template <typename Predicate>
  static asio::awaitable<void> wait(std::shared_ptr<Channel> channel, ExchangePtr exchange,
                                    Duration timeout, Predicate arrived) {
    const TimePoint begin = Clock::now();
    while (!arrived() && !exchange->stream.ended() && !exchange->stream.failure()) {
      // A runtime that waited for us to take items was not idle: its time starts anew.
      const TimePoint deadline = std::max(begin, exchange->progress) + timeout;
      if (Clock::now() >= deadline) {
        channel->cancel(exchange,
                        {ErrorCode::engine_timeout,
                         fmt::format("the handler gave nothing for {}", to_string(timeout))});
        co_return;
      }
      exchange->changed.expires_at(deadline);
      boost::system::error_code status;
      auto token = asio::redirect_error(asio::use_awaitable, status);
      co_await exchange->changed.async_wait(token);
    }
  }

  std::shared_ptr<Channel> channel_;
  ExchangePtr exchange_;
  Duration timeout_;
};

asio::awaitable<Result<void>> Channel::open(TimePoint deadline) {
  const json::object hello{{"version", protocol::kModelProtocolVersion}, {"role", "data"}};
  writer_.push(protocol::encode_frame(FrameType::hello, 0, json::serialize(hello)));
  flush();
  wait_readable();
  while (!ready_ && !broken_) {
    if (Clock::now() >= deadline) {
      break_connection({ErrorCode::engine_timeout, "the runtime was not ready in time"}, false);
      break;
    }
    opened_.expires_at(deadline);
    boost::system::error_code status;
    auto token = asio::redirect_error(asio::use_awaitable, status);
    co_await opened_.async_wait(token);
  }
  if (broken_) co_return *broken_;
  co_return Result<void>();
}

std::unique_ptr<ModelCall> Channel::call(ModelRequest request, Duration timeout) {
  timeout = std::min(timeout, kLongestTimeout);
  std::string head = ModelStream::encode_head(request, timeout);
  const bool too_large =
      head.size() > protocol::kMaxRequest || request.body.size() > protocol::kMaxRequest;
  if (too_large) {
    request = {};
    head.clear();
  }
  for (FilePart& part : request.files) part.content = reopen_read_only(std::move(part.content));
  // An id is taken only by a request that is sent: the runtime sees ascending ones.
  const std::uint64_t id = last_id_ + 1;
  auto exchange = std::make_shared<Exchange>(loop_, id, std::move(request), std::move(head));
  auto call = std::make_unique<Call>(shared_from_this(), exchange, timeout);
  if (too_large) {
    exchange->stream.fail(
        {ErrorCode::body_too_large, fmt::format("the request is over the {} that a handler can get",
                                                to_string(Bytes(protocol::kMaxRequest)))});
  } else if (broken_ || write_broken_) {
    exchange->stream.fail({ErrorCode::instance_crashed,
                           broken_ ? broken_->message : "the instance closed its connection"});
  } else {
    last_id_ = id;
    exchanges_.emplace(id, exchange);
    update(exchange);
  }
  return call;
}

std::optional<Duration> Channel::oldest_cancel(TimePoint now) const {
  std::optional<Duration> oldest;
  if (cancelling_ == 0) return oldest;
  for (const auto& [id, exchange] : exchanges_) {
    if (!exchange->stream.cancelling()) continue;
    oldest = std::max(oldest.value_or(Duration::zero()), now - exchange->cancelled_at);
  }
  return oldest;
}

void Channel::cancel(const ExchangePtr& exchange, Error reason) {
  ModelStream& stream = exchange->stream;
  if (stream.ended() || stream.cancelling()) return;
  stream.cancel(std::move(reason));
  if (stream.cancelling()) {
    exchange->cancelled_at = Clock::now();
    ++cancelling_;
  }
  exchange->changed.cancel();
  update(exchange);
  if (cancelling_ > kMaxCancelling) {
    break_connection(
        {ErrorCode::engine_protocol,
         fmt::format("the runtime left {} cancelled requests without END", cancelling_)},
        true);
  }
}

void Channel::update(const ExchangePtr& exchange) {
  if (broken_) return;
  const ModelStream& stream = exchange->stream;
  if (stream.ended()) {
    exchanges_.erase(stream.id());
  } else if (stream.has_frame() && !exchange->queued) {
    exchange->queued = true;
    sending_.push_back(exchange);
    flush();
  }
}

void Channel::fill_writer() {
  while (!sending_.empty() && !writer_.full()) {
    ExchangePtr exchange = std::move(sending_.front());
    sending_.pop_front();
    exchange->queued = false;
    ModelStream& stream = exchange->stream;
    if (!stream.has_frame()) continue;
    const OutgoingFrame frame = stream.next_frame();
    writer_.push(frame, std::shared_ptr<ModelStream>(exchange, &stream));
    if (stream.has_frame()) {
      exchange->queued = true;
      sending_.push_back(std::move(exchange));
    }
  }
}

void Channel::flush() {
  using Outcome = FrameWriter::Outcome;
  if (broken_ || write_broken_ || write_waits_) return;
  Outcome outcome = Outcome::done;
  do {
    fill_writer();
    outcome = writer_.write(socket_.native_handle());
  } while (outcome == Outcome::done && !sending_.empty());
  const auto again = [weak = weak_from_this()](boost::system::error_code) {
    const auto self = weak.lock();
    if (!self) return;
    self->write_waits_ = false;
    self->flush();
  };
  switch (outcome) {
    case Outcome::done:
      return;
    case Outcome::blocked:
      write_waits_ = true;
      socket_.async_wait(asio::socket_base::wait_write, again);
      return;
    case Outcome::shortage:
      write_waits_ = true;
      retry_.expires_after(kRetry);
      retry_.async_wait(again);
      return;
    case Outcome::broken:
      // Answers that were sent before the end are still to be read; the read side sees the end.
      write_broken_ = true;
      return;
  }
}

void Channel::wait_readable() {
  socket_.async_wait(asio::socket_base::wait_read,
                     [weak = weak_from_this()](boost::system::error_code status) {
                       const auto self = weak.lock();
                       if (self && !status && !self->broken_) self->on_readable();
                     });
}

void Channel::on_readable() {
  for (int turn = 0; turn < kReadsPerTurn; ++turn) {
    const std::span<std::byte> space = reader_.space();
    const ssize_t count = ::recv(socket_.native_handle(), space.data(), space.size(), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count <= 0) {
      break_connection({ErrorCode::instance_crashed, "the instance closed its connection"}, false);
      return;
    }
    reader_.commit(static_cast<std::size_t>(count));
    while (const auto frame = reader_.next()) {
      if (auto handled = on_frame(*frame); !handled) {
        break_connection(std::move(handled).error(), true);
        return;
      }
    }
    if (reader_.broken()) {
      break_connection({ErrorCode::engine_protocol, "the runtime sent what is not a frame"}, true);
      return;
    }
    if (static_cast<std::size_t>(count) < space.size()) break;
  }
  wait_readable();
}

Result<void> Channel::on_frame(const protocol::Frame& frame) {
  const auto& [header, payload] = frame;
  if (!greeted_ && header.type != FrameType::hello) {
    return Error{ErrorCode::engine_protocol, "the runtime's first frame is not HELLO"};
  }
  switch (header.type) {
    case FrameType::hello:
      return on_hello(payload);
    case FrameType::ready:
      ready_ = true;
      opened_.cancel();
      return {};
    case FrameType::ping: {
      if (writer_.own_frames() >= kMaxPongs) {
        return Error{ErrorCode::engine_protocol, "the runtime sent PINGs and read no PONG"};
      }
      writer_.push(protocol::encode_frame(FrameType::pong, 0, payload));
      flush();
      return {};
    }
    case FrameType::pong:
      return {};
    case FrameType::response:
    case FrameType::data:
    case FrameType::trailer:
    case FrameType::end:
    case FrameType::credit:
      return on_stream_frame(frame);
    default:
      return Error{ErrorCode::engine_protocol, fmt::format("frame type {} is the daemon's to send",
                                                           static_cast<unsigned>(header.type))};
  }
}

Result<void> Channel::on_stream_frame(const protocol::Frame& frame) {
  const auto found = exchanges_.find(frame.header.stream);
  if (found == exchanges_.end()) {
    const bool late_credit =
        frame.header.type == FrameType::credit && frame.header.stream <= last_id_;
    if (late_credit) return {};
    return Error{ErrorCode::engine_protocol, "the runtime answered a request that is not open"};
  }
  const ExchangePtr exchange = found->second;
  const bool was_cancelling = exchange->stream.cancelling();
  CHECK(exchange->stream.on_frame(frame));
  exchange->progress = Clock::now();
  if (was_cancelling && !exchange->stream.cancelling()) --cancelling_;
  exchange->changed.cancel();
  update(exchange);
  return {};
}

Result<void> Channel::on_hello(std::string_view payload) {
  const Error wrong{ErrorCode::engine_protocol, "the runtime's HELLO is not one"};
  boost::system::error_code status;
  const json::value value = json::parse(payload, status);
  if (greeted_ || status || !value.is_object()) return wrong;
  const json::value* version = value.get_object().if_contains("version");
  if (version == nullptr || !version->is_int64()) return wrong;
  const std::int64_t number = version->get_int64();
  if (number > protocol::kModelProtocolVersion || number + 1 < protocol::kModelProtocolVersion ||
      number < 1) {
    return Error{ErrorCode::engine_protocol,
                 fmt::format("the runtime speaks version {} of the model protocol, omni {}", number,
                             protocol::kModelProtocolVersion)};
  }
  greeted_ = true;
  return {};
}

void Channel::break_connection(Error reason, bool violated) {
  if (broken_) return;
  if (violated && ready_)
    spdlog::warn("model protocol: {}; the connection is closed", reason.message);
  broken_ = reason;
  boost::system::error_code ignored;
  socket_.close(ignored);
  retry_.cancel();
  opened_.cancel();
  const auto exchanges = std::exchange(exchanges_, {});
  sending_.clear();
  cancelling_ = 0;
  for (const auto& [id, exchange] : exchanges) {
    ModelStream& stream = exchange->stream;
    const bool repeatable = !violated || !stream.answered();
    stream.fail({repeatable ? ErrorCode::instance_crashed : reason.code, reason.message});
    exchange->changed.cancel();
  }
}

}  // namespace

asio::awaitable<Result<std::shared_ptr<ModelChannel>>> ModelChannel::connect(asio::io_context& loop,
                                                                             Endpoint endpoint,
                                                                             Duration timeout) {
  using Socket = asio::local::stream_protocol::socket;
  sockaddr_un limits{};
  if (endpoint.kind != Endpoint::Kind::unix_socket ||
      endpoint.path.size() >= sizeof(limits.sun_path)) {
    co_return Error{ErrorCode::internal,
                    fmt::format("{} is no address of a model socket", to_string(endpoint))};
  }
  const TimePoint deadline = Clock::now() + std::min(timeout, kLongestTimeout);
  const asio::local::stream_protocol::endpoint address(endpoint.path);
  boost::system::error_code status;
  Socket socket(loop);
  for (;;) {
    // A connect of a Unix socket is done at once, refused, or finds the backlog full.
    socket = Socket(loop);
    socket.open({}, status);
    if (!status) socket.non_blocking(true, status);
    if (!status) socket.connect(address, status);
    const bool busy = status == asio::error::no_buffer_space || status == asio::error::try_again ||
                      status == asio::error::would_block;
    if (!busy || Clock::now() >= deadline) break;
    asio::steady_timer pause(loop, kRetry);
    boost::system::error_code ignored;
    auto token = asio::redirect_error(asio::use_awaitable, ignored);
    co_await pause.async_wait(token);
  }
  if (status) {
    co_return Error{ErrorCode::instance_crashed,
                    fmt::format("cannot connect to {}: {}", endpoint.path, status.message())};
  }
  auto channel = std::make_shared<Channel>(loop, std::move(socket));
  CO_CHECK(co_await channel->open(deadline));
  co_return std::shared_ptr<ModelChannel>(std::move(channel));
}

}  // namespace omni::engine
