// scheduler_benchmark [OUTPUT.json]: microseconds per event of the scheduler with 1,000 models, of
// which a fifth fit on the device at once.
//
// The loop around it is the shortest possible: loads, drains and stops happen at once, so that
// nearly all time is the scheduler's. Requests are skewed as in traces of many models: most hit a
// loaded model, the rest close a victim and start.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "scheduler/scheduler.h"

namespace {

using namespace omni;
using namespace std::chrono_literals;

constexpr std::uint64_t kModels = 1000;
constexpr int kRounds = 9;
constexpr int kRequests = 20000;  // a round

enum Kind : std::uint8_t { request, answer, load, drain, stop, activity, tick, kinds };
constexpr std::string_view kNames[] = {"request", "answer",   "load", "drain",
                                       "stop",    "activity", "tick"};

// CPU time of this thread: other work on the machine does not count.
double cpu_microseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

// What reading the clock adds to each measured event.
double clock_cost() {
  constexpr int kReads = 100000;
  const double began = cpu_microseconds();
  for (int i = 0; i < kReads; ++i) cpu_microseconds();
  return (cpu_microseconds() - began) / kReads;
}

class Node {
 public:
  explicit Node(bool check) : scheduler_(limits(check)) {
    scheduler_.add_device(kHostDevice, "host", Bytes(kModels / 5 * 1000));
    for (std::uint64_t id = 1; id <= kModels; ++id) {
      ModelPolicy policy{.id = ModelId{id}, .name = "m", .declared = Bytes(500 + id)};
      policy.concurrency = 4;
      policy.stop_after = 1h;
      feed(scheduler_.on_model(policy, now_));
    }
  }

  void round() {
    for (int i = 0; i < kRequests; ++i) {
      now_ += 2ms;
      const auto u = static_cast<double>(random_() >> 11) * 0x1.0p-53;
      // A quarter of the models gets nearly all requests.
      const auto model = static_cast<std::uint64_t>(u * u * u * u * kModels) + 1;
      const double began = cpu_microseconds();
      Actions actions =
          scheduler_.on_request(TicketId{++ticket_}, ModelId{model}, now_ + 120s, 0, now_);
      account(request, began);
      feed(std::move(actions));
      if (i % 50 == 0) each_tick();
    }
  }

  // Microseconds per event of each kind since the last call, then of all together.
  std::vector<double> take() {
    std::vector<double> result;
    double sum = 0;
    double count = 0;
    for (int kind = 0; kind < kinds; ++kind) {
      result.push_back(counts_[kind] == 0 ? 0 : times_[kind] / counts_[kind]);
      sum += times_[kind];
      count += counts_[kind];
      times_[kind] = counts_[kind] = 0;
    }
    result.push_back(sum / count);
    return result;
  }

  std::uint64_t starts = 0;

 private:
  static SchedulerLimits limits(bool check) {
    SchedulerLimits limits;
    limits.check_invariants = check;
    return limits;
  }

  void account(Kind kind, double began) {
    times_[kind] += cpu_microseconds() - began - clock_cost_;
    ++counts_[kind];
  }

  template <typename Event>
  void time(Kind kind, Event event) {
    const double began = cpu_microseconds();
    Actions actions = event();
    account(kind, began);
    pending_.push_back(std::move(actions));
  }

  void feed(Actions actions) {
    pending_.push_back(std::move(actions));
    while (!pending_.empty()) {
      const Actions orders = std::move(pending_.front());
      pending_.pop_front();
      for (const Action& order : orders) {
        if (const auto* start = std::get_if<StartInstance>(&order)) {
          ++starts;
          loading_.push_back(start->instance);
        } else if (const auto* close = std::get_if<CloseInstance>(&order)) {
          time(drain, [&] { return scheduler_.on_drained(close->instance, now_); });
        } else if (const auto* stopped = std::get_if<StopInstance>(&order)) {
          open_.erase(stopped->instance);
          time(stop, [&] { return scheduler_.on_stopped(stopped->instance, now_); });
        } else if (const auto* serve = std::get_if<ServeTicket>(&order)) {
          time(answer, [&] { return scheduler_.on_freed(serve->instance, now_); });
        }
      }
    }
  }

  void each_tick() {
    for (InstanceId instance : std::exchange(loading_, {})) {
      open_[instance] = now_;
      time(load, [&] { return scheduler_.on_resident(instance, now_); });
      feed({});
    }
    int busy = 0;
    for (auto& [instance, used] : open_) {
      if (++busy > 20) break;
      time(activity, [&] { return scheduler_.on_activity(instance, 0, 1, now_ - 1s, now_); });
    }
    time(tick, [&] { return scheduler_.on_tick(now_); });
    feed({});
  }

  const double clock_cost_ = clock_cost();
  Scheduler scheduler_;
  TimePoint now_{1h};
  std::mt19937_64 random_{1};
  std::uint64_t ticket_ = 0;
  std::deque<Actions> pending_;
  std::vector<InstanceId> loading_;
  std::map<InstanceId, TimePoint> open_;
  double times_[kinds] = {};
  double counts_[kinds] = {};
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

std::vector<double> measure(bool check, std::uint64_t& starts) {
  Node node(check);
  node.round();  // fills the device
  node.take();
  std::vector<std::vector<double>> columns(kinds + 1);
  for (int i = 0; i < kRounds; ++i) {
    node.round();
    const std::vector<double> row = node.take();
    for (std::size_t k = 0; k < row.size(); ++k) columns[k].push_back(row[k]);
  }
  starts = node.starts;
  std::vector<double> medians;
  for (const auto& column : columns) medians.push_back(median(column));
  return medians;
}

std::string machine() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("model name")) {
      return fmt::format("{}, {} cores", line.substr(line.find(':') + 2),
                         std::thread::hardware_concurrency());
    }
  }
  return "unknown";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string output = argc > 1 ? argv[1] : "benchmarks/results/scheduler.json";
  std::uint64_t starts = 0;
  const std::vector<double> plain = measure(false, starts);
  const std::vector<double> checked = measure(true, starts);
  std::string medians = fmt::format("\"decision_us\": {:.3f}, \"decision_checked_us\": {:.3f}",
                                    plain.back(), checked.back());
  for (int kind = 0; kind < kinds; ++kind) {
    medians +=
        fmt::format(", \"{}_us\": {:.3f}", kNames[kind], plain[static_cast<std::size_t>(kind)]);
  }
  const std::string json = fmt::format(
      "{{\"name\": \"scheduler\", \"machine\": \"{}\", \"rounds\": {}, \"medians\": {{{}}}, "
      "\"ratios\": {{\"checked_to_plain\": {:.2f}}}}}\n",
      machine(), kRounds, medians, checked.back() / plain.back());
  std::ofstream file(output);
  file << json;
  file.close();
  fmt::print("{}{} starts\n", json, starts);
  if (!file) {
    fmt::print(stderr, "cannot write {}\n", output);
    return 74;
  }
  return 0;
}
