// placement_benchmark ARRIVALS.csv... [--slots N] [--concurrency N] [--loads N] [--load SECONDS]
// [--stop SECONDS] [--restore SECONDS] [--evict SECONDS] [--policy NAME]
//
// Plays files of arrivals through the policies and prints a line of JSON for each file and policy.
// `run` makes the files and the report.
#include <fmt/format.h>

#include <cstdlib>
#include <string_view>
#include <vector>

#include "placement.h"

namespace {

using namespace omni;
using namespace omni::simulation;

Duration seconds(const char* text) {
  return std::chrono::round<Duration>(Seconds(std::strtod(text, nullptr)));
}

std::uint32_t count(const char* text) {
  return static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
}

}  // namespace

int main(int argc, char** argv) {
  Machine machine;
  std::vector<const char*> files;
  std::string_view only;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (!flag.starts_with("--")) {
      files.push_back(argv[i]);
      continue;
    }
    if (++i == argc) return fmt::print(stderr, "{} wants a value\n", flag), 64;
    if (flag == "--slots") machine.slots = count(argv[i]);
    if (flag == "--concurrency") machine.concurrency = count(argv[i]);
    if (flag == "--loads") machine.loads = count(argv[i]);
    if (flag == "--load") machine.load = seconds(argv[i]);
    if (flag == "--stop") machine.stop = seconds(argv[i]);
    if (flag == "--restore") machine.restore = seconds(argv[i]);
    if (flag == "--evict") machine.evict = seconds(argv[i]);
    if (flag == "--policy") only = argv[i];
  }
  for (const char* file : files) {
    const std::vector<Arrival> arrivals = read_arrivals(file);
    if (arrivals.empty()) return fmt::print(stderr, "cannot read arrivals from {}\n", file), 66;
    for (Policy policy : {Policy::omni, Policy::omni_evict, Policy::lru, Policy::fifo}) {
      if (!only.empty() && only != to_string(policy)) continue;
      const Figures f = play(arrivals, machine, policy);
      fmt::print(
          "{{\"file\": \"{}\", \"policy\": \"{}\", \"requests\": {}, \"wait_p50_s\": {:.3f}, "
          "\"wait_p99_s\": {:.3f}, \"wait_mean_s\": {:.3f}, \"wait_max_s\": {:.3f}, "
          "\"starts\": {}, \"restores\": {}, \"loading_share\": {:.4f}, "
          "\"serving_share\": {:.4f}}}\n",
          file, to_string(policy), f.requests, f.p50, f.p99, f.mean, f.longest, f.starts,
          f.restores, f.loading, f.serving);
    }
  }
  return 0;
}
