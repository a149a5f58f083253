#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "world.h"

namespace omni::simulation {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

TEST(Simulation, ASeedRunsTheSameTwice) {
  const Outcome once = simulate(make_scenario(7));
  const Outcome again = simulate(make_scenario(7));
  EXPECT_EQ(once.failure, again.failure);
  EXPECT_EQ(once.events, again.events);
  EXPECT_EQ(once.served, again.served);
}

// ---- The checks themselves: bugs planted in the control loop are found.

Outcome first_failure(Fault fault) {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    Outcome outcome = simulate(make_scenario(seed), fault);
    if (!outcome.failure.empty()) return outcome;
  }
  return {};
}

TEST(PlantedBug, ADroppedServeIsALostOrStarvingRequest) {
  const std::string failure = first_failure(Fault::drops_a_serve).failure;
  EXPECT_THAT(failure, ::testing::AnyOf(HasSubstr("is lost"), HasSubstr("starves")));
}

TEST(PlantedBug, EvictingBeforeTheDrainIsSeen) {
  EXPECT_THAT(first_failure(Fault::drains_too_early).failure,
              HasSubstr("an instance that still answers is stopped or evicted"));
}

TEST(PlantedBug, CountingMemoryAsFreeTooEarlyExceedsTheBudget) {
  EXPECT_THAT(first_failure(Fault::frees_too_early).failure, HasSubstr("bytes are in use"));
}

// ---- Sustained load: nobody starves while it lasts

ModelScript steady_model(std::uint64_t id, Bytes size, Duration load, Duration answer) {
  ModelScript model;
  model.policy = {.id = ModelId{id}, .name = "m" + std::to_string(id), .declared = size};
  model.policy.stop_after = 1h;
  model.load = load;
  model.restore = model.evict_dirty = model.evict_clean = 10ms;
  model.stop = 20ms;
  model.shortest_answer = answer / 2;
  model.longest_answer = answer;
  model.first_use = model.last_use = size;
  return model;
}

Scenario sustained(std::uint64_t seed, Duration length, std::uint32_t requests) {
  Scenario scenario;
  scenario.seed = seed;
  scenario.budget = Bytes(1000);
  scenario.threads = 2;
  scenario.arrivals = length;
  scenario.requests = requests;
  scenario.longest_message = 1ms;
  scenario.deadline = 1h;
  scenario.calm = true;
  return scenario;
}

// Three models of which one fits, all wanted all the time. A model waits for two others' residency
// and loads at most.
TEST(Fairness, BusyModelsThatDoNotFitTogetherTakeTurns) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Scenario scenario = sustained(seed, 60s, 600);
    for (std::uint64_t id : {1, 2, 3}) {
      scenario.models.push_back(steady_model(id, Bytes(700), 500ms, 60ms));
      scenario.models.back().policy.concurrency = 4;
    }
    scenario.longest_wait = 60s;
    const Outcome outcome = simulate(scenario);
    EXPECT_EQ(outcome.failure, "") << "seed " << seed;
    EXPECT_EQ(outcome.served, 600u);
    EXPECT_LT(Seconds(outcome.longest_wait).count(), Seconds(8s).count());
  }
}

// A large model among small ones that fill the device: it gets its bytes although each of them is
// used all the time.
TEST(Fairness, ALargeModelIsNotCrowdedOutBySmallOnes) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Scenario scenario = sustained(seed, 60s, 900);
    for (std::uint64_t id = 1; id <= 5; ++id) {
      scenario.models.push_back(steady_model(id, Bytes(240), 100ms, 50ms));
    }
    scenario.models.push_back(steady_model(6, Bytes(1000), 300ms, 50ms));
    scenario.limits.fair_wait = 3s;
    scenario.longest_wait = 60s;
    const Outcome outcome = simulate(scenario);
    EXPECT_EQ(outcome.failure, "") << "seed " << seed;
    EXPECT_EQ(outcome.served, 900u);
    EXPECT_LT(Seconds(outcome.longest_wait).count(), Seconds(12s).count());
  }
}

// One place, and more work than it can do for a minute: an I/O thread could hand it to its own
// tickets for as long. The last ticket of a fair queue would wait about 12 s.
TEST(Fairness, ATicketIsNotPassedForLongByThoseOfAnotherThread) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Scenario scenario = sustained(seed, 60s, 1600);
    scenario.models.push_back(steady_model(1, Bytes(500), 100ms, 60ms));
    scenario.limits.fair_wait = 3s;
    scenario.limits.queue_per_model = 2000;
    scenario.longest_wait = 60s;
    const Outcome outcome = simulate(scenario);
    EXPECT_EQ(outcome.failure, "") << "seed " << seed;
    EXPECT_EQ(outcome.served, 1600u);
    EXPECT_LT(Seconds(outcome.longest_wait).count(), Seconds(18s).count()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace omni::simulation
