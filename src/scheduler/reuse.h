// When a model will be asked for again, learned from the gaps between its requests. Pure, of fixed
// size, plain numbers: it is stored and handed back as it is.
//
// Gaps fall into buckets that double in length. For each bucket it is counted how many gaps ended
// in it and how many outlasted it, so that what is expected next follows from the idle time so far:
// a model with bursts is worth much within a burst and little after it. A count fades only with
// what is learned of its own bucket: a thousand short gaps do not wear away what is known of long
// ones.
#pragma once

#include <array>
#include <cstddef>

#include "base/clock.h"

namespace omni {

struct ReuseRecord {
  // The first is below 0.25 s, the last from three days on. A store keeps the numbers only as long
  // as this one is the same.
  static constexpr std::size_t kBuckets = 22;

  std::array<double, kBuckets> ended{};
  std::array<double, kBuckets> outlasted{};

  // A request came this long after the one before.
  void add_gap(Duration gap);
  // Requests expected per second of keeping the model, when none came for `idle`: over the span
  // from now for which that is most. What is not known yet is expected as of any model: the longer
  // idle, the later again.
  double rate(Duration idle) const;
  // All numbers could be counts: what was stored elsewhere is not trusted.
  bool plausible() const;

  bool operator==(const ReuseRecord&) const = default;
};

}  // namespace omni
