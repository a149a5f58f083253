// What one seed simulates: a node, its models and what befalls them.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "scheduler/types.h"

namespace omni::simulation {

// The same numbers on every machine, unlike the standard distributions.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed * 0x9E3779B97F4A7C15u + 1) {}
  std::uint64_t below(std::uint64_t bound) { return engine_() % bound; }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(high - low + 1)));
  }
  bool chance(double probability) {
    return static_cast<double>(engine_() >> 11) * 0x1.0p-53 < probability;
  }
  Duration time(Duration low, Duration high) {
    return Duration(between(low.count(), high.count()));
  }

 private:
  std::mt19937_64 engine_;
};

// One model and what its mechanisms cost.
struct ModelScript {
  ModelPolicy policy;
  Duration load{};
  Duration restore{};
  Duration evict_dirty{};  // the first time: all of it is copied
  Duration evict_clean{};  // afterwards: the copy is still good
  Duration stop{};
  Duration shortest_answer{};
  Duration longest_answer{};
  Bytes first_use;  // what its processes hold when loaded
  Bytes last_use;   // and after many answers
};

struct Scenario {
  std::uint64_t seed = 0;
  SchedulerLimits limits;
  Bytes budget;
  std::uint32_t threads = 1;
  std::vector<ModelScript> models;
  Duration arrivals{};  // requests come this long
  std::uint32_t requests = 0;
  Duration longest_message{};  // one direction, between an I/O thread and the loop
  Duration deadline{};

  double cancels = 0;        // of requests
  double slow_loads = 0;     // of loads: ten times as long
  double failed_loads = 0;   // of loads
  double failed_evicts = 0;  // of evictions
  double crashes = 0;        // of answers: the process dies under one
  double suspects = 0;       // of answers: the connection breaks, the process lives
  std::uint32_t operator_verbs = 0;
  std::uint32_t spec_changes = 0;
  bool shut_down_early = false;

  // Nothing goes wrong: every request must be served, and within `longest_wait`.
  bool calm = false;
  Duration longest_wait{};
};

Scenario make_scenario(std::uint64_t seed);

}  // namespace omni::simulation
