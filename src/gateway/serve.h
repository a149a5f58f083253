// The middle of every request: take a lease, let the engine serve, and do it again elsewhere when
// the instance breaks before the first byte of its answer.
#pragma once

#include <boost/asio/awaitable.hpp>

#include "gateway/request.h"
#include "http/client.h"

namespace omni::gateway {

// How one try to serve a request on one instance ended.
struct Attempt {
  Result<void> outcome;
  // Of a connection that broke (instance_crashed): how far the request got.
  http::Progress progress = http::Progress::nothing_sent;
};

// How an engine of some kind serves this request: relay_http.h, relay_python.h.
class Backend {
 public:
  virtual ~Backend() = default;
  // Sends the request, passes the answer to the client. instance_crashed is kept for a connection
  // that broke.
  virtual asio::awaitable<Attempt> attempt(Request& request, Lease& lease) = 0;
  // The attempt ended by its time running out. Takes the lease, to give it back when it is known
  // whether the instance still serves.
  virtual void timed_out(Lease lease) { lease.release_suspect(); }
  // Whether the request's body can be sent a second time.
  virtual bool replayable() const = 0;
};

// The error is the caller's to answer.
asio::awaitable<Result<void>> serve(Request& request, Backend& backend);

}  // namespace omni::gateway
