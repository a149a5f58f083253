// Load on demand; stop the least recently used idle model; models that wait for a place have it in
// order of arrival, one after the other. Requests for a model that is there are served at once, and
// those for one that waits or loads wait with it.
#include <deque>
#include <list>
#include <map>

#include "event_queue.h"
#include "placement_meter.h"

namespace omni::simulation {
namespace {

class LruNode {
 public:
  LruNode(const std::vector<Arrival>& arrivals, const Machine& machine)
      : arrivals_(arrivals), machine_(machine), meter_(events_.now()), free_(machine.slots) {}

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
  enum class State : std::uint8_t { away, wanted, loading, resident, stopping };
  struct Model {
    State state = State::away;
    std::deque<std::pair<std::size_t, TimePoint>> queue;
    std::uint32_t in_flight = 0;
    TimePoint last_used;
  };

  void arrive(std::size_t i) {
    const std::uint32_t rank = arrivals_[i].model;
    Model& model = models_[rank];
    model.queue.emplace_back(i, events_.now());
    model.last_used = events_.now();
    if (model.state == State::away || model.state == State::stopping) want(rank);
    serve(rank);
    place();
  }

  void want(std::uint32_t rank) {
    Model& model = models_[rank];
    if (model.state == State::away) model.state = State::wanted;
    if (std::find(wanted_.begin(), wanted_.end(), rank) == wanted_.end()) wanted_.push_back(rank);
  }

  void serve(std::uint32_t rank) {
    Model& model = models_[rank];
    while (model.state == State::resident && model.in_flight < machine_.concurrency &&
           !model.queue.empty()) {
      const auto [i, since] = model.queue.front();
      model.queue.pop_front();
      ++model.in_flight;
      meter_.waited(events_.now() - since);
      meter_.serves(events_.now(), 1);
      events_.after(arrivals_[i].service, [this, rank] {
        Model& served = models_[rank];
        --served.in_flight;
        served.last_used = events_.now();
        meter_.serves(events_.now(), -1);
        serve(rank);
        place();
      });
    }
  }

  // Strictly in order. As many victims leave as models may load at once.
  void place() {
    while (!wanted_.empty() && free_ > 0 && loading_ < machine_.loads &&
           models_[wanted_.front()].state != State::stopping) {
      const std::uint32_t rank = wanted_.front();
      wanted_.pop_front();
      --free_;
      load(rank);
    }
    const auto soon =
        std::min(static_cast<std::uint32_t>(wanted_.size()), machine_.loads - loading_);
    while (free_ + leaving_ < soon) {
      const auto victim = least_recently_used();
      if (victim == models_.end()) return;
      stop(victim->first);
    }
  }

  std::map<std::uint32_t, Model>::iterator least_recently_used() {
    auto best = models_.end();
    for (auto it = models_.begin(); it != models_.end(); ++it) {
      const Model& model = it->second;
      if (model.state != State::resident || model.in_flight > 0 || !model.queue.empty()) continue;
      if (best == models_.end() || model.last_used < best->second.last_used) best = it;
    }
    return best;
  }

  void stop(std::uint32_t rank) {
    models_[rank].state = State::stopping;
    ++leaving_;
    events_.after(machine_.stop, [this, rank] {
      Model& model = models_[rank];
      model.state = model.queue.empty() ? State::away : State::wanted;
      --leaving_;
      ++free_;
      place();
    });
  }

  void load(std::uint32_t rank) {
    models_[rank].state = State::loading;
    ++loading_;
    ++meter_.counted.starts;
    meter_.loads(events_.now(), 1);
    events_.after(machine_.load, [this, rank] {
      models_[rank].state = State::resident;
      models_[rank].last_used = events_.now();
      --loading_;
      meter_.loads(events_.now(), -1);
      serve(rank);
      place();
    });
  }

  const std::vector<Arrival>& arrivals_;
  const Machine& machine_;
  EventQueue events_;
  Meter meter_;
  std::map<std::uint32_t, Model> models_;
  std::deque<std::uint32_t> wanted_;
  std::uint32_t free_;
  std::uint32_t loading_ = 0;
  std::uint32_t leaving_ = 0;
};

}  // namespace

Figures play_lru(const std::vector<Arrival>& arrivals, const Machine& machine) {
  return LruNode(arrivals, machine).run();
}

}  // namespace omni::simulation
