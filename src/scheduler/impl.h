// The scheduler's parts, in one place for its source files: admission.cpp (tickets), placement.cpp
// (who gets bytes), lifecycle.cpp (instances), explain.cpp (why not), scheduler.cpp (events,
// views).
//
// Every event changes state and touches models; settle() then draws all consequences until nothing
// more follows.
#pragma once

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "scheduler/eviction.h"
#include "scheduler/scheduler.h"
#include "scheduler/state.h"

namespace omni {

struct Scheduler::Impl {
  using Closing = scheduling::Closing;
  using Device = scheduling::Device;
  using DemandKey = scheduling::DemandKey;
  using Instance = scheduling::Instance;
  using Model = scheduling::Model;
  using Ticket = scheduling::Ticket;

  explicit Impl(SchedulerLimits scheduler_limits) : limits(scheduler_limits) {}

  // ---- scheduler.cpp
  void begin(TimePoint event_time);
  Actions finish();
  void settle();
  void touch(Model& model);
  Model* find_model(ModelId id) const;
  Instance* find_instance(InstanceId id) const;
  static void recall(Model& model, const Learned& learned);
  void expire_tickets();
  void refresh_models();
  void refresh_instances();
  void reopen_wanted(Model& model);
  InstanceState state_of(const Model& model) const;

  // ---- invariants.cpp
  void check() const;

  // ---- admission.cpp
  void enqueue(Ticket& ticket);
  void dequeue(Ticket& ticket);
  void end_offers();
  void refuse(TicketId ticket, Error error, std::int64_t retry_after);
  void refuse_all(Model& model, const Error& error, std::int64_t retry_after);
  std::optional<Error> reason_to_refuse(const Model* model) const;
  Error back_off_error(const Model& model) const;
  std::int64_t retry_after(const Model& model) const;
  void serve(Model& model);
  void give_turn(Model& model);
  void note_arrival(Model& model);

  // ---- placement.cpp
  enum class Placed : std::uint8_t { started, waiting, no_slot, no_room, refused };
  bool wants_instance(const Model& model) const;
  void update_demand(Model& model);
  void mark_aged(Device& device);
  void pump(Device& device);
  void place_alone(Model& model);
  Placed place(Model& model);
  void scale_out(Model& model);
  std::optional<Error> never_fits(const Model& model, Bytes need) const;
  void start(Model& model, Bytes bytes);
  std::optional<Bytes> size_of(const Model& model) const;
  Bytes need_of(const Model& model) const;
  Instance* evicted_instance(const Model& model) const;
  std::uint32_t alive(const Model& model) const;
  bool permanent(const Instance& instance) const;
  Bytes permanent_bytes(const Device& device, const Model* besides) const;
  Bytes leaving_bytes(const Device& device) const;
  std::uint32_t slots_used(const Device& device) const;
  bool slot_soon(const Device& device) const;
  bool waits_for_drain(const Model& claimant) const;
  void exchange_victims(Model& model);
  void drop_claim(Model& model);
  void forget_claim(Model& model);
  Duration start_cost(const Model& model) const;
  Duration fair_wait(const Model& model) const;
  Duration busy_wait(const Model& claimant, const Model& victim) const;
  double reuse_rate(const Model& model, TimePoint at) const;
  double loss(const Model& model, TimePoint at) const;
  std::vector<Instance*> find_victims(const Device& device, const Model& claimant, Bytes needed,
                                      bool idle_only);
  scheduling::Drain drain_of(const Instance& instance) const;
  bool may_close(const Instance& instance, const Model* claimant) const;
  void serve_growth(Device& device);

  // ---- explain.cpp
  void explain_absence(const Model& model, TimePoint at, Explanation& answer) const;
  std::optional<std::uint32_t> victim_rank(const Model& model, TimePoint at) const;

  // ---- lifecycle.cpp
  void set_state(Instance& instance, InstanceState state);
  void use(Instance& instance, TimePoint when);
  void open(Instance& instance);
  void reopen(Instance& instance);
  void close(Instance& instance, Closing why, Model* claimant = nullptr);
  void vacate(Instance& instance);
  void stop(Instance& instance, std::string reason);
  void abort(Instance& instance);
  // Out by whatever way its state allows, for a reason that nothing overrides.
  void send_away(Instance& instance, Closing why);
  void give_back(Instance& instance, Bytes bytes);
  void unlink_victim(Instance& instance);
  void erase(Instance& instance);
  void stop_unwanted_starts(Model& model);
  bool wanted(const Model& model) const;

  SchedulerLimits limits;
  TimePoint now{};
  Actions actions;
  bool shutting_down = false;
  std::uint64_t next_number = 1;  // of tickets and loads, in order of arrival
  std::uint64_t next_instance = 1;
  std::uint64_t victim_search = 0;

  std::map<DeviceId, std::unique_ptr<Device>> devices;
  std::unordered_map<ModelId, std::unique_ptr<Model>> models;
  std::unordered_map<InstanceId, std::unique_ptr<Instance>> instances;
  std::unordered_map<TicketId, Ticket> tickets;  // waiting, or offered since the last event
  std::vector<std::pair<Ticket*, InstanceId>> offers;
  std::set<std::pair<TimePoint, TicketId>> deadlines;  // of waiting tickets
  std::map<ModelId, Model*> waiting;                   // models with waiting tickets
  std::map<ModelId, Model*> always_on;                 // models with min_instances
  std::vector<Model*> touched;
  std::vector<Model*> fresh;  // demands since the last settle()
  std::vector<ModelId> removals;
  std::uint32_t longest_queue = 0;  // that any limit of this run allowed
  mutable std::size_t unchecked_events = 0;
};

}  // namespace omni
