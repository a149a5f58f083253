// The scheduler's values: what it is told and what it orders.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/ids.h"
#include "scheduler/reuse.h"

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

// What the scheduler has found out about a model: stored by the daemon and told again after a
// restart. A time of zero is not known.
struct Learned {
  std::optional<Bytes> profile;  // highest use seen; wins over what is declared
  Duration load_time{};
  Duration restore_time{};
  Duration evict_time{};
  ReuseRecord reuse;
};

struct ModelPolicy {
  ModelId id;
  std::string name;
  DeviceId device = kHostDevice;
  std::optional<Bytes> declared;  // resources.memory of the spec
  std::uint32_t concurrency = 1;  // leases per instance
  std::uint32_t min_instances = 0;
  std::uint32_t max_instances = 1;
  bool pinned = false;
  Duration stop_after{};  // idle time until stop
  EvictMechanism mechanism = EvictMechanism::stop;
  // From before. Taken when the model is added; of one that is known the scheduler knows better.
  std::optional<Learned> learned{};
};

struct SchedulerLimits {
  std::uint32_t queue_per_model = 512;
  std::uint32_t queue_total = 4096;
  // A ticket that has waited longer (or 4 times its model's load cost) is passed by nobody.
  Duration fair_wait = std::chrono::seconds(10);
  // A model without work may be closed after this long.
  Duration idle_residency = std::chrono::milliseconds(200);
  // A model with work keeps its place at least this long (or twice its start cost).
  Duration min_residency = std::chrono::seconds(1);
  std::uint32_t loads_per_device = 2;
  // Tickets wait this long for full instances before another instance is started for them: a burst
  // that drains by itself is not worth a load.
  Duration scale_out_wait = std::chrono::seconds(1);
  // Over its grant by a tenth for this long: the instance is drained.
  Duration over_grant_wait = std::chrono::seconds(5);
  // Pauses between starts of a model that keeps failing: doubled from the first to the last.
  Duration first_back_off = std::chrono::seconds(1);
  Duration last_back_off = std::chrono::seconds(60);
  // An instance that lived this long ends its model's crash loop.
  Duration stable_after = std::chrono::seconds(60);
  // assert_invariants() after events: after each one while there is little to check, else so often
  // that checking costs a fixed share. Benchmarks turn it off.
  bool check_invariants = true;
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
  Bytes grant;
};
// An offer: the loop sets the word's waiters bit, takes a lease for the ticket and serves it, or
// answers on_full before it feeds any other event. An offer without that answer is taken.
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
// "start i1 m3 1.5 GiB", "refuse t7 queue_full": for logs, traces and tests.
std::string to_string(const Action& action);

}  // namespace omni
