#include "gateway/channel_pool.h"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace omni::gateway {
namespace {

Error not_connected() { return {ErrorCode::cancelled, "the connection was given up"}; }

}  // namespace

// Settles a slot also when the coroutine that connects is cut, since others wait for it.
struct ChannelPool::Settle {
  std::shared_ptr<Slot> slot;
  ~Settle() {
    if (!slot->outcome) slot->outcome = not_connected();
    slot->settled.cancel();
  }
};

asio::awaitable<Result<std::shared_ptr<engine::ModelChannel>>> ChannelPool::get(
    InstanceRoute instance, Duration timeout) {
  const InstanceId id = instance.slot->id;
  auto known = slots_.find(id);
  if (known != slots_.end() && known->second->usable()) {
    auto slot = known->second;
    if (!slot->outcome) {
      boost::system::error_code status;
      auto token = asio::redirect_error(asio::use_awaitable, status);
      co_await slot->settled.async_wait(token);
    }
    co_return slot->outcome.value_or(not_connected());
  }

  drop_dead();
  auto slot = std::make_shared<Slot>(loop_, instance.slot->endpoint);
  slots_.insert_or_assign(id, slot);
  Settle settle{slot};
  Endpoint endpoint = slot->endpoint;
  auto connected = co_await engine::ModelChannel::connect(loop_, std::move(endpoint), timeout);
  slot->outcome = connected;
  co_return connected;
}

void ChannelPool::drop(const Endpoint& endpoint) {
  std::erase_if(slots_, [&](const auto& entry) {
    return entry.second->outcome && entry.second->endpoint == endpoint;
  });
}

void ChannelPool::drop_dead() {
  std::erase_if(slots_, [](const auto& entry) { return !entry.second->usable(); });
}

}  // namespace omni::gateway
