// The client's idle connections, by endpoint. One I/O thread's; no lock.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/endpoint.h"
#include "http/client.h"
#include "http/deadlines.h"
#include "http/stream.h"

namespace omni::http {

struct EndpointHash {
  std::size_t operator()(const Endpoint& endpoint) const {
    const std::hash<std::string> hash;
    return hash(endpoint.path) ^ hash(endpoint.host) ^ (std::size_t{endpoint.port} << 1);
  }
};

class ConnectionPool final : private Deadlines::Entry {
 public:
  // One endpoint's. Shared with the calls that use its connections: after close() of the endpoint
  // they find it retired, and close theirs instead of giving them back.
  struct Lane final : Stream::PeerListener {
    explicit Lane(Endpoint at) : endpoint(std::move(at)) {}
    // One that the peer has closed is of no further use.
    void on_peer_gone(Stream& stream) override {
      std::erase_if(idle, [&](const Idle& one) { return one.stream.get() == &stream; });
    }
    struct Idle {
      std::unique_ptr<Stream> stream;
      TimePoint since;
    };
    const Endpoint endpoint;
    std::vector<Idle> idle;  // oldest first
    bool retired = false;
  };

  ConnectionPool(Deadlines& deadlines, const ClientOptions& options)
      : Entry(deadlines), options_(options) {}

  std::shared_ptr<Lane> lane(const Endpoint& endpoint);
  // A connection that was alive a moment ago, the one used last; or null.
  std::unique_ptr<Stream> take(Lane& lane);
  void give(Lane& lane, std::unique_ptr<Stream> stream);
  void close(const Endpoint& endpoint);

 private:
  void on_deadline() override;

  const ClientOptions& options_;
  std::unordered_map<Endpoint, std::shared_ptr<Lane>, EndpointHash> lanes_;
  bool armed_ = false;
};

}  // namespace omni::http
