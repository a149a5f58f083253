// The answer to "why is it not there?": what placement would find now, said without doing it.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "scheduler/impl.h"

namespace omni {

std::string_view to_string(Absence absence) {
  constexpr std::string_view kNames[] = {
      "none",         "unknown_model",  "unknown_device", "going_down",      "loading",
      "too_large",    "no_room_beside", "backing_off",    "not_asked_for",   "leaving",
      "no_load_slot", "victims_drain",  "behind_older",   "residents_in_use"};
  return kNames[static_cast<std::size_t>(absence)];
}

std::string_view to_string(NeedSource source) {
  constexpr std::string_view kNames[] = {"unknown", "declared", "profile", "evicted"};
  return kNames[static_cast<std::size_t>(source)];
}

namespace {

using Models = std::vector<const scheduling::Model*>;

void add(Models& models, const scheduling::Model* model) {
  if (std::find(models.begin(), models.end(), model) == models.end()) models.push_back(model);
}

// "a, b and c", the first few.
std::string names(const Models& models) {
  constexpr std::size_t kShown = 5;
  std::string text;
  for (std::size_t i = 0; i < models.size() && i < kShown; ++i) {
    if (i > 0) text += i + 1 == std::min(models.size(), kShown + 1) ? " and " : ", ";
    text += fmt::format("\"{}\"", models[i]->policy.name);
  }
  if (models.size() > kShown) text += fmt::format(" and {} more", models.size() - kShown);
  return text;
}

}  // namespace

void Scheduler::Impl::explain_absence(const Model& model, TimePoint at, Explanation& answer) const {
  const std::string& name = model.policy.name;
  const auto because = [&](Absence absence, std::string sentence, const Models& others = {}) {
    answer.absence = absence;
    answer.sentence = std::move(sentence);
    for (const Model* other : others) answer.others.push_back(other->policy.id);
  };
  const auto has = [&](auto predicate) {
    return std::any_of(model.instances.begin(), model.instances.end(), predicate);
  };

  // 1. It is there, or comes.
  if (has([](const Instance* instance) { return instance->is_open(); })) {
    return because(Absence::none, fmt::format("model \"{}\" is resident", name));
  }
  if (shutting_down || model.removing) {
    return because(Absence::going_down, shutting_down
                                            ? "the daemon is shutting down"
                                            : fmt::format("model \"{}\" is being removed", name));
  }
  if (model.device == nullptr) {
    return because(Absence::unknown_device, reason_to_refuse(&model)->message);
  }
  const Device& device = *model.device;
  if (has([](const Instance* instance) { return instance->is_loading(); })) {
    return because(Absence::loading, fmt::format("model \"{}\" is being loaded", name));
  }

  // 2. It cannot be.
  if (auto error = never_fits(model, answer.need)) {
    Models permanents;
    for (const Instance* instance : device.instances) {
      if (instance->model != &model && permanent(*instance)) add(permanents, instance->model);
    }
    if (error->code == ErrorCode::model_too_large) permanents.clear();
    return because(permanents.empty() ? Absence::too_large : Absence::no_room_beside,
                   std::move(error->message), permanents);
  }
  if (model.crash_loop.backing_off(at)) {
    answer.retry_in = model.crash_loop.retry_at() - at;
    return because(
        Absence::backing_off,
        fmt::format("model \"{}\" failed {} in a row and is tried again in {:.0f} s, or at "
                    "once by `omni load`; last: {}",
                    name, counted(model.crash_loop.failures(), "time"),
                    Seconds(answer.retry_in).count(), model.last_error));
  }

  // 3. Nobody wants it.
  if (!wanted(model) && !model.demand) {
    const char* why = model.held_down ? "was stopped by an operator" : "is not asked for";
    return because(Absence::not_asked_for,
                   fmt::format("model \"{}\" {}: its next request starts it", name, why));
  }

  // 4. It waits its turn.
  if (!model.demand) {
    return because(
        Absence::leaving,
        fmt::format("model \"{}\" starts again when its instance before has ended", name),
        {&model});
  }
  if (model.claiming && !model.victims.empty()) {
    Models victims;
    for (const Instance* victim : model.victims) add(victims, victim->model);
    return because(Absence::victims_drain,
                   fmt::format("model \"{}\" starts when {} {} left", name, names(victims),
                               victims.size() == 1 ? "has" : "have"),
                   victims);
  }
  const Model* first = device.blocked_by;
  if (!model.claiming && first != nullptr && first != &model) {
    return because(Absence::behind_older,
                   fmt::format("model \"{}\" has waited longer for room: nobody passes it",
                               first->policy.name),
                   {first});
  }
  if (model.claiming || slots_used(device) >= limits.loads_per_device) {
    Models loading;
    for (const Instance* instance : device.instances) {
      if (instance->is_loading()) add(loading, instance->model);
    }
    for (const Model* claimant : device.claims) {
      if (claimant != &model) add(loading, claimant);
    }
    return because(Absence::no_load_slot,
                   fmt::format("{} models load at once on device {}, and {} came first",
                               limits.loads_per_device, device.name, names(loading)),
                   loading);
  }
  Models leaving;
  Models residents;
  for (const Instance* instance : device.instances) {
    if (instance->model == &model) continue;
    if (instance->is_open() || instance->is_loading()) {
      add(residents, instance->model);
    } else if (instance->grant > Bytes(0)) {
      add(leaving, instance->model);
    }
  }
  if (!leaving.empty() && answer.need - device.ledger.free() <= leaving_bytes(device)) {
    return because(Absence::victims_drain,
                   fmt::format("model \"{}\" starts when {} {} left", name, names(leaving),
                               leaving.size() == 1 ? "has" : "have"),
                   leaving);
  }
  because(
      Absence::residents_in_use,
      fmt::format("model \"{}\" needs {}, {} are free, and {} may not be closed yet: busy, or "
                  "loaded a moment ago",
                  name, to_string(answer.need), to_string(device.ledger.free()), names(residents)),
      residents);
}

// Its place among all that may be closed; a model of several instances loses its first there.
std::optional<std::uint32_t> Scheduler::Impl::victim_rank(const Model& model, TimePoint at) const {
  std::vector<scheduling::Candidate> candidates;
  std::vector<const Model*> owners;
  for (const auto& [used, instance] : model.device->open) {
    if (permanent(*instance)) continue;
    candidates.push_back(
        {owners.size(), instance->grant, loss(*instance->model, at), drain_of(*instance)});
    owners.push_back(instance->model);
  }
  std::sort(candidates.begin(), candidates.end(), scheduling::closes_before);
  const auto own = std::find_if(candidates.begin(), candidates.end(), [&](const auto& candidate) {
    return owners[candidate.index] == &model;
  });
  if (own == candidates.end()) return std::nullopt;
  return static_cast<std::uint32_t>(own - candidates.begin()) + 1;
}

Explanation Scheduler::explain(ModelId id, TimePoint now) const {
  Explanation answer{.model = id};
  const Impl::Model* model = impl_->find_model(id);
  if (model == nullptr) {
    answer.absence = Absence::unknown_model;
    answer.sentence = "the scheduler does not know this model";
    return answer;
  }
  now = std::max(now, impl_->now);
  answer.state = impl_->state_of(*model);
  answer.pinned = model->policy.pinned;
  answer.waiting = model->queue.size();
  if (const auto* oldest = model->queue.oldest()) answer.oldest_wait = now - oldest->arrived;
  if (model->policy.declared) answer.need_source = NeedSource::declared;
  if (model->profile) answer.need_source = NeedSource::profile;
  if (impl_->evicted_instance(*model) != nullptr) answer.need_source = NeedSource::evicted;
  answer.need = impl_->size_of(*model).value_or(Bytes(0));
  answer.reuse_per_second = impl_->reuse_rate(*model, now);
  answer.restart_cost = impl_->start_cost(*model);
  if (const Impl::Device* device = model->device) {
    answer.need = impl_->need_of(*model);
    answer.device = device->name;
    answer.budget = device->ledger.budget();
    answer.granted = device->ledger.granted();
    answer.held = device->ledger.held();
    answer.free = device->ledger.free();
    answer.victim_rank = impl_->victim_rank(*model, now);
  }
  const auto bytes = std::max<std::int64_t>(answer.need.count(), 1);
  answer.loss_per_byte = impl_->loss(*model, now) / static_cast<double>(bytes);
  impl_->explain_absence(*model, now, answer);
  return answer;
}

}  // namespace omni
