// Tickets: queued, offered, refused.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "scheduler/impl.h"

namespace omni {

void Scheduler::Impl::enqueue(Ticket& ticket) {
  Model& model = *ticket.model;
  if (model.queue.empty()) waiting.emplace(model.policy.id, &model);
  model.queue.insert(ticket);
  deadlines.emplace(ticket.deadline, ticket.id);
}

void Scheduler::Impl::dequeue(Ticket& ticket) {
  Model& model = *ticket.model;
  model.queue.erase(ticket);
  deadlines.erase({ticket.deadline, ticket.id});
  if (!model.queue.empty()) return;
  waiting.erase(model.policy.id);
  model.passed = false;
}

// What the loop did not answer with on_full it has served.
void Scheduler::Impl::end_offers() {
  for (auto& [ticket, instance] : offers) tickets.erase(ticket->id);
  offers.clear();
}

void Scheduler::Impl::refuse(TicketId ticket, Error error, std::int64_t retry) {
  actions.push_back(RefuseTicket{ticket, std::move(error), retry});
}

void Scheduler::Impl::refuse_all(Model& model, const Error& error, std::int64_t retry) {
  while (Ticket* ticket = model.queue.front()) {
    const TicketId id = ticket->id;
    dequeue(*ticket);
    tickets.erase(id);
    refuse(id, error, retry);
  }
  touch(model);
}

// Why a new request of the model is not even queued.
std::optional<Error> Scheduler::Impl::reason_to_refuse(const Model* model) const {
  if (shutting_down) return Error{ErrorCode::shutting_down, "the daemon is shutting down"};
  if (model == nullptr) return Error{ErrorCode::model_not_found, "there is no such model"};
  if (model->removing) {
    return Error{
        ErrorCode::model_stopped,
        "the model was removed or changed while the request was on its way: send it again"};
  }
  const std::string& name = model->policy.name;
  if (model->device == nullptr) {
    return Error{ErrorCode::invalid_config,
                 fmt::format("model \"{}\" wants device {}, which this node does "
                             "not have: correct its device",
                             name, to_string(model->policy.device))};
  }
  if (model->queue.size() >= limits.queue_per_model) {
    return Error{
        ErrorCode::queue_full,
        fmt::format(
            "model \"{}\" has {} waiting requests, as many as limits.queue_per_model allows", name,
            model->queue.size())};
  }
  if (deadlines.size() >= limits.queue_total) {
    return Error{ErrorCode::queue_full,
                 fmt::format("{} requests wait on this node, as many as limits.queue_total allows",
                             deadlines.size())};
  }
  if (alive(*model) == 0 && model->crash_loop.backing_off(now)) return back_off_error(*model);
  return std::nullopt;
}

Error Scheduler::Impl::back_off_error(const Model& model) const {
  return {ErrorCode::load_failed,
          fmt::format("model \"{}\" failed {} in a row and is tried again in {} s; last: {}",
                      model.policy.name, counted(model.crash_loop.failures(), "time"),
                      retry_after(model), model.last_error)};
}

std::int64_t Scheduler::Impl::retry_after(const Model& model) const {
  const Duration wait =
      model.crash_loop.backing_off(now) ? model.crash_loop.retry_at() - now : model.load_time;
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(wait).count();
  return std::clamp<std::int64_t>(seconds, 1, 600);
}

void Scheduler::Impl::note_arrival(Model& model) {
  if (model.asked) model.reuse.add_gap(now - model.last_arrival);
  model.asked = true;
  model.last_arrival = now;
}

// Offers waiting tickets to open instances, the emptiest first.
void Scheduler::Impl::serve(Model& model) {
  while (Ticket* ticket = model.queue.front()) {
    Instance* best = nullptr;
    for (Instance* instance : model.instances) {
      if (!instance->is_open() || instance->credit == 0) continue;
      if (best == nullptr || instance->credit > best->credit) best = instance;
    }
    if (best == nullptr) return;
    dequeue(*ticket);
    --best->credit;
    ++best->in_flight;
    ++model.told_leases;
    use(*best, now);
    offers.emplace_back(ticket, best->id);
    actions.push_back(ServeTicket{ticket->id, best->id});
  }
}

// I/O threads hand a released lease to their own oldest ticket, so a ticket of another thread may
// be passed for ever. When one has aged so, an instance is drained and its places are given by age.
void Scheduler::Impl::give_turn(Model& model) {
  const Ticket* oldest = model.queue.oldest();
  if (!model.passed || oldest == nullptr || now - oldest->arrived < fair_wait(model)) return;
  const bool in_progress =
      std::any_of(model.instances.begin(), model.instances.end(), [](const Instance* instance) {
        return instance->state == InstanceState::draining && instance->closing == Closing::turn;
      });
  if (in_progress) return;
  for (Instance* instance : model.instances) {
    if (!instance->is_open()) continue;
    model.passed = false;
    close(*instance, Closing::turn);
    return;
  }
}

}  // namespace omni
