#include "http/server.h"

#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/posix/basic_stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <system_error>

#include "http/connection.h"

namespace omni::http {
namespace {

// Out of descriptors, or at the connection cap: pausing leaves newcomers in the kernel's queue,
// where trying again at once would spin.
constexpr Duration kAcceptPause = std::chrono::milliseconds(50);
constexpr Duration kAcceptLogInterval = std::chrono::seconds(10);
// Accepted in one go, before connections that wait get their turn.
constexpr int kAcceptBatch = 64;
// After the deadline of stop(): for handlers to take their cancellation.
constexpr Duration kCutGrace = std::chrono::seconds(5);

// One listening socket of a server.
class Acceptor {
 public:
  Acceptor(std::shared_ptr<ServerContext> server, Listener listener)
      : server_(std::move(server)),
        endpoint_(std::move(listener.endpoint)),
        family_(endpoint_.kind == Endpoint::Kind::unix_socket ? AF_UNIX : AF_INET),
        socket_(server_->loop, listener.socket.release()),
        pause_(server_->loop) {}

  void close() {
    boost::system::error_code ignored;
    socket_.close(ignored);
    pause_.cancel();
  }

  asio::awaitable<void> run() {
    while (socket_.is_open()) {
      constexpr auto token = asio::as_tuple(asio::use_awaitable);
      const auto [status] = co_await socket_.async_wait(socket_.wait_read, token);
      if (status) co_return;
      if (accept_batch()) continue;
      pause_.expires_after(kAcceptPause);
      co_await pause_.async_wait(token);
    }
  }

 private:
  // False when accepting should pause.
  bool accept_batch() {
    for (int i = 0; i < kAcceptBatch; ++i) {
      if (server_->connections >= server_->options.max_connections && !shed_idle()) {
        return complain("max_connections are open");
      }
      Fd socket(::accept4(socket_.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (socket) {
        Connection::accept(server_, std::move(socket), family_);
        continue;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
      const int error = errno;
      if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
        shed_idle();
        return complain(std::generic_category().message(error));
      }
      // Anything else is about the connection that could not be made (accept(2), "Error
      // handling"): the next may be well.
      if (error == EBADF || error == EINVAL || error == ENOTSOCK) {
        return complain(std::generic_category().message(error));
      }
    }
    return true;
  }

  // The connection that has waited longest for a next request makes room.
  bool shed_idle() {
    if (server_->idle.empty()) return false;
    Connection& oldest = server_->idle.front();
    server_->idle.pop_front();
    oldest.shed();
    return true;
  }

  bool complain(const std::string& reason) {
    const TimePoint now = Clock::now();
    if (now - complained_ >= kAcceptLogInterval) {
      complained_ = now;
      spdlog::warn("{}: new connections wait: {}", to_string(endpoint_), reason);
    }
    return false;
  }

  std::shared_ptr<ServerContext> server_;  // shared with the server and its connections
  Endpoint endpoint_;
  int family_;
  asio::posix::basic_stream_descriptor<asio::io_context::executor_type> socket_;
  asio::steady_timer pause_;
  TimePoint complained_ = Clock::now() - kAcceptLogInterval;
};

}  // namespace

struct Server::Impl {
  Impl(asio::io_context& loop, ServerOptions options, Handler handler)
      : context(std::make_shared<ServerContext>(loop, std::move(options), std::move(handler))) {}

  void stop_accepting() {
    for (const auto& acceptor : acceptors) acceptor->close();
    acceptors.clear();
  }

  void cut() {
    stop_accepting();
    context->draining = true;
    for (auto it = context->all.begin(); it != context->all.end();) (it++)->cut();
  }

  // Until no connection is left.
  asio::awaitable<bool> wait_until(TimePoint deadline) {
    while (context->connections > 0 && Clock::now() < deadline) {
      context->ended.expires_at(deadline);
      constexpr auto token = asio::as_tuple(asio::use_awaitable);
      co_await context->ended.async_wait(token);
    }
    co_return context->connections == 0;
  }

  std::shared_ptr<ServerContext> context;            // shared with its connections
  std::vector<std::shared_ptr<Acceptor>> acceptors;  // shared with their coroutines
};

Server::Server(asio::io_context& loop, ServerOptions options, Handler handler)
    : impl_(std::make_shared<Impl>(loop, std::move(options), std::move(handler))) {}

Server::~Server() { impl_->cut(); }

void Server::serve(Listener listener) {
  auto acceptor = std::make_shared<Acceptor>(impl_->context, std::move(listener));
  impl_->acceptors.push_back(acceptor);
  asio::co_spawn(impl_->context->loop.get_executor(), acceptor->run(),
                 [acceptor](std::exception_ptr failure) {
                   if (failure) std::rethrow_exception(failure);
                 });
}

std::size_t Server::connections() const { return impl_->context->connections; }

std::size_t Server::active_exchanges() const { return impl_->context->exchanges; }

void Server::drain() {
  impl_->stop_accepting();
  impl_->context->draining = true;
  auto& idle = impl_->context->idle;
  for (auto it = idle.begin(); it != idle.end();) (it++)->close_idle();
}

asio::awaitable<void> Server::stop(TimePoint deadline) {
  const auto impl = impl_;
  drain();
  impl_->stop_accepting();
  bool ended = co_await impl->wait_until(deadline);
  if (ended) co_return;
  impl->cut();
  ended = co_await impl->wait_until(Clock::now() + kCutGrace);
  if (!ended) {
    spdlog::error("{} requests did not end when they were cancelled", impl->context->exchanges);
  }
}

}  // namespace omni::http
