// This thread's channels to Python instances: one for each, made on first use, shared by all its
// requests, dropped when dead or when its instance is told to stop.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <optional>
#include <unordered_map>

#include "base/endpoint.h"
#include "base/ids.h"
#include "engine/model_channel.h"
#include "routing/route_table.h"

namespace omni::gateway {

namespace asio = boost::asio;

class ChannelPool {
 public:
  explicit ChannelPool(asio::io_context& loop) : loop_(loop) {}

  // Requests that come while the first one connects share its outcome.
  asio::awaitable<Result<std::shared_ptr<engine::ModelChannel>>> get(InstanceRoute instance,
                                                                     Duration timeout);
  // Running calls keep their channel; it closes with the last of them.
  void drop(const Endpoint& endpoint);

  std::size_t size() const { return slots_.size(); }

 private:
  using Connected = Result<std::shared_ptr<engine::ModelChannel>>;
  struct Slot {
    Slot(asio::io_context& loop, Endpoint at) : endpoint(std::move(at)), settled(loop) {
      settled.expires_at(TimePoint::max());
    }
    bool usable() const { return !outcome || (outcome->ok() && outcome->value()->alive()); }

    Endpoint endpoint;
    asio::steady_timer settled;  // cancelled when the outcome is there
    std::optional<Connected> outcome;
  };

  struct Settle;

  void drop_dead();

  asio::io_context& loop_;
  // Shared with the requests that wait for a slot's outcome.
  std::unordered_map<InstanceId, std::shared_ptr<Slot>> slots_;
};

}  // namespace omni::gateway
