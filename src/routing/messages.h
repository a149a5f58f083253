// What I/O threads and the control loop say to each other. Each direction is in order; every ticket
// ends once.
#pragma once

#include <cstdint>
#include <memory>
#include <variant>

#include "base/clock.h"
#include "base/error.h"
#include "base/ids.h"
#include "routing/route_table.h"

namespace omni {

// I/O thread → control loop.

// A request found no free resident instance.
struct Admit {
  TicketId ticket;
  ModelId model;
  std::uint32_t thread = 0;
  TimePoint deadline;
  std::int32_t priority = 0;
};
// The client left, or the I/O thread served the ticket from a lease that another request of it
// released.
struct Forget {
  TicketId ticket;
  bool served = false;
};
// A lease was released while tickets wait.
struct Freed {
  InstanceId instance;
};
// The last lease of a closed word was released.
struct Drained {
  InstanceId instance;
};
// The connection to the instance broke under a request, or its time ran out: the loop closes it
// until it knows whether it serves. `hung`: it is known not to, and is replaced at once.
struct Suspect {
  InstanceId instance;
  bool hung = false;
};
using ControlMessage = std::variant<Admit, Forget, Freed, Drained, Suspect>;

// Control loop → I/O thread: Serve carries a lease that is taken already.
struct Serve {
  TicketId ticket;
  InstanceRoute instance;
};
struct Refuse {
  TicketId ticket;
  Error error;
  std::int64_t retry_after_seconds = 0;  // 0: no Retry-After
};

// The control loop's mailbox, as an I/O thread sees it. Thread-safe; keeps the order of one
// thread's messages.
class ControlPort {
 public:
  virtual ~ControlPort() = default;
  virtual void post(ControlMessage message) = 0;
};

}  // namespace omni
