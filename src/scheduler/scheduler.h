// Chooses what runs on this node's devices. Pure: no I/O, no clock, no lock. Owned by the control
// loop, which feeds it events in order and carries out the returned actions in order; the seeded
// simulation does the same.
//
// Invariants, asserted after every event in debug builds and by the simulation: the sum of grants
// on a device is within its budget; only a closed and drained instance is evicted or stopped by
// policy; every ticket ends exactly once; a pinned model is never a victim.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/explanation.h"
#include "scheduler/types.h"

namespace omni {

class Scheduler {
 public:
  explicit Scheduler(SchedulerLimits limits);
  ~Scheduler();

  void add_device(DeviceId device, std::string name, Bytes budget);

  // Added, or its policy changed.
  Actions on_model(ModelPolicy model, TimePoint now);
  // It takes no more requests. Those that wait are served, then its instances are drained and
  // stopped, and it is forgotten: knows() is false.
  Actions on_model_removed(ModelId model, TimePoint now);
  bool knows(ModelId model) const;
  // `from` is removed, and the requests that wait for it wait for `to`, whatever limits hold there.
  // Nothing of `from` is kept from being closed any more.
  Actions on_model_replaced(ModelId from, ModelId to, TimePoint now);
  // For tickets from now on.
  void set_queue_limits(std::uint32_t per_model, std::uint32_t total);

  // A request is served, refused or made to wait; a ticket ends exactly once.
  Actions on_request(TicketId ticket, ModelId model, TimePoint deadline, std::int32_t priority,
                     TimePoint now);
  // The client left, or the I/O thread served the ticket itself. An unknown ticket is one that
  // crossed: ignored.
  Actions on_forget(TicketId ticket, bool served, TimePoint now);
  // The offer of a ServeTicket failed: the instance was full or closed. The ticket keeps its place
  // in the queue and the instance is offered again only after on_freed or on_activity shows room.
  // Fed before any other event: an offer that is not answered so is taken, and its ticket ended.
  Actions on_full(TicketId ticket, InstanceId instance, TimePoint now);
  // A lease came back while tickets wait, or a word that the loop had closed by itself (a suspect)
  // is open again.
  Actions on_freed(InstanceId instance, TimePoint now);
  // The last lease of a closed instance came back. The loop feeds it when the word is closed and
  // its count 0 at that moment, at once after a CloseInstance that found it so: a Drained message
  // may be of an earlier close, and more than one may come.
  Actions on_drained(InstanceId instance, TimePoint now);

  // What became of an action: resident (started, restored, or could not be evicted; the loop opens
  // the word first, the returned offers count on it), evicted, stopped, failed (with why). Stopped
  // and failed are fed when nothing of the instance is left: its bytes are given away at once.
  Actions on_resident(InstanceId instance, TimePoint now);
  Actions on_evicted(InstanceId instance, TimePoint now);
  Actions on_stopped(InstanceId instance, TimePoint now);
  // A start or restore failed, or the instance died. The model backs off after repeated failures of
  // starts; its waiting tickets are refused with this error when a start failed. `poison` deaths
  // (one request that killed two instances) do not feed the back-off.
  Actions on_failed(InstanceId instance, Error error, bool poison, TimePoint now);

  // The fast path's activity since the last tick: `served` since the last call, `in_flight` now,
  // with the leases taken without the scheduler.
  Actions on_activity(InstanceId instance, std::uint32_t in_flight, std::uint64_t served,
                      TimePoint last_used, TimePoint now);
  // What the instance's processes have held at most (VmHWM). Raises the model's profile and, when
  // bytes are free, the grant; else an idle victim is closed for it.
  Actions on_usage(InstanceId instance, Bytes high_water, TimePoint now);
  // At least every 100 ms: deadlines, stop_after, fairness.
  Actions on_tick(TimePoint now);

  // Operator's verbs. load: start an instance if none lives or starts. stop: drain (bounded by the
  // loop), then stop; waiting tickets are refused with model_stopped.
  Actions load(ModelId model, TimePoint now);
  Actions stop(ModelId model, TimePoint now);
  // Refuse all tickets, drain and stop all instances and start nothing more: the daemon is going
  // down. Done when instances() is empty.
  Actions shut_down(TimePoint now);

  // Views for API and metrics.
  struct InstanceView {
    InstanceId id;
    ModelId model;
    InstanceState state;
    Bytes grant;
    TimePoint since;
  };
  struct ModelView {
    ModelId id;
    InstanceState state;  // of its most alive instance; stopped, or failed while it backs off
    std::uint32_t waiting = 0;
    bool held_down = false;  // an operator stopped it, and nobody has asked for it since
    std::optional<Bytes> profile;
    Duration load_time{};  // learned; zero when never loaded
    std::string last_error;
  };
  struct DeviceView {
    DeviceId id;
    std::string name;
    Bytes budget;
    Bytes granted;
  };
  std::vector<InstanceView> instances() const;
  ModelView model(ModelId model) const;
  std::vector<DeviceView> devices() const;
  // What to keep over a restart, for ModelPolicy::learned; empty for an unknown model.
  Learned learned(ModelId model) const;
  Explanation explain(ModelId model, TimePoint now) const;
  // Whether any ticket of the model waits: the loop keeps the lease words' waiters bit equal to it.
  bool has_waiters(ModelId model) const;
  std::int64_t retry_after_seconds(ModelId model) const;
  // Ends the process with a message when an invariant does not hold.
  void assert_invariants() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace omni
