#include "scenario.h"

#include <algorithm>

namespace omni::simulation {
namespace {

using namespace std::chrono_literals;

ModelScript make_model(Random& random, std::uint64_t id, Bytes budget) {
  ModelScript model;
  const std::int64_t size = random.between(budget.count() / 20, budget.count() * 7 / 10);
  model.policy.id = ModelId{id};
  model.policy.name = "m" + std::to_string(id);
  if (!random.chance(0.1)) model.policy.declared = Bytes(size);
  model.policy.concurrency =
      static_cast<std::uint32_t>(random.chance(0.5) ? 1 : random.between(2, 6));
  if (random.chance(0.25)) model.policy.max_instances = 3;
  model.policy.stop_after = random.chance(0.3) ? random.time(0s, 5s) : Duration(1h);
  if (random.chance(0.4)) model.policy.mechanism = EvictMechanism::evict;
  model.load = random.chance(0.7) ? random.time(20ms, 1s) : random.time(1s, 6s);
  model.restore = random.time(10ms, 300ms);
  model.evict_dirty = random.time(50ms, 800ms);
  model.evict_clean = random.time(1ms, 20ms);
  model.stop = random.time(5ms, 500ms);
  model.shortest_answer = 2ms;
  model.longest_answer = random.chance(0.8) ? random.time(5ms, 300ms) : random.time(1s, 8s);
  model.first_use = Bytes(size * random.between(5, 10) / 10);
  model.last_use = model.first_use;
  return model;
}

void let_things_go_wrong(Scenario& scenario, Random& random) {
  const auto some = [&](double most) { return random.chance(0.5) ? 0 : most; };
  scenario.cancels = some(0.3);
  scenario.slow_loads = some(0.1);
  scenario.failed_loads = some(0.15);
  scenario.failed_evicts = some(0.2);
  scenario.crashes = some(0.03);
  scenario.suspects = some(0.03);
  scenario.operator_verbs =
      random.chance(0.5) ? static_cast<std::uint32_t>(random.between(1, 10)) : 0;
  scenario.spec_changes = random.chance(0.3) ? static_cast<std::uint32_t>(random.between(1, 5)) : 0;
  scenario.shut_down_early = random.chance(0.15);
  scenario.deadline = random.chance(0.3) ? random.time(500ms, 10s) : Duration(120s);
  if (random.chance(0.2)) scenario.limits.queue_per_model = 4;
  for (ModelScript& model : scenario.models) {
    const Bytes size = model.policy.declared.value_or(model.first_use);
    if (random.chance(0.2)) model.policy.pinned = true;
    if (random.chance(0.15)) model.policy.min_instances = 1;
    if (random.chance(0.2)) model.last_use = size * random.between(8, 16) / 10;
    if (random.chance(0.05)) model.policy.declared = scenario.budget * 2;
  }
}

}  // namespace

Scenario make_scenario(std::uint64_t seed) {
  Random random(seed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.budget = Bytes(random.between(400, 2000));
  scenario.threads = static_cast<std::uint32_t>(random.between(1, 3));
  const auto count = static_cast<std::uint64_t>(random.between(2, 9));
  for (std::uint64_t id = 1; id <= count; ++id) {
    scenario.models.push_back(make_model(random, id, scenario.budget));
  }
  scenario.limits.fair_wait = random.time(500ms, 10s);
  scenario.arrivals = random.time(2s, 30s);
  scenario.requests = static_cast<std::uint32_t>(random.between(10, 150));
  scenario.longest_message = random.chance(0.5) ? 200us : 60ms;
  scenario.deadline = 1h;
  scenario.calm = random.chance(0.25);
  if (!scenario.calm) let_things_go_wrong(scenario, random);

  // A ticket may wait for every other model's turn: its old tickets, load, work and leaving.
  for (const ModelScript& model : scenario.models) {
    const Duration load = std::max({model.load, model.restore + model.evict_dirty});
    scenario.longest_wait += std::max(scenario.limits.fair_wait, 4 * load) + 3 * load +
                             3 * model.longest_answer + model.stop + 2s;
  }
  return scenario;
}

}  // namespace omni::simulation
