// One instance's way through its states, and where its bytes go.
#include <algorithm>

#include "scheduler/impl.h"

namespace omni {
namespace {

void remove(std::vector<scheduling::Instance*>& from, const scheduling::Instance* instance) {
  from.erase(std::remove(from.begin(), from.end(), instance), from.end());
}

// Nothing opens it again.
bool is_final(scheduling::Closing why) {
  using enum scheduling::Closing;
  return why == over_grant || why == stopped || why == removed || why == shut_down;
}

std::string_view reason(scheduling::Closing why) {
  switch (why) {
    case scheduling::Closing::open:
    case scheduling::Closing::turn:
      break;
    case scheduling::Closing::for_load:
      return "another model needs its memory";
    case scheduling::Closing::for_growth:
      return "a model that grew needs its memory";
    case scheduling::Closing::idle:
      return "idle for stop_after";
    case scheduling::Closing::over_grant:
      return "it holds more memory than it was granted";
    case scheduling::Closing::stopped:
      return "stopped by an operator";
    case scheduling::Closing::removed:
      return "its model was removed or has changed";
    case scheduling::Closing::shut_down:
      return "the daemon is shutting down";
  }
  return "not wanted";
}

Duration smoothed(Duration known, Duration seen) {
  return known == Duration{} ? seen : (known + seen) / 2;
}

}  // namespace

void Scheduler::Impl::set_state(Instance& instance, InstanceState state) {
  const bool was_open = instance.is_open();
  const bool was_loading = instance.is_loading();
  instance.state = state;
  instance.since = now;
  Device& device = *instance.device;
  if (was_open && !instance.is_open()) device.open.erase({instance.last_used, instance.id});
  if (!was_open && instance.is_open()) {
    device.open.emplace(std::pair(instance.last_used, instance.id), &instance);
  }
  if (was_loading && !instance.is_loading()) remove(device.loading, &instance);
  if (!was_loading && instance.is_loading()) device.loading.push_back(&instance);
  if (was_loading || instance.is_open()) device.dirty = true;
  touch(*instance.model);
}

void Scheduler::Impl::use(Instance& instance, TimePoint when) {
  if (when <= instance.last_used) return;
  if (instance.is_open()) {
    auto entry = instance.device->open.extract({instance.last_used, instance.id});
    entry.key().first = when;
    instance.device->open.insert(std::move(entry));
  }
  instance.last_used = when;
}

// The word is open, or the caller orders it.
void Scheduler::Impl::open(Instance& instance) {
  instance.closing = Closing::open;
  instance.credit =
      std::max(instance.model->policy.concurrency, instance.in_flight + 1) - instance.in_flight;
  set_state(instance, InstanceState::resident);
}

void Scheduler::Impl::reopen(Instance& instance) {
  unlink_victim(instance);
  actions.push_back(OpenInstance{instance.id});
  open(instance);
}

void Scheduler::Impl::close(Instance& instance, Closing why, Model* claimant) {
  instance.closing = why;
  instance.closed_busy = instance.in_flight > 0;
  instance.claimant = claimant;
  instance.credit = 0;
  if (claimant != nullptr) claimant->victims.push_back(&instance);
  set_state(instance, InstanceState::draining);
  actions.push_back(CloseInstance{instance.id});
}

// Drained: its bytes leave the device in the way its model has.
void Scheduler::Impl::vacate(Instance& instance) {
  if (instance.model->policy.mechanism == EvictMechanism::stop || instance.cannot_evict) {
    stop(instance, std::string(reason(instance.closing)));
    return;
  }
  set_state(instance, InstanceState::evicting);
  actions.push_back(EvictInstance{instance.id});
}

void Scheduler::Impl::stop(Instance& instance, std::string why) {
  set_state(instance, InstanceState::stopping);
  actions.push_back(StopInstance{instance.id, std::move(why)});
}

void Scheduler::Impl::abort(Instance& instance) {
  set_state(instance, InstanceState::stopping);
  actions.push_back(AbortStart{instance.id});
}

void Scheduler::Impl::send_away(Instance& instance, Closing why) {
  switch (instance.state) {
    case InstanceState::starting:
      return abort(instance);
    case InstanceState::resident:
      return close(instance, why);
    case InstanceState::evicted:
      return stop(instance, std::string(reason(why)));
    case InstanceState::draining:
    case InstanceState::evicting:
    case InstanceState::restoring:
      instance.closing = why;
      return;
    default:
      return;
  }
}

// Bytes leave the instance: to the claim that closed it, as far as that needs them, or free.
void Scheduler::Impl::give_back(Instance& instance, Bytes bytes) {
  Device& device = *instance.device;
  device.ledger.release(bytes);
  instance.grant -= bytes;
  device.dirty = true;
  Model* claimant = instance.claimant;
  if (claimant == nullptr) return;
  const Bytes wanted_bytes = need_of(*claimant);
  const Bytes missing = std::max(Bytes(0), wanted_bytes - claimant->held);
  const Bytes share = std::min(bytes, missing);
  device.ledger.hold(share);
  claimant->held += share;
  unlink_victim(instance);
}

void Scheduler::Impl::unlink_victim(Instance& instance) {
  if (instance.claimant == nullptr) return;
  remove(instance.claimant->victims, &instance);
  instance.claimant = nullptr;
}

void Scheduler::Impl::erase(Instance& instance) {
  set_state(instance, InstanceState::stopped);
  give_back(instance, instance.grant);
  unlink_victim(instance);
  remove(instance.model->instances, &instance);
  if (instance.model->instances.empty()) instance.model->told_leases = 0;
  remove(instance.device->instances, &instance);
  remove(instance.device->growing, &instance);
  instances.erase(instance.id);
}

// A start for requests that have all left. Not one whose requests ran out of time: then a model
// that loads longer than they wait would never be there for the next ones.
void Scheduler::Impl::stop_unwanted_starts(Model& model) {
  if (wanted(model)) return;
  if (alive(model) <= model.policy.min_instances && !model.held_down) return;
  const bool serving = std::any_of(model.instances.begin(), model.instances.end(),
                                   [](const Instance* instance) { return instance->is_open(); });
  if (serving) return;  // scaling out: what was waited for may be waited for again
  for (Instance* instance : model.instances) {
    if (instance->state == InstanceState::starting) abort(*instance);
  }
}

bool Scheduler::Impl::wanted(const Model& model) const {
  return !model.queue.empty() || model.load_wanted;
}

// ---- Events of one instance

Actions Scheduler::on_drained(InstanceId id, TimePoint now) {
  impl_->begin(now);
  impl_->end_offers();
  auto* instance = impl_->find_instance(id);
  if (instance == nullptr || instance->state != InstanceState::draining) return impl_->finish();
  using scheduling::Closing;
  instance->in_flight = 0;
  scheduling::Model& model = *instance->model;
  if (is_final(instance->closing)) {
    impl_->stop(*instance, std::string(reason(instance->closing)));
  } else if (instance->closing == Closing::turn) {
    impl_->reopen(*instance);
  } else if (instance->closing == Closing::idle) {
    if (impl_->wanted(model)) {
      impl_->reopen(*instance);
    } else {
      impl_->stop(*instance, std::string(reason(Closing::idle)));
    }
  } else if (instance->closing == Closing::for_growth && impl_->wanted(model) &&
             instance->device->growing.empty()) {
    impl_->reopen(*instance);
  } else {
    impl_->vacate(*instance);
  }
  return impl_->finish();
}

Actions Scheduler::on_resident(InstanceId id, TimePoint now) {
  impl_->begin(now);
  impl_->end_offers();
  auto* instance = impl_->find_instance(id);
  // One that is stopping crossed with its abort.
  const bool evict_failed = instance != nullptr && instance->state == InstanceState::evicting;
  if (instance == nullptr || (!instance->is_loading() && !evict_failed)) return impl_->finish();
  scheduling::Model& model = *instance->model;
  const scheduling::Closing closing = instance->closing;
  scheduling::Model* claimant = instance->claimant;
  if (evict_failed) {
    instance->cannot_evict = true;
    impl_->unlink_victim(*instance);
  } else {
    Duration& learned =
        instance->state == InstanceState::starting ? model.load_time : model.restore_time;
    learned = smoothed(learned, now - instance->since);
    model.load_wanted = false;
    instance->resident_since = now;
    impl_->use(*instance, now);
  }
  instance->in_flight = 0;
  impl_->open(*instance);
  if (is_final(closing)) {
    impl_->close(*instance, closing);
  } else if (evict_failed && claimant != nullptr) {
    impl_->close(*instance, scheduling::Closing::for_load, claimant);
  }
  return impl_->finish();
}

Actions Scheduler::on_evicted(InstanceId id, TimePoint now) {
  impl_->begin(now);
  impl_->end_offers();
  auto* instance = impl_->find_instance(id);
  if (instance == nullptr || instance->state != InstanceState::evicting) return impl_->finish();
  scheduling::Model& model = *instance->model;
  model.evict_time = smoothed(model.evict_time, now - instance->since);
  instance->device->leave_time = smoothed(instance->device->leave_time, now - instance->since);
  instance->evicted_size = instance->grant;
  instance->over_since.reset();
  remove(instance->device->growing, instance);
  impl_->set_state(*instance, InstanceState::evicted);
  impl_->give_back(*instance, instance->grant);
  const scheduling::Closing why = std::exchange(instance->closing, scheduling::Closing::open);
  if (is_final(why)) impl_->stop(*instance, std::string(reason(why)));
  return impl_->finish();
}

Actions Scheduler::on_stopped(InstanceId id, TimePoint now) {
  impl_->begin(now);
  impl_->end_offers();
  if (auto* instance = impl_->find_instance(id)) {
    if (instance->state == InstanceState::stopping && instance->grant > Bytes(0)) {
      Duration& leave_time = instance->device->leave_time;
      leave_time = smoothed(leave_time, now - instance->since);
    }
    // An orderly end after it had served: whatever failed before is over.
    if (instance->resident_since != TimePoint{}) instance->model->crash_loop.reset();
    impl_->erase(*instance);
  }
  return impl_->finish();
}

Actions Scheduler::on_failed(InstanceId id, Error error, bool poison, TimePoint now) {
  impl_->begin(now);
  impl_->end_offers();
  auto* instance = impl_->find_instance(id);
  if (instance == nullptr) return impl_->finish();
  scheduling::Model& model = *instance->model;
  const InstanceState state = instance->state;
  const bool was_resident = instance->resident_since != TimePoint{};
  const bool was_stable =
      was_resident && now - instance->resident_since >= impl_->limits.stable_after;
  impl_->erase(*instance);
  // It was on its way out: how it went is of no interest.
  if (state == InstanceState::stopping) return impl_->finish();

  model.last_error = error.message;
  const SchedulerLimits& limits = impl_->limits;
  if (was_stable) model.crash_loop.reset();
  if (state == InstanceState::starting) {
    model.crash_loop.start_failed(now, limits.first_back_off, limits.last_back_off);
    model.load_wanted = false;
  } else if (!poison) {
    model.crash_loop.died(now, limits.first_back_off, limits.last_back_off);
  }
  // Its requests fail with it, unless another instance may still serve them.
  if (model.crash_loop.backing_off(now) && impl_->alive(model) == 0) {
    model.load_wanted = false;
    if (state != InstanceState::starting) error = impl_->back_off_error(model);
    impl_->refuse_all(model, error, impl_->retry_after(model));
  }
  return impl_->finish();
}

Actions Scheduler::on_activity(InstanceId id, std::uint32_t in_flight, std::uint64_t served,
                               TimePoint last_used, TimePoint now) {
  impl_->begin(now);
  impl_->end_offers();
  auto* instance = impl_->find_instance(id);
  if (instance == nullptr) return impl_->finish();
  scheduling::Model& model = *instance->model;
  instance->in_flight = in_flight;
  if (in_flight == 0) instance->answers_long = false;
  impl_->use(*instance, in_flight > 0 ? now : last_used);
  // Leases that began since the last call; those of tickets were counted when these arrived.
  const std::uint64_t rated = std::exchange(instance->rated_in_flight, in_flight);
  const std::uint64_t began = std::max(served + in_flight, rated) - rated;
  const std::uint64_t told = std::min(began, model.told_leases);
  model.told_leases -= told;
  if (began > told) impl_->note_arrival(model);
  if (instance->is_open()) {
    const std::uint32_t places = model.policy.concurrency;
    instance->credit = places > in_flight ? places - in_flight : 0;
    if (!model.queue.empty()) impl_->touch(model);
  }
  return impl_->finish();
}

Actions Scheduler::on_usage(InstanceId id, Bytes high_water, TimePoint now) {
  impl_->begin(now);
  impl_->end_offers();
  auto* instance = impl_->find_instance(id);
  const bool on_device = instance != nullptr && instance->state != InstanceState::evicted;
  if (!on_device || high_water <= Bytes(0)) return impl_->finish();
  scheduling::Model& model = *instance->model;
  scheduling::Device& device = *instance->device;
  instance->high_water = std::max(instance->high_water, high_water);
  model.profile = std::max(model.profile.value_or(Bytes(0)), high_water);
  // The first measure of a model of unknown size: what it does not need is free again.
  if (instance->sizing && instance->is_open()) {
    instance->sizing = false;
    if (instance->grant > *model.profile)
      impl_->give_back(*instance, instance->grant - *model.profile);
  }
  if (instance->high_water > instance->grant) {
    const bool listed =
        std::find(device.growing.begin(), device.growing.end(), instance) != device.growing.end();
    if (!listed) device.growing.push_back(instance);
    const bool far_over = instance->high_water > instance->grant + instance->grant / 10;
    if (far_over && !instance->over_since) instance->over_since = now;
    device.dirty = true;
  }
  return impl_->finish();
}

}  // namespace omni
