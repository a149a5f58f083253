// What the gateway's tests share: a whole I/O thread in one loop, with a real server in front, a
// control loop made of a list, and engines of the test's making.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <boost/asio/local/stream_protocol.hpp>
#include <boost/json.hpp>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "base/task_group.h"
#include "gateway/gateway.h"
#include "http/http_test_support.h"
#include "http/server.h"
#include "protocol/model_protocol.h"
#include "routing/admission.h"

namespace omni::gateway::test {

using namespace std::chrono_literals;
namespace json = boost::json;
using http::test::Answer;
using http::test::eventually;
using http::test::kTuple;
using http::test::pause;

// How soon an engine must know that its client has left. Sanitizers make all several times slower.
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr Duration kPromptly = 1s;
#else
inline constexpr Duration kPromptly = 100ms;
#endif

// Sends any bytes, and reads an answer whole or as it comes.
class Client {
 public:
  Client(asio::io_context& loop, const Endpoint& server) : socket_(loop) {
    const auto address = asio::ip::make_address(server.host);
    boost::system::error_code status;
    socket_.connect({address, server.port}, status);
    EXPECT_FALSE(status) << status.message();
  }

  asio::awaitable<void> send(std::string bytes) {
    const auto [status, count] = co_await asio::async_write(socket_, asio::buffer(bytes), kTuple);
    // A server that refuses early may close before it has read all.
    (void)status;
  }
  asio::awaitable<Answer> read(bool head_request = false) {
    http::test::beast::http::response_parser<http::test::beast::http::string_body> parser;
    parser.skip(head_request);
    auto buffer = asio::dynamic_buffer(received_);
    const auto [status, count] =
        co_await http::test::beast::http::async_read(socket_, buffer, parser, kTuple);
    Answer answer;
    if (status) co_return answer;
    answer.status = parser.get().result_int();
    answer.body = parser.get().body();
    for (const auto& field : parser.get()) {
      std::string name(field.name_string());
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      answer.headers[name] = std::string(field.value());
    }
    co_return answer;
  }
  // What comes until this text has come.
  asio::awaitable<std::string> read_until(std::string wanted) {
    std::string bytes;
    while (bytes.find(wanted) == std::string::npos) {
      char piece[4096];
      const auto [status, count] = co_await socket_.async_read_some(asio::buffer(piece), kTuple);
      if (status) {
        ADD_FAILURE() << "the connection ended before " << wanted << ", after " << bytes;
        break;
      }
      bytes.append(piece, count);
    }
    co_return bytes;
  }
  void finish_sending() { socket_.shutdown(asio::socket_base::shutdown_send); }
  void close() { socket_.close(); }

 private:
  asio::ip::tcp::socket socket_;
  std::string received_;
};

// Keeps what it is told; a test answers by hand, or sets what is done with each ticket.
class FakeControl : public ControlPort {
 public:
  void post(ControlMessage message) override {
    messages.push_back(message);
    if (auto* admit = std::get_if<Admit>(&message); admit && on_admit) on_admit(*admit);
  }
  template <typename T>
  std::size_t count() const {
    return std::ranges::count_if(messages,
                                 [](const auto& m) { return std::holds_alternative<T>(m); });
  }
  template <typename T>
  const T& last() const {
    for (auto it = messages.rbegin(); it != messages.rend(); ++it) {
      if (const T* found = std::get_if<T>(&*it)) return *found;
    }
    std::abort();
  }

  std::vector<ControlMessage> messages;
  std::function<void(const Admit&)> on_admit;
};

// An HTTP engine on a Unix socket. It keeps the heads and bodies that came.
class FakeEngine {
 public:
  struct Seen {
    http::RequestHead head;
    std::string body;
  };
  using Answerer = std::function<asio::awaitable<void>(http::Exchange&)>;

  FakeEngine(asio::io_context& loop, const std::filesystem::path& socket, Answerer answer)
      : answer_(std::move(answer)),
        server_(std::make_unique<http::Server>(
            loop, http::ServerOptions{},
            [this](http::Exchange& exchange) { return serve(exchange); })) {
    auto listener = http::listen_on(Endpoint::unix_at(socket.string()));
    EXPECT_TRUE(listener.ok()) << (listener.ok() ? "" : listener.error().message);
    endpoint = listener->endpoint;
    server_->serve(std::move(*listener));
  }

  std::size_t active() const { return server_->active_exchanges(); }
  // Cuts its connections; the loop must run before it is destroyed.
  void stop() { server_.reset(); }

  Endpoint endpoint;
  std::vector<Seen> seen;

 private:
  asio::awaitable<void> serve(http::Exchange& exchange) {
    auto body = co_await exchange.read_all(64_MiB);
    seen.push_back({exchange.request(), body.ok() ? *body : body.error().message});
    co_await answer_(exchange);
  }

  Answerer answer_;
  std::unique_ptr<http::Server> server_;
};

inline asio::awaitable<void> reply(http::Exchange& exchange, int status, std::string type,
                                   std::string body) {
  http::ResponseHead head;
  head.status = status;
  head.headers.add("content-type", std::move(type));
  head.headers.add("connection", "keep-alive");
  auto sent = co_await exchange.respond(std::move(head), body);
  EXPECT_TRUE(sent.ok());
}

// Parts of an answer, to a client that may have left: that is the test's own doing.
inline asio::awaitable<void> say(http::Exchange& exchange, std::string text) {
  const auto sent = co_await exchange.write(text);
  (void)sent;
}
inline asio::awaitable<void> end(http::Exchange& exchange) {
  const auto sent = co_await exchange.finish();
  (void)sent;
}

// Starts an SSE answer; say() and end() follow.
inline asio::awaitable<void> begin_events(http::Exchange& exchange) {
  http::ResponseHead head;
  head.headers.add("content-type", "text/event-stream");
  auto sent = co_await exchange.start(std::move(head), true);
  EXPECT_TRUE(sent.ok());
}

// A Python instance's side of the model protocol: answers each request with the frames that the
// test makes.
class FakeRuntime {
 public:
  struct Call {
    std::uint64_t stream = 0;
    json::object request;
    std::string body;
    std::vector<std::string> files;  // their contents
  };
  // Frames to send; nothing: the connection is closed.
  using Answerer = std::function<std::optional<std::string>(const Call&)>;

  FakeRuntime(asio::io_context& loop, const std::filesystem::path& socket, Answerer answer)
      : endpoint(Endpoint::unix_at(socket.string())),
        answer_(std::move(answer)),
        acceptor_(loop, asio::local::stream_protocol::endpoint(socket.string())),
        tasks_(loop.get_executor()) {
    tasks_.spawn(accept());
  }
  // The loop must run before it is destroyed.
  void stop() { tasks_.cancel(); }

  static std::string response(std::uint64_t stream, json::object head) {
    head.emplace("status", 200);
    head.emplace("content_type", "");
    head.emplace("streaming", false);
    head.emplace("headers", json::object());
    return frame(protocol::FrameType::response, stream, json::serialize(head));
  }
  static std::string item(std::uint64_t stream, std::uint8_t kind, std::string_view data) {
    return frame(protocol::FrameType::data, stream, data, kind);
  }
  static std::string frame(protocol::FrameType type, std::uint64_t stream, std::string_view data,
                           std::uint8_t flags = 0) {
    return protocol::encode_frame(type, stream, data, flags);
  }
  static std::string end(std::uint64_t stream) {
    return frame(protocol::FrameType::end, stream, "");
  }

  Endpoint endpoint;
  std::vector<Call> calls;
  std::size_t cancels = 0;
  std::size_t connections = 0;

 private:
  using Socket = asio::local::stream_protocol::socket;

  asio::awaitable<void> accept() {
    for (;;) {
      auto [status, socket] = co_await acceptor_.async_accept(kTuple);
      if (status) co_return;
      ++connections;
      tasks_.spawn(serve(std::move(socket)));
    }
  }

  // With the descriptors that come along.
  static ssize_t receive(int fd, std::span<std::byte> space, std::deque<Fd>& descriptors) {
    iovec part{space.data(), space.size()};
    alignas(cmsghdr) char control[256];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t count = ::recvmsg(fd, &message, MSG_DONTWAIT);
    if (count <= 0) return count;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
      for (std::size_t at = 0; CMSG_LEN(0) + at < c->cmsg_len; at += sizeof(int)) {
        int received = -1;
        std::memcpy(&received, CMSG_DATA(c) + at, sizeof(int));
        descriptors.emplace_back(received);
      }
    }
    return count;
  }

  static std::string content(const Fd& file) {
    std::string out(1 << 20, '\0');
    out.resize(static_cast<std::size_t>(::read(file.get(), out.data(), out.size())));
    return out;
  }

  asio::awaitable<void> serve(Socket socket) {
    protocol::FrameReader reader;
    std::deque<Fd> descriptors;
    std::map<std::uint64_t, Call> open;
    std::map<std::uint64_t, std::string> heads;
    std::string out = frame(protocol::FrameType::hello, 0, R"({"version":1})") +
                      frame(protocol::FrameType::ready, 0, R"({"concurrency":8})");
    for (;;) {
      if (!out.empty()) co_await asio::async_write(socket, asio::buffer(out), kTuple);
      out.clear();
      co_await socket.async_wait(Socket::wait_read, kTuple);
      const std::span<std::byte> space = reader.space();
      const ssize_t count = receive(socket.native_handle(), space, descriptors);
      if (count == 0 || (count < 0 && errno != EAGAIN)) co_return;
      reader.commit(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
      while (auto got = reader.next()) {
        const std::uint64_t stream = got->header.stream;
        Call& call = open[stream];
        call.stream = stream;
        switch (got->header.type) {
          case protocol::FrameType::request:
            heads[stream] += got->payload;
            break;
          case protocol::FrameType::data:
            call.body += got->payload;
            break;
          case protocol::FrameType::fd:
            call.files.push_back(content(descriptors.front()));
            descriptors.pop_front();
            break;
          case protocol::FrameType::cancel:
            ++cancels;
            out += frame(protocol::FrameType::end, stream, R"({"code":"cancelled","message":""})",
                         protocol::kFlagError);
            break;
          case protocol::FrameType::end: {
            call.request = json::parse(heads[stream]).as_object();
            calls.push_back(call);
            auto answer = answer_(call);
            if (!answer) co_return;
            out += *answer;
            break;
          }
          default:
            break;
        }
      }
    }
  }

  Answerer answer_;
  asio::local::stream_protocol::acceptor acceptor_;
  TaskGroup tasks_;
};

// One I/O thread of a daemon.
class Thread {
 public:
  Thread() {
    shared.config = &config;
    shared.metrics = &metrics;
    shared.spool = folder.path();
    shared.control_tick = Clock::now().time_since_epoch().count();
    gateway = std::make_unique<Gateway>(loop, 0, shared, admission);
    server = std::make_unique<http::Server>(
        loop, http::ServerOptions{},
        [this](http::Exchange& exchange) { return gateway->handle(exchange); });
    auto listener = http::listen_on(Endpoint::tcp_at("127.0.0.1", 0));
    EXPECT_TRUE(listener.ok());
    endpoint = listener->endpoint;
    server->serve(std::move(*listener));
  }
  ~Thread() {
    // What is cut ends before what it uses.
    server.reset();
    for (const auto& each : engines) each->stop();
    for (const auto& each : runtimes) each->stop();
    for (int i = 0; i < 3; ++i) {
      loop.restart();
      loop.poll();
    }
    gateway.reset();
    loop.restart();
    loop.run_for(50ms);
  }

  void run(asio::awaitable<void> body) { http::test::run(loop, std::move(body)); }
  Client connect() { return Client(loop, endpoint); }
  std::filesystem::path socket(std::string_view name) const { return folder.path() / name; }

  FakeEngine& engine(FakeEngine::Answerer answer) {
    const std::string name = "engine" + std::to_string(engines.size()) + ".sock";
    engines.push_back(std::make_unique<FakeEngine>(loop, socket(name), std::move(answer)));
    return *engines.back();
  }
  FakeRuntime& runtime(FakeRuntime::Answerer answer) {
    const std::string name = "runtime" + std::to_string(runtimes.size()) + ".sock";
    runtimes.push_back(std::make_unique<FakeRuntime>(loop, socket(name), std::move(answer)));
    return *runtimes.back();
  }

  ModelRoute model(std::string name, Task task, EngineKind kind = EngineKind::command) {
    ModelRoute route;
    route.id = ModelId{++last_id};
    route.name = std::move(name);
    route.task = task;
    route.engine = kind;
    route.created = 1'700'000'000;
    route.state = "resident";
    route.request_timeout = 10s;
    route.retry_after_seconds = 7;
    route.metrics.registry = &metrics;
    route.metrics.requests = &metrics.counter("requests", "", {{"model", route.name}});
    route.metrics.tokens_in = &metrics.counter("tokens_in", "", {{"model", route.name}});
    route.metrics.tokens_out = &metrics.counter("tokens_out", "", {{"model", route.name}});
    route.metrics.replays = &metrics.counter("replays", "", {{"model", route.name}});
    route.metrics.latency = &metrics.histogram("latency", "", {{"model", route.name}});
    route.metrics.queue_time = &metrics.histogram("queue_time", "", {{"model", route.name}});
    return route;
  }
  InstanceRoute instance(const ModelRoute& model, const Endpoint& at, std::uint32_t capacity = 4) {
    auto slot = std::make_shared<InstanceSlot>();
    slot->id = InstanceId{++last_id};
    slot->model = model.id;
    slot->endpoint = at;
    slot->capacity = capacity;
    const std::uint32_t generation = slot->word.open();
    return {std::move(slot), generation};
  }
  // Adds the model to the route table, or takes the place of its older form.
  void publish(ModelRoute route, std::vector<std::string> aliases = {}) {
    auto shown = std::make_shared<const ModelRoute>(std::move(route));
    routes.models[shown->name] = shown;
    for (std::string& alias : aliases) routes.models[alias] = shown;
    admission.publish(std::make_shared<const RouteTable>(routes));
  }
  // A model with one resident instance.
  void publish_resident(ModelRoute route, const Endpoint& at, std::uint32_t capacity = 4) {
    route.instances.push_back(instance(route, at, capacity));
    publish(std::move(route));
  }
  // Serves a ticket with a lease taken for it, as the control loop does.
  void serve(TicketId ticket, const InstanceRoute& at) {
    ASSERT_EQ(at.slot->word.try_acquire(at.generation, at.slot->capacity, true),
              LeaseWord::Acquire::ok);
    admission.serve({ticket, at});
  }

  std::uint64_t counted(std::string_view family, std::string_view model) {
    return metrics.counter(family, "", {{"model", std::string(model)}}).value();
  }

  asio::io_context loop{1};
  http::test::TempFolder folder;
  NodeConfig config;
  Metrics metrics;
  Shared shared;
  FakeControl control;
  Admission admission{loop.get_executor(), 0, control};
  RouteTable routes;
  std::unique_ptr<Gateway> gateway;
  std::unique_ptr<http::Server> server;
  Endpoint endpoint;
  std::vector<std::unique_ptr<FakeEngine>> engines;
  std::vector<std::unique_ptr<FakeRuntime>> runtimes;
  std::uint64_t last_id = 0;
};

// ---- requests as text

inline std::string get(std::string_view target, std::string_view headers = "") {
  return fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", target, headers);
}
inline std::string post(std::string_view target, std::string_view body,
                        std::string_view headers = "Content-Type: application/json\r\n") {
  return fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\n{}Content-Length: {}\r\n\r\n{}",
                     target, headers, body.size(), body);
}
inline json::object parse(const std::string& body) {
  boost::system::error_code failure;
  json::value value = json::parse(body, failure);
  EXPECT_TRUE(!failure && value.is_object()) << body;
  return value.is_object() ? value.as_object() : json::object();
}
inline json::object error_in(const std::string& body) {
  json::object object = parse(body);
  EXPECT_TRUE(object.contains("error")) << body;
  return object["error"].is_object() ? object["error"].as_object() : json::object();
}
inline std::string text(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value && value->is_string() ? std::string(std::string_view(value->get_string())) : "";
}

// Sends one request and reads its whole answer.
inline asio::awaitable<Answer> ask(Thread& thread, std::string request, bool head = false) {
  Client client = thread.connect();
  co_await client.send(std::move(request));
  Answer answer = co_await client.read(head);
  co_return answer;
}

}  // namespace omni::gateway::test
