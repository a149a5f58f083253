// One I/O thread: its event loop, its share of the listeners, its leases and its gateway.
// Everything in it runs on that thread; others post to loop().
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <thread>
#include <vector>

#include "gateway/gateway.h"
#include "http/server.h"
#include "routing/admission.h"

namespace omni::node {

namespace asio = boost::asio;

class IoThread {
 public:
  IoThread(std::uint32_t index, gateway::Shared& shared, ControlPort& control,
           http::ServerOptions options);
  ~IoThread();

  asio::io_context& loop() { return loop_; }
  Admission& admission() { return admission_; }
  gateway::Gateway& gateway() { return gateway_; }

  void run(std::vector<http::Listener> listeners);  // starts the thread
  void drain();                                     // posts: no new work
  // On the caller's executor; returns when no exchange is left or at the deadline, when the rest is
  // cut.
  asio::awaitable<void> stop(TimePoint deadline);
  asio::awaitable<void> close_idle(Endpoint endpoint);
  void join();

 private:
  asio::io_context loop_{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard_;
  Admission admission_;
  gateway::Gateway gateway_;
  http::Server server_;
  std::thread thread_;
};

}  // namespace omni::node
