// The real scheduler in the shortest control loop there can be: the fast path serves what is
// resident, as an I/O thread does, and the scheduler hears of that once a tick.
#include <cstdlib>
#include <deque>
#include <map>

#include "event_queue.h"
#include "placement_meter.h"
#include "scheduler/scheduler.h"

namespace omni::simulation {
namespace {

using namespace std::chrono_literals;

constexpr Duration kOmniTick = 100ms;
constexpr Bytes kSize(1000);

class OmniNode {
 public:
  OmniNode(const std::vector<Arrival>& arrivals, const Machine& machine, bool evict)
      : arrivals_(arrivals),
        machine_(machine),
        meter_(events_.now()),
        scheduler_(limits(arrivals.size(), machine)) {
    scheduler_.add_device(kHostDevice, "device", kSize * machine.slots);
    std::uint32_t models = 0;
    for (const Arrival& arrival : arrivals) models = std::max(models, arrival.model + 1);
    models_.resize(models);
    for (std::uint32_t rank = 0; rank < models; ++rank) {
      ModelPolicy policy{.id = ModelId{rank + 1}, .name = "m", .declared = kSize};
      policy.concurrency = machine.concurrency;
      policy.stop_after = 24h * 365;
      policy.mechanism = evict ? EvictMechanism::evict : EvictMechanism::stop;
      feed(scheduler_.on_model(policy, events_.now()));
    }
  }

  Figures run() {
    const TimePoint begin = events_.now();
    for (std::size_t i = 0; i < arrivals_.size(); ++i) {
      events_.at(begin + arrivals_[i].at, [this, i] { arrive(i); });
    }
    while (events_.run_next()) {
    }
    return meter_.figures();
  }

 private:
  struct Process {
    InstanceId id;
    std::uint32_t rank = 0;
    bool open = false;
    bool evicted_before = false;
    std::uint32_t in_flight = 0;
    std::uint64_t served = 0;  // since the last tick
    bool changed = false;
    TimePoint last_release;
  };
  struct Model {
    std::vector<Process*> processes;
  };
  struct Waiter {
    std::size_t arrival = 0;
    TimePoint since;
  };

  // The queue is as long as it gets, nobody gives up: all policies serve the same requests.
  static SchedulerLimits limits(std::size_t requests, const Machine& machine) {
    SchedulerLimits limits;
    limits.queue_per_model = limits.queue_total = static_cast<std::uint32_t>(requests);
    limits.loads_per_device = machine.loads;
    limits.check_invariants = false;  // world.cpp looks after them, in less regular surroundings
    return limits;
  }

  void arrive(std::size_t i) {
    const std::uint32_t rank = arrivals_[i].model;
    keep_ticking();
    if (!scheduler_.has_waiters(ModelId{rank + 1})) {
      for (Process* process : models_[rank].processes) {
        if (!process->open || process->in_flight >= machine_.concurrency) continue;
        return begin(*process, {i, events_.now()});
      }
    }
    const TicketId ticket{++tickets_};
    waiters_[ticket] = {i, events_.now()};
    feed(scheduler_.on_request(ticket, ModelId{rank + 1}, events_.now() + 24h * 365, 0,
                               events_.now()));
  }

  void begin(Process& process, Waiter waiter) {
    ++process.in_flight;
    process.changed = true;
    meter_.waited(events_.now() - waiter.since);
    meter_.serves(events_.now(), 1);
    events_.after(arrivals_[waiter.arrival].service, [this, &process] { end(process); });
  }

  void end(Process& process) {
    --process.in_flight;
    ++process.served;
    process.changed = true;
    process.last_release = events_.now();
    meter_.serves(events_.now(), -1);
    keep_ticking();
    if (!process.open && process.in_flight == 0) {
      feed(scheduler_.on_drained(process.id, events_.now()));
    } else if (process.open && scheduler_.has_waiters(ModelId{process.rank + 1})) {
      feed(scheduler_.on_freed(process.id, events_.now()));
    }
  }

  void feed(Actions actions) {
    for (const Action& action : actions) {
      std::visit([this](const auto& order) { act(order); }, action);
    }
    while (!full_.empty() || !drained_.empty()) {
      if (!full_.empty()) {
        const ServeTicket offer = full_.front();
        full_.pop_front();
        feed(scheduler_.on_full(offer.ticket, offer.instance, events_.now()));
      } else {
        const InstanceId id = drained_.front();
        drained_.pop_front();
        feed(scheduler_.on_drained(id, events_.now()));
      }
    }
  }

  void act(const StartInstance& start) {
    Process& process = processes_[start.instance];
    process.id = start.instance;
    process.rank = static_cast<std::uint32_t>(start.model.value - 1);
    models_[process.rank].processes.push_back(&process);
    ++meter_.counted.starts;
    load(process, machine_.load);
  }
  void act(const RestoreInstance& restore) {
    ++meter_.counted.restores;
    load(processes_.at(restore.instance), machine_.restore);
  }
  void load(Process& process, Duration time) {
    meter_.loads(events_.now(), 1);
    events_.after(time, [this, &process] {
      meter_.loads(events_.now(), -1);
      process.open = true;
      process.last_release = events_.now();
      keep_ticking();
      feed(scheduler_.on_resident(process.id, events_.now()));
    });
  }
  void act(const CloseInstance& close) {
    Process& process = processes_.at(close.instance);
    process.open = false;
    if (process.in_flight == 0) drained_.push_back(process.id);
  }
  void act(const OpenInstance& open) { processes_.at(open.instance).open = true; }
  void act(const StopInstance& stop) {
    Process& process = processes_.at(stop.instance);
    events_.after(machine_.stop, [this, &process] {
      std::erase(models_[process.rank].processes, &process);
      const InstanceId id = process.id;
      processes_.erase(id);
      keep_ticking();
      feed(scheduler_.on_stopped(id, events_.now()));
    });
  }
  void act(const EvictInstance& evict) {
    Process& process = processes_.at(evict.instance);
    const bool again = std::exchange(process.evicted_before, true);
    events_.after(again ? machine_.evict_again : machine_.evict, [this, &process] {
      keep_ticking();
      feed(scheduler_.on_evicted(process.id, events_.now()));
    });
  }
  void act(const ServeTicket& serve) {
    Process& process = processes_.at(serve.instance);
    if (!process.open || process.in_flight >= machine_.concurrency) {
      full_.push_back(serve);
      return;
    }
    auto waiter = waiters_.find(serve.ticket);
    begin(process, waiter->second);
    waiters_.erase(waiter);
  }
  // Nobody leaves and nothing fails here: no start is aborted, no ticket refused.
  void act(const AbortStart&) { std::abort(); }
  void act(const RefuseTicket&) { std::abort(); }

  // A tick changes nothing when nobody waits and nothing was used since the last: it is left out.
  void keep_ticking() {
    if (ticking_) return;
    ticking_ = true;
    events_.after(kOmniTick, [this] { tick(); });
  }
  void tick() {
    ticking_ = false;
    bool changed = false;
    for (auto& [id, process] : processes_) {
      if (!std::exchange(process.changed, false)) continue;
      changed = true;
      feed(scheduler_.on_activity(id, process.in_flight, std::exchange(process.served, 0),
                                  process.last_release, events_.now()));
    }
    feed(scheduler_.on_tick(events_.now()));
    if (changed || !waiters_.empty()) keep_ticking();
  }

  const std::vector<Arrival>& arrivals_;
  const Machine& machine_;
  EventQueue events_;
  Meter meter_;
  Scheduler scheduler_;
  std::vector<Model> models_;
  std::map<InstanceId, Process> processes_;
  std::map<TicketId, Waiter> waiters_;
  std::uint64_t tickets_ = 0;
  std::deque<ServeTicket> full_;    // offers that failed, to be answered first
  std::deque<InstanceId> drained_;  // closed when they were empty
  bool ticking_ = false;
};

}  // namespace

Figures play_omni(const std::vector<Arrival>& arrivals, const Machine& machine, bool evict) {
  return OmniNode(arrivals, machine, evict).run();
}

}  // namespace omni::simulation
