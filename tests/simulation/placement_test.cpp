// What the reuse rule and the fairness rules are for: over arrivals as they come, fewer starts than
// LRU needs and a shorter tail of waiting. benchmarks/placement reports the numbers.
#include "placement.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace omni::simulation {
namespace {

using namespace std::chrono_literals;

constexpr int kSeeds = 5;

// Five days of 73 models, `speed` times as fast.
std::vector<Arrival> arrivals(int seed, int speed) {
  std::vector<Arrival> made = read_arrivals(fmt::format("{}{}.csv", OMNI_ARRIVALS, seed));
  for (Arrival& arrival : made) arrival.at /= speed;
  return made;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Ratios {
  double p99;
  double mean;
  double starts;
};

// Omni's to another policy's, the median over the seeds.
Ratios compare(int speed, Policy omni, Policy other) {
  std::vector<double> p99;
  std::vector<double> mean;
  std::vector<double> starts;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const std::vector<Arrival> made = arrivals(seed, speed);
    const Figures ours = play(made, Machine{}, omni);
    const Figures theirs = play(made, Machine{}, other);
    EXPECT_EQ(ours.requests, made.size());
    EXPECT_EQ(theirs.requests, made.size());
    p99.push_back(ours.p99 / theirs.p99);
    mean.push_back(ours.mean / theirs.mean);
    starts.push_back(static_cast<double>(ours.starts) / static_cast<double>(theirs.starts));
    EXPECT_LE(starts.back(), 1) << "seed " << seed << ", " << speed << " times as fast";
  }
  return {median(p99), median(mean), median(starts)};
}

// ---- The players do what they are said to do, where it can be counted by hand.

std::vector<Arrival> every_minute(std::initializer_list<std::uint32_t> models) {
  std::vector<Arrival> made;
  for (std::uint32_t model : models) {
    made.push_back({.at = made.size() * 1min, .model = model, .service = 10s});
  }
  return made;
}

TEST(Players, StopTheLeastRecentlyUsed) {
  const Machine machine{.slots = 2};
  // Each of 0 and 1 starts, 2 takes the place of 1, and 1 that of 0.
  const std::vector<Arrival> made = every_minute({0, 1, 0, 2, 1, 2});
  for (Policy policy : {Policy::lru, Policy::fifo}) {
    const Figures figures = play(made, machine, policy);
    EXPECT_EQ(figures.starts, 4u) << to_string(policy);
    EXPECT_EQ(figures.longest, 22) << to_string(policy);  // a stop and a load
  }
}

TEST(Players, GatherTheRequestsOfAModelThatLoads) {
  const std::vector<Arrival> made(5, Arrival{.at = 1s, .model = 3, .service = 10s});
  for (Policy policy : {Policy::omni, Policy::omni_evict, Policy::lru, Policy::fifo}) {
    const Figures figures = play(made, Machine{}, policy);
    EXPECT_EQ(figures.requests, 5u) << to_string(policy);
    EXPECT_EQ(figures.starts, 1u) << to_string(policy);
    EXPECT_EQ(figures.longest, 20) << to_string(policy);
  }
}

TEST(Players, NeverStopAModelThatServes) {
  const Machine machine{.slots = 1};
  const std::vector<Arrival> made = {{.at = 0s, .model = 0, .service = 1h},
                                     {.at = 1min, .model = 1, .service = 10s}};
  for (Policy policy : {Policy::omni, Policy::lru, Policy::fifo}) {
    const Figures figures = play(made, machine, policy);
    EXPECT_GT(figures.longest, 3500) << to_string(policy);
    EXPECT_EQ(figures.starts, 2u) << to_string(policy);
  }
}

TEST(Players, ModelsComeBackFromHostMemory) {
  const Machine machine{.slots = 1};
  const Figures figures = play(every_minute({0, 1, 0, 1, 0}), machine, Policy::omni_evict);
  EXPECT_EQ(figures.starts, 2u);
  EXPECT_EQ(figures.restores, 3u);
}

// ---- What is promised over many arrivals

TEST(PlacementOverTime, ArrivalsPlayTheSameTwice) {
  const std::vector<Arrival> made = arrivals(1, 4);
  ASSERT_GT(made.size(), 9000u);
  const Figures once = play(made, Machine{}, Policy::omni);
  const Figures again = play(made, Machine{}, Policy::omni);
  EXPECT_EQ(once.p99, again.p99);
  EXPECT_EQ(once.starts, again.starts);
}

TEST(PlacementOverTime, UnderModerateLoadWaitsLessThanLruWithFewerStarts) {
  const Ratios ratios = compare(4, Policy::omni, Policy::lru);
  EXPECT_LT(ratios.p99, 0.96);
  EXPECT_LT(ratios.mean, 0.9);
  EXPECT_LT(ratios.starts, 0.92);
}

TEST(PlacementOverTime, UnderHighLoadWaitsLessThanLruWithFewerStarts) {
  const Ratios ratios = compare(8, Policy::omni, Policy::lru);
  EXPECT_LT(ratios.p99, 1);
  EXPECT_LT(ratios.mean, 0.95);
  EXPECT_LT(ratios.starts, 0.96);
}

TEST(PlacementOverTime, WaitsLessThanASwapRoutersQueue) {
  for (int speed : {4, 8}) {
    const Ratios ratios = compare(speed, Policy::omni, Policy::fifo);
    EXPECT_LT(ratios.p99, 0.95) << speed << " times as fast";
    EXPECT_LT(ratios.starts, 0.96) << speed << " times as fast";
  }
}

TEST(PlacementOverTime, EvictingToHostMemoryMakesTheTailAFractionOfReloading) {
  const Ratios ratios = compare(4, Policy::omni_evict, Policy::lru);
  EXPECT_LT(ratios.p99, 0.3);
  EXPECT_LT(ratios.starts, 0.1);
}

}  // namespace
}  // namespace omni::simulation
