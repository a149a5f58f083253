#include "node/io_thread.h"

#include <fmt/format.h>
#include <pthread.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace omni::node {

namespace {

http::ServerOptions with_refusals(http::ServerOptions options, gateway::Gateway& gateway) {
  options.refuse = [&gateway](const Error& error) { return gateway.refuse(error); };
  return options;
}

}  // namespace

IoThread::IoThread(std::uint32_t index, gateway::Shared& shared, ControlPort& control,
                   http::ServerOptions options)
    : guard_(loop_.get_executor()),
      admission_(loop_.get_executor(), index, control),
      gateway_(loop_, index, shared, admission_),
      server_(loop_, with_refusals(std::move(options), gateway_),
              [this](http::Exchange& exchange) { return gateway_.handle(exchange); }) {}

IoThread::~IoThread() { join(); }

void IoThread::run(std::vector<http::Listener> listeners) {
  for (http::Listener& listener : listeners) server_.serve(std::move(listener));
  thread_ = std::thread([this] { loop_.run(); });
  ::pthread_setname_np(thread_.native_handle(), "omni-io");
}

void IoThread::drain() {
  asio::post(loop_, [this] { server_.drain(); });
}

asio::awaitable<void> IoThread::stop(TimePoint deadline) {
  auto stop_all = [](IoThread& thread, TimePoint until) -> asio::awaitable<void> {
    co_await thread.server_.stop(until);
    co_await thread.gateway_.stop();
  };
  co_await asio::co_spawn(loop_, stop_all(*this, deadline), asio::use_awaitable);
}

asio::awaitable<void> IoThread::close_idle(Endpoint endpoint) {
  auto close = [](IoThread& thread, Endpoint at) -> asio::awaitable<void> {
    thread.gateway_.close_idle(at);
    co_return;
  };
  co_await asio::co_spawn(loop_, close(*this, std::move(endpoint)), asio::use_awaitable);
}

void IoThread::join() {
  guard_.reset();
  loop_.stop();
  if (thread_.joinable()) thread_.join();
}

}  // namespace omni::node
