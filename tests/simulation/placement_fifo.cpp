// A swap router's queue, as llama-swap's FIFO scheduler over a matrix of "any so many of all":
// benchmarks/placement/README.md says what is modelled.
#include <deque>
#include <map>
#include <set>

#include "event_queue.h"
#include "placement_meter.h"

namespace omni::simulation {
namespace {

class FifoNode {
 public:
  FifoNode(const std::vector<Arrival>& arrivals, const Machine& machine)
      : arrivals_(arrivals), machine_(machine), meter_(events_.now()) {}

  Figures run() {
    const TimePoint begin = events_.now();
    for (std::size_t i = 0; i < arrivals_.size(); ++i) {
      events_.at(begin + arrivals_[i].at, [this, i] {
        const Request request{i, events_.now()};
        if (!decide(request)) queue_.push_back(request);
      });
    }
    while (events_.run_next()) {
    }
    return meter_.figures();
  }

 private:
  struct Request {
    std::size_t arrival;
    TimePoint since;
  };
  struct Model {
    bool running = false;  // starting, ready or stopping
    bool ready = false;
    std::deque<Request> queue;  // over its concurrency
    std::uint32_t in_flight = 0;
    TimePoint last_used;
    bool busy() const { return in_flight > 0 || !queue.empty(); }
  };
  struct Swap {
    std::vector<std::uint32_t> evicts;
    std::vector<Request> waiters;
  };

  // Served, joined to a swap, or a swap begun for it; else it has to be queued.
  bool decide(Request request) {
    const std::uint32_t rank = arrivals_[request.arrival].model;
    if (auto swap = swaps_.find(rank); swap != swaps_.end()) {
      swap->second.waiters.push_back(request);
      return true;
    }
    const std::vector<std::uint32_t> evicts = evictions_for(rank);
    if (collides(rank, evicts)) return false;
    if (models_[rank].ready && evicts.empty()) {
      grant(rank, request);
      return true;
    }
    for (std::uint32_t victim : evicts) {
      if (models_[victim].busy()) return false;
    }
    swap(rank, evicts, request);
    return true;
  }

  // The longest unused of those that run or will run, so many that the new one fits.
  std::vector<std::uint32_t> evictions_for(std::uint32_t target) {
    std::set<std::uint32_t> running;
    for (const auto& [rank, model] : models_) {
      if (model.running) running.insert(rank);
    }
    for (const auto& [rank, swap] : swaps_) running.insert(rank);
    running.erase(target);
    std::vector<std::uint32_t> evicts;
    while (running.size() - evicts.size() + 1 > machine_.slots) {
      const std::uint32_t* idlest = nullptr;
      for (const std::uint32_t& rank : running) {
        if (std::find(evicts.begin(), evicts.end(), rank) != evicts.end()) continue;
        if (idlest == nullptr || last_used(rank) < last_used(*idlest)) idlest = &rank;
      }
      evicts.push_back(*idlest);
    }
    return evicts;
  }

  TimePoint last_used(std::uint32_t rank) {
    const Model& model = models_[rank];
    return model.busy() || swaps_.contains(rank) ? events_.now() : model.last_used;
  }

  bool collides(std::uint32_t target, const std::vector<std::uint32_t>& evicts) const {
    const auto among = [](const std::vector<std::uint32_t>& ranks, std::uint32_t rank) {
      return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
    };
    for (const auto& [other, swap] : swaps_) {
      if (among(evicts, other) || among(swap.evicts, target)) return true;
      for (std::uint32_t rank : evicts) {
        if (among(swap.evicts, rank)) return true;
      }
    }
    return false;
  }

  void swap(std::uint32_t target, const std::vector<std::uint32_t>& evicts, Request request) {
    swaps_[target] = {evicts, {request}};
    for (std::uint32_t victim : evicts) models_[victim].ready = false;
    events_.after(evicts.empty() ? Duration{} : machine_.stop, [this, target] {
      for (std::uint32_t victim : swaps_[target].evicts) models_[victim].running = false;
      models_[target].running = true;
      to_load_.push_back(target);
      load_next();
    });
  }

  // The machine loads so many at once at full speed, whoever asks: the others wait.
  void load_next() {
    if (to_load_.empty() || loading_ == machine_.loads) return;
    const std::uint32_t target = to_load_.front();
    to_load_.pop_front();
    ++loading_;
    ++meter_.counted.starts;
    meter_.loads(events_.now(), 1);
    events_.after(machine_.load, [this, target] {
      meter_.loads(events_.now(), -1);
      --loading_;
      load_next();
      models_[target].ready = true;
      const Swap done = std::move(swaps_[target]);
      swaps_.erase(target);
      for (const Request& waiter : done.waiters) grant(target, waiter);
      drain_queue();
    });
  }

  void grant(std::uint32_t rank, Request request) {
    Model& model = models_[rank];
    model.queue.push_back(request);
    serve(rank);
  }

  void serve(std::uint32_t rank) {
    Model& model = models_[rank];
    while (model.in_flight < machine_.concurrency && !model.queue.empty()) {
      const Request request = model.queue.front();
      model.queue.pop_front();
      ++model.in_flight;
      meter_.waited(events_.now() - request.since);
      meter_.serves(events_.now(), 1);
      events_.after(arrivals_[request.arrival].service, [this, rank] {
        Model& served = models_[rank];
        --served.in_flight;
        served.last_used = events_.now();
        meter_.serves(events_.now(), -1);
        serve(rank);
        if (!served.busy()) drain_queue();
      });
    }
  }

  void drain_queue() {
    for (const Request& request : std::exchange(queue_, {})) {
      if (!decide(request)) queue_.push_back(request);
    }
  }

  const std::vector<Arrival>& arrivals_;
  const Machine& machine_;
  EventQueue events_;
  Meter meter_;
  std::map<std::uint32_t, Model> models_;
  std::map<std::uint32_t, Swap> swaps_;  // under way, by their target
  std::deque<std::uint32_t> to_load_;    // targets whose victims have left
  std::uint32_t loading_ = 0;
  std::deque<Request> queue_;  // of all models, in order of arrival
};

}  // namespace

Figures play_fifo(const std::vector<Arrival>& arrivals, const Machine& machine) {
  return FifoNode(arrivals, machine).run();
}

}  // namespace omni::simulation
