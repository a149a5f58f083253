// Events in, actions out: each event changes state, settle() draws the consequences.
#include "scheduler/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <cstdlib>

#include "scheduler/impl.h"

namespace omni {
namespace {

// No load takes longer: a time beyond it was not measured.
constexpr Duration kLongestLearned = std::chrono::hours(24);

}  // namespace

// ---- The frame of every event

void Scheduler::Impl::begin(TimePoint event_time) {
  // Whoever gathers events may have read the clock for one before the action of another.
  now = std::max(now, event_time);
  actions.clear();
}

Actions Scheduler::Impl::finish() {
  settle();
#ifndef NDEBUG
  // A check visits everything: rarer when there is more, so that its share of the time is bounded.
  const std::size_t size = models.size() + instances.size() + tickets.size();
  if (limits.check_invariants && ++unchecked_events > size / 64) {
    unchecked_events = 0;
    check();
  }
#endif
  return std::move(actions);
}

void Scheduler::Impl::touch(Model& model) {
  if (model.touched) return;
  model.touched = true;
  touched.push_back(&model);
}

// Draws consequences until there are none: waiting tickets are offered what is open, then models
// that lack an instance get one as far as the device allows.
void Scheduler::Impl::settle() {
  for (bool more = true; more;) {
    more = false;
    while (!touched.empty()) {
      Model& model = *touched.back();
      touched.pop_back();
      model.touched = false;
      reopen_wanted(model);
      serve(model);
      update_demand(model);
      if (!model.removing || !model.queue.empty()) continue;
      for (Instance* instance : model.instances) send_away(*instance, Closing::removed);
      if (model.instances.empty()) removals.push_back(model.policy.id);
    }
    for (auto& [id, device] : devices) {
      if (!device->dirty) continue;
      pump(*device);
      more = true;
    }
    for (Model* model : std::exchange(fresh, {})) place_alone(*model);
    more = more || !touched.empty();
  }
  for (ModelId id : std::exchange(removals, {})) {
    waiting.erase(id);
    models.erase(id);
  }
}

Scheduler::Impl::Model* Scheduler::Impl::find_model(ModelId id) const {
  auto it = models.find(id);
  return it == models.end() ? nullptr : it->second.get();
}

Scheduler::Impl::Instance* Scheduler::Impl::find_instance(InstanceId id) const {
  auto it = instances.find(id);
  return it == instances.end() ? nullptr : it->second.get();
}

Scheduler::Scheduler(SchedulerLimits limits) : impl_(std::make_unique<Impl>(limits)) {}
Scheduler::~Scheduler() = default;

void Scheduler::add_device(DeviceId device, std::string name, Bytes budget) {
  auto added = std::make_unique<Impl::Device>(device, std::move(name), scheduling::Ledger(budget));
  const bool is_new = impl_->devices.emplace(device, std::move(added)).second;
  assert(is_new);
  (void)is_new;
}

// ---- Models

Actions Scheduler::on_model(ModelPolicy policy, TimePoint now) {
  impl_->begin(now);
  impl_->end_offers();
  std::unique_ptr<Impl::Model>& slot = impl_->models[policy.id];
  if (!slot) {
    slot = std::make_unique<Impl::Model>();
    slot->wanted_number = impl_->next_number++;
    slot->last_arrival = impl_->now;
    if (policy.learned) impl_->recall(*slot, *policy.learned);
  }
  Impl::Model& model = *slot;
  const auto found = impl_->devices.find(policy.device);
  Impl::Device* device = found == impl_->devices.end() ? nullptr : found->second.get();
  if (model.device != device && model.device != nullptr) {
    if (model.claiming) impl_->drop_claim(model);
    if (model.demand) model.device->demands.erase(*std::exchange(model.demand, std::nullopt));
  }
  model.device = device;
  model.removing = false;
  model.policy = std::move(policy);
  model.policy.learned.reset();
  if (model.policy.min_instances > 0) {
    impl_->always_on.emplace(model.policy.id, &model);
  } else {
    impl_->always_on.erase(model.policy.id);
  }
  // Pinned from now on: what has not left yet stays.
  for (Impl::Instance* instance : model.instances) {
    const bool victim = instance->closing == scheduling::Closing::for_load ||
                        instance->closing == scheduling::Closing::for_growth;
    if (model.policy.pinned && victim && instance->state == InstanceState::draining) {
      impl_->reopen(*instance);
    }
  }
  impl_->touch(model);
  if (device != nullptr) device->dirty = true;
  return impl_->finish();
}

// What a store gives back is not trusted further than it can be true.
void Scheduler::Impl::recall(Model& model, const Learned& learned) {
  const auto time = [](Duration stored) { return std::clamp(stored, Duration{}, kLongestLearned); };
  if (learned.profile && *learned.profile > Bytes(0)) model.profile = learned.profile;
  model.load_time = time(learned.load_time);
  model.restore_time = time(learned.restore_time);
  model.evict_time = time(learned.evict_time);
  if (learned.reuse.plausible()) model.reuse = learned.reuse;
}

Actions Scheduler::on_model_removed(ModelId id, TimePoint now) {
  impl_->begin(now);
  impl_->end_offers();
  Impl::Model* model = impl_->find_model(id);
  if (model == nullptr) return impl_->finish();
  model->removing = true;
  model->load_wanted = false;
  impl_->always_on.erase(id);
  impl_->touch(*model);
  return impl_->finish();
}

Actions Scheduler::on_model_replaced(ModelId from_id, ModelId to_id, TimePoint now) {
  impl_->begin(now);
  impl_->end_offers();
  Impl::Model* from = impl_->find_model(from_id);
  Impl::Model* to = impl_->find_model(to_id);
  if (from == nullptr || to == nullptr) return impl_->finish();
  while (Impl::Ticket* ticket = from->queue.front()) {
    impl_->dequeue(*ticket);
    ticket->model = to;
    impl_->enqueue(*ticket);
  }
  from->removing = true;
  from->load_wanted = false;
  impl_->always_on.erase(from_id);
  // Now: a demand is known by its oldest ticket, which is the other's from here on.
  impl_->update_demand(*from);
  impl_->touch(*from);
  impl_->touch(*to);
  return impl_->finish();
}

bool Scheduler::knows(ModelId id) const { return impl_->find_model(id) != nullptr; }

void Scheduler::set_queue_limits(std::uint32_t per_model, std::uint32_t total) {
  impl_->longest_queue = std::max(impl_->longest_queue, impl_->limits.queue_per_model);
  impl_->limits.queue_per_model = per_model;
  impl_->limits.queue_total = total;
}

// ---- Tickets

Actions Scheduler::on_request(TicketId ticket, ModelId id, TimePoint deadline,
                              std::int32_t priority, TimePoint now) {
  impl_->begin(now);
  impl_->end_offers();
  assert(!impl_->tickets.contains(ticket));
  Impl::Model* model = impl_->find_model(id);
  if (auto error = impl_->reason_to_refuse(model)) {
    impl_->refuse(ticket, *std::move(error), model != nullptr ? impl_->retry_after(*model) : 0);
    return impl_->finish();
  }
  // Instances may have come free unseen while no ticket waited: each is worth one offer.
  if (model->queue.empty()) {
    for (Impl::Instance* instance : model->instances) {
      if (instance->is_open()) instance->credit = std::max(instance->credit, 1u);
    }
  }
  model->held_down = false;
  impl_->note_arrival(*model);
  Impl::Ticket& entry = impl_->tickets[ticket];
  entry = {ticket, model, impl_->next_number++, now, deadline, priority, {}};
  impl_->enqueue(entry);
  impl_->touch(*model);
  return impl_->finish();
}

Actions Scheduler::on_forget(TicketId id, bool served, TimePoint now) {
  impl_->begin(now);
  impl_->end_offers();
  auto it = impl_->tickets.find(id);
  if (it == impl_->tickets.end()) return impl_->finish();
  Impl::Ticket& ticket = it->second;
  Impl::Model& model = *ticket.model;
  impl_->dequeue(ticket);
  const Impl::Ticket* oldest = model.queue.oldest();
  if (served) ++model.told_leases;
  if (served && oldest != nullptr && oldest->number < ticket.number) model.passed = true;
  impl_->tickets.erase(it);
  impl_->touch(model);
  if (model.queue.empty() && !served) impl_->stop_unwanted_starts(model);
  return impl_->finish();
}

Actions Scheduler::on_full(TicketId id, InstanceId instance_id, TimePoint now) {
  impl_->begin(now);
  auto offer = std::find_if(impl_->offers.begin(), impl_->offers.end(), [&](const auto& candidate) {
    return candidate.first->id == id && candidate.second == instance_id;
  });
  assert(offer != impl_->offers.end() && "an offer is answered before the next event");
  if (offer == impl_->offers.end()) return impl_->finish();
  Impl::Ticket& ticket = *offer->first;
  impl_->offers.erase(offer);
  if (Impl::Instance* instance = impl_->find_instance(instance_id)) {
    instance->credit = 0;
    instance->in_flight = std::max(instance->in_flight, 1u) - 1;
    instance->in_flight = std::max(instance->in_flight, instance->model->policy.concurrency);
  }
  // The model may have changed since the offer: what holds for a new ticket holds for this one.
  Impl::Model& model = *ticket.model;
  if (model.told_leases > 0) --model.told_leases;
  impl_->enqueue(ticket);
  impl_->touch(model);
  return impl_->finish();
}

Actions Scheduler::on_freed(InstanceId id, TimePoint now) {
  impl_->begin(now);
  impl_->end_offers();
  Impl::Instance* instance = impl_->find_instance(id);
  if (instance == nullptr) return impl_->finish();
  if (instance->in_flight > 0) --instance->in_flight;
  if (instance->is_open()) {
    instance->credit = std::min(instance->credit + 1, instance->model->policy.concurrency);
    impl_->touch(*instance->model);
  }
  return impl_->finish();
}

void Scheduler::Impl::expire_tickets() {
  while (!deadlines.empty() && deadlines.begin()->first <= now) {
    const TicketId id = deadlines.begin()->second;
    Ticket& ticket = tickets.at(id);
    Model& model = *ticket.model;
    const double waited = Seconds(now - ticket.arrived).count();
    dequeue(ticket);
    tickets.erase(id);
    touch(model);
    refuse(id,
           {ErrorCode::queue_timeout,
            fmt::format("model \"{}\" had no room for this request within {:.1f} s "
                        "(limits.queue_timeout); the model is {}",
                        model.policy.name, waited, to_string(state_of(model)))},
           retry_after(model));
  }
}

// ---- Time

Actions Scheduler::on_tick(TimePoint now) {
  impl_->begin(now);
  impl_->end_offers();
  impl_->expire_tickets();
  impl_->refresh_instances();
  impl_->refresh_models();
  for (auto& [id, device] : impl_->devices) {
    impl_->mark_aged(*device);
    device->dirty = true;
  }
  return impl_->finish();
}

void Scheduler::Impl::refresh_instances() {
  std::vector<Instance*> idle;
  for (auto& [id, device] : devices) {
    for (Instance* instance : device->growing) {
      const bool long_over =
          instance->over_since && now - *instance->over_since >= limits.over_grant_wait;
      const bool here = instance->is_open() || instance->state == InstanceState::starting;
      if (long_over && here) send_away(*instance, Closing::over_grant);
    }
    for (Instance* instance : device->instances) {
      const Duration unused = now - instance->last_used;
      if (instance->state != InstanceState::evicted && !instance->is_open()) continue;
      if (instance->in_flight > 0 || wanted(*instance->model)) continue;
      if (unused < std::max(instance->model->policy.stop_after, limits.idle_residency)) continue;
      idle.push_back(instance);
    }
  }
  for (Instance* instance : idle) {
    const Model& model = *instance->model;
    const bool kept = !model.held_down && alive(model) <= model.policy.min_instances;
    if (!instance->is_open() || !kept) send_away(*instance, Closing::idle);
  }
}

void Scheduler::Impl::refresh_models() {
  for (auto& [id, model] : always_on) touch(*model);
  for (auto& [id, model] : waiting) {
    give_turn(*model);
    scale_out(*model);
  }
}

// What is draining only because nobody wanted it goes on when somebody does.
void Scheduler::Impl::reopen_wanted(Model& model) {
  if (!wanted(model) || shutting_down) return;
  for (Instance* instance : model.instances) {
    if (instance->state != InstanceState::draining) continue;
    const bool unneeded =
        instance->closing == Closing::idle ||
        (instance->closing == Closing::for_growth && instance->device->growing.empty());
    if (unneeded) reopen(*instance);
  }
}

// ---- Operator's verbs

Actions Scheduler::load(ModelId id, TimePoint now) {
  impl_->begin(now);
  impl_->end_offers();
  Impl::Model* model = impl_->find_model(id);
  if (model == nullptr || model->removing || impl_->shutting_down) return impl_->finish();
  model->held_down = false;
  if (impl_->alive(*model) > 0) return impl_->finish();
  model->crash_loop.reset();
  model->load_wanted = true;
  model->wanted_number = impl_->next_number++;
  impl_->touch(*model);
  return impl_->finish();
}

Actions Scheduler::stop(ModelId id, TimePoint now) {
  impl_->begin(now);
  impl_->end_offers();
  Impl::Model* model = impl_->find_model(id);
  if (model == nullptr) return impl_->finish();
  model->held_down = true;
  model->load_wanted = false;
  impl_->refuse_all(*model,
                    {ErrorCode::model_stopped,
                     fmt::format("model \"{}\" was stopped by an operator while the request waited",
                                 model->policy.name)},
                    impl_->retry_after(*model));
  for (Impl::Instance* instance : model->instances) {
    impl_->send_away(*instance, scheduling::Closing::stopped);
  }
  return impl_->finish();
}

Actions Scheduler::shut_down(TimePoint now) {
  impl_->begin(now);
  impl_->end_offers();
  impl_->shutting_down = true;
  for (auto& [id, model] : impl_->models) {
    model->load_wanted = false;
    impl_->refuse_all(*model, *impl_->reason_to_refuse(model.get()), 1);
    for (Impl::Instance* instance : model->instances) {
      impl_->send_away(*instance, scheduling::Closing::shut_down);
    }
  }
  return impl_->finish();
}

// ---- Views

std::vector<Scheduler::InstanceView> Scheduler::instances() const {
  std::vector<InstanceView> views;
  views.reserve(impl_->instances.size());
  for (const auto& [id, instance] : impl_->instances) {
    views.push_back(
        {id, instance->model->policy.id, instance->state, instance->grant, instance->since});
  }
  std::sort(views.begin(), views.end(),
            [](const InstanceView& a, const InstanceView& b) { return a.id < b.id; });
  return views;
}

InstanceState Scheduler::Impl::state_of(const Model& model) const {
  using enum InstanceState;
  // From most alive to least.
  constexpr InstanceState kOrder[] = {resident, restoring, starting, draining,
                                      evicting, evicted,   stopping};
  for (InstanceState state : kOrder) {
    for (const Instance* instance : model.instances) {
      if (instance->state == state) return state;
    }
  }
  return model.crash_loop.backing_off(now) ? failed : stopped;
}

Scheduler::ModelView Scheduler::model(ModelId id) const {
  const Impl::Model* model = impl_->find_model(id);
  if (model == nullptr) return {.id = id, .state = InstanceState::stopped};
  return {.id = id,
          .state = impl_->state_of(*model),
          .waiting = model->queue.size(),
          .held_down = model->held_down,
          .profile = model->profile,
          .load_time = model->load_time,
          .last_error = model->last_error};
}

std::vector<Scheduler::DeviceView> Scheduler::devices() const {
  std::vector<DeviceView> views;
  for (const auto& [id, device] : impl_->devices) {
    views.push_back({id, device->name, device->ledger.budget(), device->ledger.granted()});
  }
  return views;
}

bool Scheduler::has_waiters(ModelId id) const {
  const Impl::Model* model = impl_->find_model(id);
  return model != nullptr && !model->queue.empty();
}

std::int64_t Scheduler::retry_after_seconds(ModelId id) const {
  const Impl::Model* model = impl_->find_model(id);
  return model == nullptr ? 1 : impl_->retry_after(*model);
}

Learned Scheduler::learned(ModelId id) const {
  const Impl::Model* model = impl_->find_model(id);
  if (model == nullptr) return {};
  return {.profile = model->profile,
          .load_time = model->load_time,
          .restore_time = model->restore_time,
          .evict_time = model->evict_time,
          .reuse = model->reuse};
}

void Scheduler::assert_invariants() const { impl_->check(); }

}  // namespace omni
