#include "cli/daemon.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/fd.h"
#include "config/node_config.h"
#include "http/error_body.h"

namespace omni::cli {
namespace {

constexpr std::size_t kAnswerLimit = 64 << 20;  // of an answer that is read whole

Error lost(const std::string& socket, const Error& error) {
  if (error.code == ErrorCode::cancelled || error.code == ErrorCode::engine_timeout) return error;
  return {ErrorCode::daemon_unreachable,
          fmt::format("lost the connection to the daemon at {}: {}", socket, error.message)};
}

}  // namespace

Result<void> probe_socket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Error{ErrorCode::usage, fmt::format("{} is longer than the {} bytes of a socket's path",
                                               path, sizeof address.sun_path - 1)};
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return errno_error("cannot make a socket");
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    return {};
  }
  const int failure = errno;
  Error error = errno_error(fmt::format("no daemon answers at {}", path), failure);
  if (error.code == ErrorCode::permission_denied) {
    error.message =
        fmt::format("{} is its owner's alone: call as the user who runs the daemon ({})", path,
                    std::generic_category().message(failure));
    return error;
  }
  error.code = ErrorCode::daemon_unreachable;
  return error;
}

Result<std::string> find_daemon(const std::string& socket, const std::string& root) {
  std::string named = socket;
  if (named.empty() && !root.empty()) {
    named = NodePaths::below(root).admin_socket();
  }
  if (const char* variable = std::getenv("OMNI_SOCKET"); named.empty() && variable != nullptr) {
    named = variable;
  }
  if (!named.empty()) {
    Result<void> found = probe_socket(named);
    if (found.ok()) return named;
    if (found.error().code == ErrorCode::daemon_unreachable) {
      found.error().message += ": start it with `omni serve`";
    }
    return std::move(found).error();
  }
  const std::string of_user = NodePaths::of_user().admin_socket();
  const std::string of_system = "/run/omni/admin.sock";
  for (const std::string& path : {of_user, of_system}) {
    Result<void> found = probe_socket(path);
    if (found.ok()) return path;
    if (found.error().code == ErrorCode::permission_denied) return std::move(found).error();
  }
  return Error{ErrorCode::daemon_unreachable,
               fmt::format("no daemon answers at {}{}: start one with `omni serve`, or name its "
                           "socket with --socket or its folder with --root",
                           of_user, of_user == of_system ? "" : " or " + of_system)};
}

std::string Answer::media_type() const {
  std::string_view type = head_.headers.get("Content-Type");
  type = type.substr(0, type.find(';'));
  return std::string(type.substr(0, type.find_last_not_of(' ') + 1));
}

asio::awaitable<Result<std::string_view>> Answer::read_some() {
  Result<std::string_view> data = co_await call_->read_some();
  if (!data.ok()) co_return lost(socket_, data.error());
  co_return data;
}

asio::awaitable<Result<std::string>> Answer::read_all() {
  std::string body;
  for (;;) {
    CO_TRY(const std::string_view data, co_await read_some());
    if (data.empty()) co_return body;
    body += data;
    if (body.size() > kAnswerLimit) {
      co_return Error{ErrorCode::body_too_large, "the answer is larger than 64 MiB"};
    }
  }
}

asio::awaitable<Result<Answer>> Daemon::open(Request request) {
  request.headers.set("Host", "localhost");
  request.headers.set("Connection", "close");
  request.headers.set("User-Agent", "omni/" OMNI_VERSION);
  if (request.method == "POST") {
    request.headers.set("Content-Length", std::to_string(request.body.size()));
  }
  const Endpoint endpoint = Endpoint::unix_at(socket_);
  const std::string head = http::encode_head(request.method, request.target, request.headers);
  std::unique_ptr<http::Call> call = client_.call(endpoint, {request.read_timeout});
  Result<void> sent = co_await call->send(head, request.body);
  if (!sent.ok() && call->progress() == http::Progress::nothing_sent) {
    co_return lost(socket_, sent.error());
  }
  // Also when sending broke off: a daemon that refuses a large body answers before its end.
  Result<http::ResponseHead> received = co_await call->read_head();
  if (!received.ok()) co_return lost(socket_, sent.ok() ? received.error() : sent.error());
  const int status = received->status;
  Answer answer(std::move(call), *std::move(received), socket_);
  if (status < 400) co_return Result<Answer>(std::move(answer));
  CO_TRY(const std::string body, co_await answer.read_all());
  co_return http::parse_error_body(status, body);
}

asio::awaitable<Result<boost::json::object>> Daemon::ask(Request request) {
  CO_TRY(Answer answer, co_await open(std::move(request)));
  CO_TRY(const std::string body, co_await answer.read_all());
  boost::system::error_code broken;
  boost::json::value document = boost::json::parse(body, broken);
  if (broken || !document.is_object()) {
    co_return Error{ErrorCode::engine_protocol, "the daemon's answer is not a JSON object"};
  }
  co_return std::move(document.get_object());
}

std::string percent_encode(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '-' || c == '_' || c == '.' || c == '~';
    if (plain) {
      encoded += c;
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

}  // namespace omni::cli
