// What belongs to one I/O thread, and what belongs to one request on it.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <memory>
#include <random>
#include <string>

#include "base/result.h"
#include "base/task_group.h"
#include "gateway/answer.h"
#include "gateway/channel_pool.h"
#include "gateway/gateway.h"
#include "gateway/json_body.h"
#include "gateway/router.h"
#include "http/client.h"
#include "http/server.h"
#include "routing/admission.h"

namespace omni::gateway {

// One thread's tools. Lives as long as its Gateway.
struct Services {
  Services(asio::io_context& io, Shared& across, Admission& leases);

  std::string new_request_id();
  std::string new_boundary();  // of a multipart body

  asio::io_context& loop;
  Shared& shared;
  Admission& admission;
  http::Client client;
  ChannelPool channels;
  JsonScanner json;
  TaskGroup tasks;  // what goes on after its request has been answered
  std::mt19937_64 random;
};

// Bytes of bodies in memory, counted against the daemon's one limit until released.
class HeldBytes {
 public:
  explicit HeldBytes(Shared& shared) : shared_(shared) {}
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;
  ~HeldBytes() { release(); }

  // overloaded, naming the limit.
  Result<void> hold(std::int64_t more);
  void release();

 private:
  Shared& shared_;
  std::int64_t held_ = 0;
};

struct Request {
  Request(Services& tools, http::Exchange& from, std::string id, std::string origin);

  const http::RequestHead& head() const { return exchange.request(); }
  const NodeConfig& config() const { return *services.shared.config.load(); }

  // Sets the model: model_not_found with the nearest name, or task_mismatch with the right
  // endpoint.
  Result<void> choose_model(std::string_view name);

  Services& services;
  http::Exchange& exchange;
  Answer answer;
  HeldBytes held;
  Route route;
  std::string key_name;                     // of the client's key; empty: it needs none
  std::string model_name;                   // as the client said it
  std::shared_ptr<const ModelRoute> model;  // kept over changes of the route table
  bool wants_events = false;                // the client reads SSE
  Duration queue_time{};
};

// Tells a coroutine that waits that its client has left.
class ClientWatch {
 public:
  ClientWatch(http::Exchange& exchange, std::function<void()> on_gone) : exchange_(exchange) {
    exchange_.on_client_gone(std::move(on_gone));
  }
  ClientWatch(const ClientWatch&) = delete;
  ClientWatch& operator=(const ClientWatch&) = delete;
  ~ClientWatch() { exchange_.on_client_gone({}); }

 private:
  http::Exchange& exchange_;
};

Error client_left();

// The client's X-Request-Id when it is fit for logs and headers, else empty.
std::string sane_request_id(std::string_view id);

}  // namespace omni::gateway
