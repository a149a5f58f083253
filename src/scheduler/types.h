// The scheduler's values: what it is told and what it orders.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/ids.h"

namespace omni {

// docs/contracts/states.md: the same words in code, API, CLI and metrics.
enum class InstanceState : std::uint8_t {
  stopped,
  provisioning,
  starting,
  resident,
  draining,
  evicting,
  evicted,
  restoring,
  asleep,
  waking,
  stopping,
  failed,
};
std::string_view to_string(InstanceState state);

// How a model's bytes leave its device, and what that costs. Only stop exists on a device of today;
// the simulation runs all of them.
enum class EvictMechanism : std::uint8_t { stop, evict };

struct ModelPolicy {
  ModelId id;
  std::string name;
  DeviceId device = kHostDevice;
  std::optional<Bytes> declared;  // resources.memory of the spec
  std::optional<Bytes> profile;   // highest use seen; wins over `declared`
  std::uint32_t concurrency = 1;  // leases per instance
  std::uint32_t min_instances = 0;
  std::uint32_t max_instances = 1;
  bool pinned = false;
  Duration stop_after{};  // idle time until stop
  EvictMechanism mechanism = EvictMechanism::stop;
};

struct SchedulerLimits {
  std::uint32_t queue_per_model = 512;
  std::uint32_t queue_total = 4096;
  Duration fair_wait = std::chrono::seconds(10);
  Duration idle_residency = std::chrono::milliseconds(200);
  Duration min_residency = std::chrono::seconds(1);
  std::uint32_t loads_per_device = 2;
};

// Actions. The control loop carries them out in order.

struct StartInstance {
  InstanceId instance;
  ModelId model;
  Bytes grant;
};
// Nobody waits for this start any more.
struct AbortStart {
  InstanceId instance;
};
// No new lease; on_drained follows when the last one is back.
struct CloseInstance {
  InstanceId instance;
};
// Closed, but wanted again before it was stopped.
struct OpenInstance {
  InstanceId instance;
};
struct StopInstance {
  InstanceId instance;
  std::string reason;
};
struct EvictInstance {
  InstanceId instance;
};
struct RestoreInstance {
  InstanceId instance;
};
// An offer: the loop takes a lease for the ticket and serves it, or answers on_full.
struct ServeTicket {
  TicketId ticket;
  InstanceId instance;
};
struct RefuseTicket {
  TicketId ticket;
  Error error;
  std::int64_t retry_after_seconds = 0;
};

using Action = std::variant<StartInstance, AbortStart, CloseInstance, OpenInstance, StopInstance,
                            EvictInstance, RestoreInstance, ServeTicket, RefuseTicket>;
using Actions = std::vector<Action>;

}  // namespace omni
