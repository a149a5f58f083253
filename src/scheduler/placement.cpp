// Who gets a device's bytes next.
//
// A model that needs an instance is a demand of its device. place() gives it bytes that are free,
// or closes victims for it: then it holds a claim, whose bytes nobody else gets, until it starts.
// An aged demand that finds no room blocks the device for all others: nobody passes it.
#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "scheduler/impl.h"

namespace omni {
namespace {

using namespace std::chrono_literals;

// Of idle candidates, this many of the longest unused are weighed against each other; the others
// count only when these do not suffice. Bounds the cost of a decision on a node of many models.
constexpr std::size_t kCandidates = 16;
constexpr double kDefaultCostSeconds = 1;
// A victim that has not drained after this long may be exchanged for others that are busy.
constexpr Duration kLongDrain = 2s;
// A drain that takes longer does not occupy one of the device's load slots.
constexpr Duration kQuickDrain = 200ms;

}  // namespace

std::optional<Bytes> Scheduler::Impl::size_of(const Model& model) const {
  if (const Instance* instance = evicted_instance(model)) return instance->evicted_size;
  return model.profile ? model.profile : model.policy.declared;
}

// A model of unknown size gets all that can be had: it starts alone and is measured.
Bytes Scheduler::Impl::need_of(const Model& model) const {
  if (auto size = size_of(model)) return *size;
  return model.device->ledger.budget() - permanent_bytes(*model.device, &model);
}

scheduling::Instance* Scheduler::Impl::evicted_instance(const Model& model) const {
  for (Instance* instance : model.instances) {
    if (instance->state == InstanceState::evicted) return instance;
  }
  return nullptr;
}

// Open, loading, or out of service for a moment only.
std::uint32_t Scheduler::Impl::alive(const Model& model) const {
  return static_cast<std::uint32_t>(
      std::count_if(model.instances.begin(), model.instances.end(), [](const Instance* instance) {
        return instance->is_open() || instance->is_loading() ||
               (instance->state == InstanceState::draining && instance->closing == Closing::turn);
      }));
}

bool Scheduler::Impl::wants_instance(const Model& model) const {
  if (shutting_down || model.device == nullptr) return false;
  if (model.crash_loop.backing_off(now)) return false;
  const bool loading = std::any_of(model.instances.begin(), model.instances.end(),
                                   [](const Instance* instance) { return instance->is_loading(); });
  if (loading) return false;
  if (evicted_instance(model) == nullptr &&
      model.instances.size() >= std::max(model.policy.max_instances, 1u)) {
    return false;  // the one that leaves must be gone first
  }
  const std::uint32_t living = alive(model);
  if (living == 0 && wanted(model)) return true;
  if (model.removing) return false;
  return living < model.policy.min_instances && !model.held_down;
}

void Scheduler::Impl::update_demand(Model& model) {
  std::optional<DemandKey> key;
  if (wants_instance(model)) {
    key = DemandKey{DemandKey::kUnasked, model.wanted_number, &model};
    if (model.load_wanted) key->rank = 0;
    if (const Ticket* oldest = model.queue.oldest()) {
      key->rank = -std::int64_t{model.queue.front()->priority};
      key->number = oldest->number;
      if (now - oldest->arrived >= fair_wait(model)) key->rank = DemandKey::kAged;
    }
  }
  if (key == model.demand) return;
  if (model.demand) model.device->demands.erase(*model.demand);
  if (key) {
    model.device->demands.insert(*key);
    if (!model.demand) fresh.push_back(&model);
  }
  model.demand = key;
  if (key) return;
  if (model.device->blocked_by == &model) model.device->dirty = true;
  if (model.claiming) drop_claim(model);
}

void Scheduler::Impl::mark_aged(Device& device) {
  std::vector<Model*> aged;
  for (const DemandKey& key : device.demands) {
    const Ticket* oldest = key.model->queue.oldest();
    if (key.rank == DemandKey::kAged || oldest == nullptr) continue;
    if (now - oldest->arrived >= fair_wait(*key.model)) aged.push_back(key.model);
  }
  for (Model* model : aged) update_demand(*model);
}

// Looks at all who need bytes, in order.
void Scheduler::Impl::pump(Device& device) {
  device.dirty = false;
  device.hopeless.reset();
  device.permanent.reset();
  device.blocked_by = nullptr;
  serve_growth(device);
  for (Model* model : std::vector<Model*>(device.claims)) place(*model);
  for (auto next = device.demands.begin(); next != device.demands.end();) {
    Model& model = *next->model;
    const bool aged = next->rank == DemandKey::kAged;
    ++next;  // place() may take this demand away
    if (model.claiming) continue;
    if (!slot_soon(device)) return;
    const Placed placed = place(model);
    const bool without_claim = placed == Placed::waiting && !model.claiming;
    if (aged && (placed == Placed::no_room || without_claim)) {
      device.blocked_by = &model;
      return;
    }
  }
}

// A new demand, when nothing else has changed.
void Scheduler::Impl::place_alone(Model& model) {
  if (!model.demand || model.claiming) return;
  if (model.device->blocked_by == nullptr) place(model);
}

Scheduler::Impl::Placed Scheduler::Impl::place(Model& model) {
  Device& device = *model.device;
  // 1. What can never fit is refused.
  const Bytes need = need_of(model);
  if (auto error = never_fits(model, need)) {
    model.last_error = error->message;
    model.load_wanted = false;
    if (model.claiming) drop_claim(model);
    refuse_all(model, *error, error->info().retryable ? retry_after(model) : 0);
    return Placed::refused;
  }

  // 2. A claim begins only when a load slot is to be had.
  if (!model.claiming && !slot_soon(device)) return Placed::no_slot;

  // 3. What it lacks: free bytes, then bytes on their way, then victims.
  if (model.claiming) exchange_victims(model);
  Bytes pending;
  for (const Instance* victim : model.victims) pending += victim->grant;
  const Bytes shortage = std::max(Bytes(0), need - model.held - pending);
  const Bytes from_free = std::min(device.ledger.free(), shortage);
  const Bytes from_victims = shortage - from_free;
  if (from_victims > Bytes(0)) {
    const bool hopeless = device.hopeless && from_victims >= *device.hopeless;
    if (hopeless && !model.claiming) return Placed::no_room;
    if (from_victims <= leaving_bytes(device)) return Placed::waiting;
    std::vector<Instance*> victims = find_victims(device, model, from_victims, false);
    if (victims.empty()) {
      device.hopeless = std::min(from_victims, device.hopeless.value_or(from_victims));
      if (model.claiming) drop_claim(model);
      return Placed::no_room;
    }
    for (Instance* victim : victims) close(*victim, Closing::for_load, &model);
  }
  device.ledger.hold(from_free);
  model.held += from_free;
  if (!model.claiming) {
    model.claiming = true;
    device.claims.push_back(&model);
  }

  // 4. All bytes are there: start.
  if (model.held < need || device.loading.size() >= limits.loads_per_device) return Placed::waiting;
  start(model, need);
  return Placed::started;
}

std::optional<Error> Scheduler::Impl::never_fits(const Model& model, Bytes need) const {
  Device& device = *model.device;
  const Bytes budget = device.ledger.budget();
  const std::string& name = model.policy.name;
  if (need > budget) {
    return Error{
        ErrorCode::model_too_large,
        fmt::format("model \"{}\" needs {}, device {} has {}: raise the device's memory or "
                    "use a smaller model",
                    name, to_string(need), device.name, to_string(budget))};
  }
  if (need > Bytes(0) && need <= device.ledger.free() + model.held) return std::nullopt;
  // The sum over all models is looked up; only when that is too much, its own share is taken out.
  if (!device.permanent) device.permanent = permanent_bytes(device, nullptr);
  if (need > Bytes(0) && need <= budget - *device.permanent) return std::nullopt;
  const Bytes left = budget - permanent_bytes(device, &model);
  if (need > Bytes(0) && need <= left) return std::nullopt;
  return Error{ErrorCode::out_of_memory,
               fmt::format("model \"{}\" needs {}, pinned and always-on models leave {} of device "
                           "{}: unpin one or raise the device's memory",
                           name, to_string(need), to_string(left), device.name)};
}

void Scheduler::Impl::start(Model& model, Bytes bytes) {
  Device& device = *model.device;
  forget_claim(model);
  device.ledger.grant(bytes);
  if (model.demand) device.demands.erase(*std::exchange(model.demand, std::nullopt));
  if (Instance* evicted = evicted_instance(model)) {
    evicted->grant = bytes;
    set_state(*evicted, InstanceState::restoring);
    actions.push_back(RestoreInstance{evicted->id, bytes});
    return;
  }
  auto instance = std::make_unique<Instance>();
  instance->id = InstanceId{next_instance++};
  instance->model = &model;
  instance->device = &device;
  instance->grant = bytes;
  instance->since = now;
  instance->sizing = !size_of(model).has_value();
  model.instances.push_back(instance.get());
  device.instances.push_back(instance.get());
  device.loading.push_back(instance.get());
  actions.push_back(StartInstance{instance->id, model.policy.id, bytes});
  instances.emplace(instance->id, std::move(instance));
}

// Full for a while: another instance, if there are bytes that nobody else needs.
void Scheduler::Impl::scale_out(Model& model) {
  if (shutting_down || model.removing || model.device == nullptr) return;
  if (model.demand || alive(model) == 0 || model.crash_loop.backing_off(now)) return;
  const Ticket* oldest = model.queue.oldest();
  if (oldest == nullptr || now - oldest->arrived < limits.scale_out_wait) return;
  Device& device = *model.device;
  const bool loading = std::any_of(model.instances.begin(), model.instances.end(),
                                   [](const Instance* instance) { return instance->is_loading(); });
  const bool room =
      evicted_instance(model) != nullptr || model.instances.size() < model.policy.max_instances;
  const auto size = size_of(model);
  if (loading || !room || !size || *size > device.ledger.free()) return;
  if (!device.demands.empty() || slots_used(device) >= limits.loads_per_device) return;
  start(model, *size);
}

// ---- Claims

// How many of the device's load slots are taken, or will be soon.
std::uint32_t Scheduler::Impl::slots_used(const Device& device) const {
  auto used = static_cast<std::uint32_t>(device.loading.size());
  for (const Model* claimant : device.claims) {
    if (!waits_for_drain(*claimant)) ++used;
  }
  return used;
}

// Whether a claim that begins now finds a load slot when its victims have left: they leave while
// the loads before it end.
bool Scheduler::Impl::slot_soon(const Device& device) const {
  const std::uint32_t used = slots_used(device);
  if (used < limits.loads_per_device) return true;
  const auto ends = [&](const Instance* instance) {
    const Model& model = *instance->model;
    const bool starts = instance->state == InstanceState::starting;
    const Duration time = starts ? model.load_time : model.restore_time;
    return time > Duration{} && now - instance->since >= time - device.leave_time;
  };
  const auto ending = std::count_if(device.loading.begin(), device.loading.end(), ends);
  return used < limits.loads_per_device + static_cast<std::uint32_t>(ending);
}

// A long answer of a victim holds up the claim; others may load meanwhile.
bool Scheduler::Impl::waits_for_drain(const Model& claimant) const {
  return std::any_of(claimant.victims.begin(), claimant.victims.end(),
                     [this](const Instance* victim) {
                       return victim->state == InstanceState::draining &&
                              (victim->closed_busy || now - victim->since > kQuickDrain);
                     });
}

// Idle instances instead of victims that still answer, and instead of one that answers for long,
// such as a stream of minutes, others that may be busy: there is room sooner, and those may go on.
void Scheduler::Impl::exchange_victims(Model& model) {
  Device& device = *model.device;
  std::vector<Instance*> late;
  Bytes sure = model.held + device.ledger.free();
  for (Instance* victim : model.victims) {
    const bool answers = victim->state == InstanceState::draining && victim->in_flight > 0;
    if (answers && victim->closing == Closing::for_load) {
      late.push_back(victim);
    } else {
      sure += victim->grant;
    }
  }
  const Bytes missing = need_of(model) - sure;
  if (late.empty() || missing <= Bytes(0)) return;
  std::vector<Instance*> instead = find_victims(device, model, missing, true);
  const auto is_long = [this](const Instance* victim) { return now - victim->since > kLongDrain; };
  if (instead.empty() && std::all_of(late.begin(), late.end(), is_long)) {
    instead = find_victims(device, model, missing, false);
    const auto is_late = [this](const Instance* victim) {
      return drain_of(*victim) == scheduling::Drain::late;
    };
    if (std::any_of(instead.begin(), instead.end(), is_late)) return;
    for (Instance* victim : late) victim->answers_long = !instead.empty();
  }
  if (instead.empty()) return;
  for (Instance* victim : instead) close(*victim, Closing::for_load, &model);
  for (Instance* victim : late) reopen(*victim);
}

// Frees what it held; victims that have not left yet stay.
void Scheduler::Impl::drop_claim(Model& model) {
  const std::vector<Instance*> victims = model.victims;
  model.device->dirty = true;
  forget_claim(model);
  for (Instance* victim : victims) {
    if (victim->state == InstanceState::draining && victim->closing == Closing::for_load) {
      reopen(*victim);
    }
  }
}

void Scheduler::Impl::forget_claim(Model& model) {
  Device& device = *model.device;
  device.ledger.unhold(std::exchange(model.held, Bytes(0)));
  for (Instance* victim : model.victims) victim->claimant = nullptr;
  model.victims.clear();
  model.claiming = false;
  device.claims.erase(std::remove(device.claims.begin(), device.claims.end(), &model),
                      device.claims.end());
}

// Bytes that come free soon by themselves and that no claim counts on.
Bytes Scheduler::Impl::leaving_bytes(const Device& device) const {
  Bytes sum;
  for (const Instance* instance : device.instances) {
    if (instance->claimant != nullptr) continue;
    const bool soon = instance->state == InstanceState::stopping ||
                      instance->state == InstanceState::evicting ||
                      (instance->state == InstanceState::draining && !instance->closed_busy &&
                       instance->closing != Closing::turn && now - instance->since <= kQuickDrain);
    if (soon) sum += instance->grant;
  }
  // One large victim may free more than its claim needs.
  for (const Model* claimant : device.claims) {
    if (waits_for_drain(*claimant)) continue;
    Bytes gathered = claimant->held;
    for (const Instance* victim : claimant->victims) gathered += victim->grant;
    sum += std::max(Bytes(0), gathered - need_of(*claimant));
  }
  return sum;
}

// ---- Victims

// Never a victim: pinned, or one of a model's min_instances.
bool Scheduler::Impl::permanent(const Instance& instance) const {
  if (!instance.is_open() && !instance.is_loading()) return false;
  const Model& model = *instance.model;
  if (model.removing) return false;
  return model.policy.pinned || (!model.held_down && alive(model) <= model.policy.min_instances);
}

Bytes Scheduler::Impl::permanent_bytes(const Device& device, const Model* besides) const {
  Bytes sum;
  for (const Instance* instance : device.instances) {
    // One that is being measured gives most of it back soon.
    if (instance->sizing || instance->model == besides) continue;
    if (permanent(*instance)) sum += instance->grant;
  }
  return sum;
}

Duration Scheduler::Impl::start_cost(const Model& model) const {
  if (model.policy.mechanism == EvictMechanism::stop || model.restore_time == Duration{}) {
    return model.load_time;
  }
  return model.restore_time + model.evict_time;
}

Duration Scheduler::Impl::fair_wait(const Model& model) const {
  return std::max(limits.fair_wait, 4 * start_cost(model));
}

// How often it is expected to be asked for, per second.
double Scheduler::Impl::reuse_rate(const Model& model, TimePoint at) const {
  return model.reuse.rate(at - model.last_arrival);
}

// What closing it is expected to cost: how often it is used x how long it takes to come back.
double Scheduler::Impl::loss(const Model& model, TimePoint at) const {
  const double cost = Seconds(start_cost(model)).count();
  return (cost > 0 ? cost : kDefaultCostSeconds) * reuse_rate(model, at);
}

// How long a model waits until one that is busy is closed for it. Sooner or later that one is
// loaded again: what is idle meanwhile costs nobody anything.
Duration Scheduler::Impl::busy_wait(const Model& claimant, const Model& victim) const {
  const Duration dearer = std::max(start_cost(claimant), start_cost(victim));
  return std::min(fair_wait(claimant), std::max(limits.min_residency, 4 * dearer));
}

scheduling::Drain Scheduler::Impl::drain_of(const Instance& instance) const {
  if (instance.in_flight == 0 && instance.model->queue.empty()) return scheduling::Drain::at_once;
  return instance.answers_long ? scheduling::Drain::late : scheduling::Drain::soon;
}

// Idle: at once, or nearly. Busy: for a claimant that has waited, and not when it has just come: of
// a contested place's time a third at most goes to loads.
bool Scheduler::Impl::may_close(const Instance& instance, const Model* claimant) const {
  const Model& model = *instance.model;
  const bool busy = instance.in_flight > 0 || !model.queue.empty();
  if (!busy) return now - instance.last_used >= limits.idle_residency;
  if (claimant == nullptr) return false;
  const Ticket* oldest = claimant->queue.oldest();
  if (oldest != nullptr && now - oldest->arrived < busy_wait(*claimant, model)) return false;
  return now - instance.resident_since >= std::max(limits.min_residency, 2 * start_cost(model));
}

// Victims that free at least `needed`, or none.
std::vector<scheduling::Instance*> Scheduler::Impl::find_victims(const Device& device,
                                                                 const Model& claimant,
                                                                 Bytes needed, bool idle_only) {
  std::vector<Instance*> found;
  std::vector<scheduling::Candidate> candidates;
  Bytes sum;
  ++victim_search;
  const auto collect = [&](Instance& instance) {
    Model& model = *instance.model;
    if (&model == &claimant || model.policy.pinned) return;
    if (model.victim_search != victim_search) model.victims_found = 0;
    model.victim_search = victim_search;
    const std::uint32_t kept = model.held_down ? 0 : model.policy.min_instances;
    if (model.victims_found + kept >= alive(model)) return;
    ++model.victims_found;
    candidates.push_back({found.size(), instance.grant, loss(model, now), drain_of(instance)});
    found.push_back(&instance);
    sum += instance.grant;
  };

  // The longest unused come first: most searches end within the idle ones.
  for (const auto& [key, instance] : device.open) {
    if (now - key.first < limits.idle_residency) break;
    if (candidates.size() >= kCandidates && sum >= needed) break;
    if (may_close(*instance, nullptr)) collect(*instance);
  }
  if (sum < needed && !idle_only) {
    for (const auto& [key, instance] : device.open) {
      if (!may_close(*instance, nullptr) && may_close(*instance, &claimant)) collect(*instance);
    }
  }
  std::vector<Instance*> victims;
  for (const scheduling::Candidate& victim :
       scheduling::choose_victims(std::move(candidates), needed)) {
    victims.push_back(found[victim.index]);
  }
  return victims;
}

// ---- Growth: memory that is held already comes before any load.

void Scheduler::Impl::serve_growth(Device& device) {
  for (Instance* instance : std::vector<Instance*>(device.growing)) {
    const Bytes missing = instance->high_water - instance->grant;
    const bool stays = instance->is_open() || instance->is_loading();
    if (missing > Bytes(0) && !stays) continue;  // it gives all back soon
    if (missing > device.ledger.free()) {
      const Bytes wanted_bytes = missing - device.ledger.free();
      if (wanted_bytes <= leaving_bytes(device)) continue;
      for (Instance* victim : find_victims(device, *instance->model, wanted_bytes, true)) {
        close(*victim, Closing::for_growth);
      }
      continue;
    }
    if (missing > Bytes(0)) {
      device.ledger.grant(missing);
      instance->grant += missing;
    }
    instance->over_since.reset();
    device.growing.erase(std::remove(device.growing.begin(), device.growing.end(), instance),
                         device.growing.end());
  }
}

}  // namespace omni
