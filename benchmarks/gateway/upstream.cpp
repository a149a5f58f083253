// The engine behind the proxies of the gateway benchmark: answers at once, so that what is measured
// is the way there. One thread.
//
//   bench_upstream [--socket PATH] [--port N]
//
// GET: 200. POST: 1 KiB of JSON; with "stream":true in its body, ten server-sent events, 5 ms
// apart, each written by itself.

#include <unistd.h>

#include <boost/asio.hpp>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

constexpr int kEvents = 10;
constexpr auto kEventGap = 5ms;
constexpr std::size_t kJsonBody = 1024;
constexpr std::size_t kMaxRequest = 1 << 20;

std::string json_answer() {
  std::string body = R"({"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"bench",)"
                     R"("choices":[{"index":0,"finish_reason":"stop","message":)"
                     R"({"role":"assistant","content":")";
  const std::string_view end =
      R"("}}],"usage":{"prompt_tokens":9,"completion_tokens":9,"total_tokens":18}})";
  body.append(kJsonBody - body.size() - end.size(), 'x');
  body += end;
  return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::string event_chunk() {
  const std::string event =
      R"(data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"bench",)"
      R"("choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]})"
      "\n\n";
  char size[20];
  std::snprintf(size, sizeof size, "%zx\r\n", event.size());
  return size + event + "\r\n";
}

const std::string kJsonAnswer = json_answer();
const std::string kEventChunk = event_chunk();
constexpr std::string_view kEmptyAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
// nginx holds a stream back unless it is told not to.
constexpr std::string_view kStreamHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Accel-Buffering: no\r\n"
    "Transfer-Encoding: chunked\r\n\r\n";
constexpr std::string_view kStreamEnd = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";

struct Request {
  std::size_t size = 0;  // head and body
  bool get = false;
  bool stream = false;
};

bool equal_ignoring_case(std::string_view left, std::string_view right) {
  return std::ranges::equal(left, right,
                            [](char a, char b) { return std::tolower(a) == std::tolower(b); });
}

std::size_t content_length(std::string_view head) {
  constexpr std::string_view kName = "content-length:";
  for (std::size_t at = head.find("\r\n"); at != head.npos; at = head.find("\r\n", at + 2)) {
    std::string_view line = head.substr(at + 2);
    if (!equal_ignoring_case(line.substr(0, kName.size()), kName)) continue;
    line.remove_prefix(line.find_first_of("0123456789"));
    std::size_t length = 0;
    std::from_chars(line.data(), line.data() + line.size(), length);
    return length;
  }
  return 0;
}

// The first request of the buffer, once it is there whole.
std::optional<Request> parse(std::string_view buffer) {
  const std::size_t end = buffer.find("\r\n\r\n");
  if (end == buffer.npos) return std::nullopt;
  const std::size_t size = end + 4 + content_length(buffer.substr(0, end + 2));
  if (buffer.size() < size) return std::nullopt;
  const std::string_view body = buffer.substr(end + 4, size - end - 4);
  return Request{size, buffer.starts_with("GET "), body.find(R"("stream":true)") != body.npos};
}

template <typename Socket>
asio::awaitable<void> stream_events(Socket& socket) {
  asio::steady_timer timer(socket.get_executor());
  co_await asio::async_write(socket, asio::buffer(kStreamHead), asio::use_awaitable);
  for (int sent = 0; sent < kEvents; ++sent) {
    timer.expires_after(kEventGap);
    co_await timer.async_wait(asio::use_awaitable);
    co_await asio::async_write(socket, asio::buffer(kEventChunk), asio::use_awaitable);
  }
  co_await asio::async_write(socket, asio::buffer(kStreamEnd), asio::use_awaitable);
}

template <typename Socket>
asio::awaitable<void> serve(Socket socket) {
  std::string buffer;
  std::array<char, 16384> chunk;
  while (buffer.size() < kMaxRequest) {
    const std::optional<Request> request = parse(buffer);
    if (!request) {
      const std::size_t count =
          co_await socket.async_read_some(asio::buffer(chunk), asio::use_awaitable);
      buffer.append(chunk.data(), count);
      continue;
    }
    buffer.erase(0, request->size);
    if (request->stream) {
      co_await stream_events(socket);
    } else {
      const std::string_view answer = request->get ? kEmptyAnswer : std::string_view(kJsonAnswer);
      co_await asio::async_write(socket, asio::buffer(answer), asio::use_awaitable);
    }
  }
}

template <typename Acceptor>
asio::awaitable<void> accept(Acceptor acceptor) {
  for (;;) {
    auto socket = co_await acceptor.async_accept(asio::use_awaitable);
    if constexpr (std::is_same_v<Acceptor, asio::ip::tcp::acceptor>) {
      socket.set_option(asio::ip::tcp::no_delay(true));
    }
    // A client that leaves ends its connection alone.
    asio::co_spawn(acceptor.get_executor(), serve(std::move(socket)), [](std::exception_ptr) {});
  }
}

}  // namespace

int main(int argc, char** argv) {
  asio::io_context loop(1);
  for (int index = 1; index + 1 < argc; index += 2) {
    const std::string_view flag = argv[index];
    const std::string value = argv[index + 1];
    if (flag == "--socket") {
      ::unlink(value.c_str());
      asio::local::stream_protocol::acceptor acceptor(
          loop, asio::local::stream_protocol::endpoint(value));
      asio::co_spawn(loop, accept(std::move(acceptor)), asio::detached);
    } else if (flag == "--port") {
      const auto port = static_cast<std::uint16_t>(std::stoi(value));
      asio::ip::tcp::acceptor acceptor(loop, {asio::ip::address_v4::loopback(), port});
      asio::co_spawn(loop, accept(std::move(acceptor)), asio::detached);
    } else {
      std::fprintf(stderr, "usage: bench_upstream [--socket PATH] [--port N]\n");
      return 64;
    }
  }
  loop.run();
  return 0;
}
