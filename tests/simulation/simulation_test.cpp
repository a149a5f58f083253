#include <gtest/gtest.h>

#include "world.h"

namespace omni::simulation {
namespace {

TEST(Simulation, ASeedRunsTheSameTwice) {
  const Outcome once = simulate(make_scenario(7));
  const Outcome again = simulate(make_scenario(7));
  EXPECT_EQ(once.failure, again.failure);
  EXPECT_EQ(once.events, again.events);
  EXPECT_EQ(once.served, again.served);
}

}  // namespace
}  // namespace omni::simulation
