#include "http/connection_pool.h"

namespace omni::http {

std::shared_ptr<ConnectionPool::Lane> ConnectionPool::lane(const Endpoint& endpoint) {
  auto& found = lanes_[endpoint];
  if (!found) found = std::make_shared<Lane>(endpoint);
  return found;
}

std::unique_ptr<Stream> ConnectionPool::take(Lane& lane) {
  while (!lane.idle.empty()) {
    auto stream = std::move(lane.idle.back().stream);
    lane.idle.pop_back();
    stream->listen(nullptr);
    // Nothing may come on an idle connection: an end or bytes (a 408) mean that the peer is done
    // with it.
    if (stream->is_drained()) return stream;
  }
  return nullptr;
}

void ConnectionPool::give(Lane& lane, std::unique_ptr<Stream> stream) {
  if (lane.retired || options_.idle_per_endpoint == 0) return;
  if (lane.idle.size() >= options_.idle_per_endpoint) lane.idle.erase(lane.idle.begin());
  const TimePoint now = Clock::now();
  stream->input().shrink();
  stream->listen(&lane);
  lane.idle.push_back({std::move(stream), now});
  if (!armed_) arm(now + options_.idle_timeout);
  armed_ = true;
}

void ConnectionPool::close(const Endpoint& endpoint) {
  const auto found = lanes_.find(endpoint);
  if (found == lanes_.end()) return;
  found->second->retired = true;
  found->second->idle.clear();
  lanes_.erase(found);
}

void ConnectionPool::on_deadline() {
  const TimePoint now = Clock::now();
  TimePoint next = TimePoint::max();
  for (auto it = lanes_.begin(); it != lanes_.end();) {
    auto& idle = it->second->idle;
    std::erase_if(idle,
                  [&](const Lane::Idle& one) { return one.since + options_.idle_timeout <= now; });
    if (!idle.empty()) next = std::min(next, idle.front().since + options_.idle_timeout);
    const bool unused = idle.empty() && it->second.use_count() == 1;
    it = unused ? lanes_.erase(it) : std::next(it);
  }
  armed_ = next != TimePoint::max();
  if (armed_) arm(next);
}

}  // namespace omni::http
