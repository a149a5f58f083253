// The public HTTP API of one I/O thread: finds the model, takes a lease, talks to its engine,
// shapes the answer. The node makes one Gateway per I/O thread and gives its handle() to that
// thread's http::Server.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <functional>
#include <memory>

#include "base/bytes.h"
#include "base/metrics.h"
#include "config/node_config.h"
#include "http/client.h"
#include "http/server.h"
#include "routing/admission.h"

namespace omni::gateway {

namespace asio = boost::asio;

// Shared by all threads' gateways; outlives them.
struct Shared {
  std::atomic<const NodeConfig*> config = nullptr;  // a reload sets another; old ones stay valid
  std::filesystem::path spool;                      // <state>/spool
  Metrics* metrics = nullptr;
  std::atomic<std::int64_t> held_bytes{0};  // bodies in memory, against config->body_memory
  std::atomic<Clock::rep> control_tick{
      0};  // when the control loop last ticked: /readyz is red after 2 s
  std::atomic<bool> draining{false};
  // A stream that waits for its model gets a comment so often, so that no proxy cuts it; errors of
  // a shorter wait keep their status.
  Duration waiting_comment_interval = std::chrono::seconds(5);
  // Everything under /admin, for exchanges of the admin socket; others get not_found.
  std::function<asio::awaitable<void>(http::Exchange&)> admin;
};

class Gateway {
 public:
  Gateway(asio::io_context& loop, std::uint32_t thread, Shared& shared, Admission& admission);
  ~Gateway();

  asio::awaitable<void> handle(http::Exchange& exchange);
  // The answer to a request whose head is refused, or whose handler failed.
  http::Refusal refuse(const Error& error);
  // After the last exchange: ends what still looks after an engine.
  asio::awaitable<void> stop();
  // Before an instance is told to stop: drops idle connections and channels to it.
  void close_idle(const Endpoint& endpoint);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace omni::gateway
