#include "scheduler/reuse.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>

namespace omni {
namespace {

using namespace std::chrono_literals;

constexpr Duration kFirst = 250ms;  // the first bucket ends here, the next ones at its doubles
// What a gap counts after this many later ones of its bucket has faded to a third.
constexpr double kMemory = 64;
// Expected before anything is known: of the gaps that reach a bucket this share ends in it, which
// makes the rate fall with the idle time. It weighs as much as so many gaps.
constexpr double kPriorShare = 0.15;
constexpr double kPriorWeight = 1;
// What is less likely to be reached does not change a decision.
constexpr double kUnlikely = 0.02;

std::size_t bucket_of(Duration gap) {
  const std::int64_t firsts = std::max<std::int64_t>(gap / kFirst, 0);
  return std::min<std::size_t>(std::bit_width(static_cast<std::uint64_t>(firsts)),
                               ReuseRecord::kBuckets - 1);
}

double seconds(Duration duration) { return Seconds(duration).count(); }

}  // namespace

void ReuseRecord::add_gap(Duration gap) {
  constexpr double kFade = 1 - 1 / kMemory;
  const std::size_t last = bucket_of(gap);
  for (std::size_t i = 0; i <= last; ++i) {
    ended[i] *= kFade;
    outlasted[i] *= kFade;
    (i == last ? ended[i] : outlasted[i]) += 1;
  }
}

double ReuseRecord::rate(Duration idle) const {
  std::size_t i = bucket_of(idle);
  double end = seconds(kFirst) * static_cast<double>(std::uint64_t{1} << i);
  const double begin = i == 0 ? 0 : end / 2;
  // Of the bucket that the idle time has reached only a part is left; the last one has no end.
  double length = i + 1 == kBuckets ? end - begin : end - seconds(std::max(idle, Duration{}));
  double part = length / (end - begin);
  double reached = 1;  // the chance that it is still idle at the bucket's begin
  double uses = 0;     // expected until its end
  double kept = 0;     // seconds kept until its end or the use, expected
  double best_uses = 0;
  double best_kept = 1;
  for (; i < kBuckets && reached > kUnlikely; ++i) {
    const double known = ended[i] + outlasted[i];
    const double whole = (ended[i] + kPriorShare * kPriorWeight) / (known + kPriorWeight);
    const double share = whole * part / (1 - whole * (1 - part));
    uses += reached * share;
    kept += reached * length * (1 - share / 2);
    if (uses * best_kept > best_uses * kept) {
      best_uses = uses;
      best_kept = kept;
    }
    reached *= 1 - share;
    length = end;
    end *= 2;
    part = 1;
  }
  return best_uses / best_kept;
}

bool ReuseRecord::plausible() const {
  const auto is_count = [](double number) { return number >= 0 && number <= 2 * kMemory; };
  return std::all_of(ended.begin(), ended.end(), is_count) &&
         std::all_of(outlasted.begin(), outlasted.end(), is_count);
}

}  // namespace omni
