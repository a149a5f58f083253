// A node in virtual time: clients, I/O threads with real lease words, processes, and a control loop
// that feeds the real Scheduler. Everything it checks it knows by itself.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>

#include "base/error.h"
#include "scenario.h"

namespace omni::simulation {

// Bugs to plant in the control loop, to see that the checks find them.
enum class Fault : std::uint8_t {
  none,
  drops_a_serve,     // an offer is neither carried out nor answered
  drains_too_early,  // a closed instance counts as drained while it still answers
  frees_too_early,   // a process counts as gone while it still holds its memory
};

struct Outcome {
  std::string failure;  // empty: all promises held
  std::uint64_t events = 0;
  std::uint64_t served = 0;
  std::uint64_t refused = 0;
  std::map<ErrorCode, std::uint64_t> refusals;  // why
  std::uint64_t cancelled = 0;
  std::uint64_t crashed = 0;
  std::uint64_t starts = 0;
  std::uint64_t evictions = 0;
  std::uint64_t restores = 0;
  std::uint64_t turns = 0;        // instances opened again after a close
  Duration longest_wait{};        // of a ticket
  double longest_wait_share = 0;  // of what a calm scenario allows
};

Outcome simulate(const Scenario& scenario, Fault fault = Fault::none, std::FILE* trace = nullptr);

}  // namespace omni::simulation
