// What must hold after every event.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "scheduler/impl.h"

namespace omni {
namespace {

void require(bool holds, const char* what, std::uint64_t id) {
  if (holds) return;
  fmt::print(stderr, "scheduler: invariant does not hold: {} ({})\n", what, id);
  std::fflush(stderr);
  std::abort();
}

}  // namespace

void Scheduler::Impl::check() const {
  for (const auto& [id, device] : devices) {
    Bytes granted;
    std::uint32_t loads = 0;
    std::size_t open = 0;
    for (const Instance* instance : device->instances) {
      granted += instance->grant;
      if (instance->is_loading()) ++loads;
      if (instance->is_open()) ++open;
      require(instance->grant >= Bytes(0), "grants are not negative", instance->id.value);
      require(instance->state != InstanceState::evicted || instance->grant == Bytes(0),
              "evicted instances hold no bytes", instance->id.value);
      const bool victim =
          instance->state == InstanceState::draining &&
          (instance->closing == Closing::for_load || instance->closing == Closing::for_growth);
      require(!victim || !instance->model->policy.pinned, "pinned models are no victims",
              instance->id.value);
    }
    Bytes held;
    for (const Model* claimant : device->claims) {
      held += claimant->held;
      require(claimant->claiming, "claims are listed once", claimant->policy.id.value);
      require(claimant->demand.has_value(), "who claims bytes wants them",
              claimant->policy.id.value);
    }
    require(granted == device->ledger.granted(), "the ledger knows all grants", id.value);
    require(held == device->ledger.held(), "the ledger knows all claims", id.value);
    require(device->ledger.free() >= Bytes(0), "grants and claims are within the budget", id.value);
    require(loads == device->loading.size(), "loads are counted", id.value);
    require(loads <= limits.loads_per_device, "loads at once are bounded", id.value);
    require(open == device->open.size(), "open instances are indexed", id.value);
  }
  std::size_t queued = 0;
  for (const auto& [id, model] : models) {
    queued += model->queue.size();
    // Twice: a model that takes another's place takes its queue.
    const auto longest = 2 * std::max(limits.queue_per_model, longest_queue);
    require(model->queue.size() <= longest, "a model's queue is bounded", id.value);
    require(waiting.contains(id) == !model->queue.empty(), "waiting models are indexed", id.value);
    require(model->claiming || (model->held == Bytes(0) && model->victims.empty()),
            "bytes are held by claims alone", id.value);
    for (const Instance* victim : model->victims) {
      require(victim->claimant == model.get(), "a victim knows its claimant", victim->id.value);
    }
    if (model->demand) {
      const auto entry = model->device->demands.find(*model->demand);
      require(entry != model->device->demands.end() && entry->model == model.get(),
              "a demand is in its device's list", id.value);
    }
    const bool left = model->removing && model->queue.empty();
    for (const Instance* instance : model->instances) {
      require(!left || !instance->is_open(), "an instance of a removed model goes", id.value);
    }
  }
  require(queued == deadlines.size(), "every waiting ticket has a deadline", queued);
  require(queued + offers.size() == tickets.size(), "every ticket waits or is offered", queued);
  for (const auto& [ticket, instance] : offers) {
    require(tickets.contains(ticket->id), "offered tickets live until they are answered",
            ticket->id.value);
  }
}

}  // namespace omni
