// Which of the instances that may be closed are closed for a load. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace omni::scheduling {

// How soon it has drained.
enum class Drain : std::uint8_t { at_once, soon, late };

struct Candidate {
  std::size_t index = 0;  // the caller's
  Bytes bytes;            // what closing it frees
  double loss = 0;        // expected uses per second x seconds to bring it back
  Drain drain = Drain::at_once;
};

// What drains sooner first, then the lowest loss per byte.
bool closes_before(const Candidate& a, const Candidate& b);

// The candidates to close for `needed` bytes, none when all together do not suffice. What drains
// sooner first, lowest loss per byte first, and nothing that the others make unnecessary; one
// larger instance instead of several when that loses less.
std::vector<Candidate> choose_victims(std::vector<Candidate> candidates, Bytes needed);

}  // namespace omni::scheduling
