// scheduler_simulation [--seeds N] [--first S]     runs N scenarios, prints the first seed that
// fails scheduler_simulation --seed S                    runs one with a trace of all that happens
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include "world.h"

namespace {

using omni::simulation::make_scenario;
using omni::simulation::Outcome;
using omni::simulation::simulate;

std::uint64_t current_seed = 0;  // for a broken assertion, which ends the process

void on_abort(int) {
  fmt::print(stderr, "in seed {0}; run it with a trace: scheduler_simulation --seed {0}\n",
             current_seed);
  std::fflush(nullptr);
}

int run_one(std::uint64_t seed) {
  const Outcome outcome = simulate(make_scenario(seed), {}, stdout);
  fmt::print("seed {}: {}\n", seed, outcome.failure.empty() ? "ok" : outcome.failure);
  return outcome.failure.empty() ? 0 : 1;
}

int run_many(std::uint64_t first, std::uint64_t count) {
  const auto began = std::chrono::steady_clock::now();
  Outcome sum;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    current_seed = seed;
    const Outcome outcome = simulate(make_scenario(seed));
    if (!outcome.failure.empty()) {
      fmt::print("seed {} failed at {}\nrun it with a trace: scheduler_simulation --seed {}\n",
                 seed, outcome.failure, seed);
      return 1;
    }
    sum.events += outcome.events;
    sum.served += outcome.served;
    sum.refused += outcome.refused;
    for (const auto& [code, number] : outcome.refusals) sum.refusals[code] += number;
    sum.cancelled += outcome.cancelled;
    sum.crashed += outcome.crashed;
    sum.starts += outcome.starts;
    sum.evictions += outcome.evictions;
    sum.restores += outcome.restores;
    sum.turns += outcome.turns;
    sum.longest_wait_share = std::max(sum.longest_wait_share, outcome.longest_wait_share);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  fmt::print(
      "{} seeds, {} events, {} served, {} refused, {} cancelled, {} crashed, {} starts, {} "
      "evictions, {} restores, {} reopened, longest wait {:.0f} % of its bound, {:.1f} s\n",
      count, sum.events, sum.served, sum.refused, sum.cancelled, sum.crashed, sum.starts,
      sum.evictions, sum.restores, sum.turns, 100 * sum.longest_wait_share, took.count());
  for (const auto& [code, number] : sum.refusals) {
    fmt::print("  {} {}\n", omni::error_info(code).name, number);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGABRT, on_abort);
  std::signal(SIGSEGV, [](int) { std::abort(); });
  std::uint64_t first = 1;
  std::uint64_t count = 1000;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (i + 1 == argc) {
      fmt::print(stderr, "usage: scheduler_simulation [--seeds N] [--first S] | --seed S\n");
      return 64;
    }
    const std::uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (flag == "--seed") return run_one(value);
    if (flag == "--seeds") count = value;
    if (flag == "--first") first = value;
  }
  return run_many(first, count);
}
