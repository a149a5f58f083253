// The running daemon as a command sees it: its admin socket, which also serves the public API.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/json.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "http/client.h"

namespace omni::cli {

namespace asio = boost::asio;

// Of those places where a daemon may listen, the one where one does: `socket`, `root`, OMNI_SOCKET,
// the user's run folder, /run/omni. The first that is given is the only one; the last two are tried
// in order. Blocks for the time of a connect.
Result<std::string> find_daemon(const std::string& socket, const std::string& root);
// Connects and closes: whether anybody listens.
Result<void> probe_socket(const std::string& path);

struct Request {
  std::string method = "GET";
  std::string target;
  http::Headers headers;
  std::string body;
  Duration read_timeout = std::chrono::seconds(30);  // without a byte of the answer
};

// An answer whose body is still to be read. Destroying it closes the connection.
class Answer {
 public:
  Answer(std::unique_ptr<http::Call> call, http::ResponseHead head, std::string socket)
      : call_(std::move(call)), head_(std::move(head)), socket_(std::move(socket)) {}

  const http::ResponseHead& head() const { return head_; }
  // "text/event-stream", without parameters.
  std::string media_type() const;
  // Valid until the next call; empty at the end.
  asio::awaitable<Result<std::string_view>> read_some();
  asio::awaitable<Result<std::string>> read_all();

 private:
  std::unique_ptr<http::Call> call_;
  http::ResponseHead head_;
  std::string socket_;
};

class Daemon {
 public:
  // The client outlives it.
  Daemon(http::Client& client, std::string socket) : client_(client), socket_(std::move(socket)) {}

  const std::string& socket() const { return socket_; }
  // Sends, and reads the head. An answer of status 400 or more is its error.
  asio::awaitable<Result<Answer>> open(Request request);
  // A whole answer, which is a JSON object.
  asio::awaitable<Result<boost::json::object>> ask(Request request);

 private:
  http::Client& client_;
  std::string socket_;
};

// For one segment of a path.
std::string percent_encode(std::string_view text);

}  // namespace omni::cli
