#include "scheduler/eviction.h"

#include <algorithm>

namespace omni::scheduling {
namespace {

double loss_per_byte(const Candidate& candidate) {
  return candidate.loss / static_cast<double>(std::max<std::int64_t>(candidate.bytes.count(), 1));
}

}  // namespace

bool closes_before(const Candidate& a, const Candidate& b) {
  if (a.drain != b.drain) return a.drain < b.drain;
  const double loss_a = loss_per_byte(a);
  const double loss_b = loss_per_byte(b);
  return loss_a != loss_b ? loss_a < loss_b : a.index < b.index;
}

std::vector<Candidate> choose_victims(std::vector<Candidate> candidates, Bytes needed) {
  std::sort(candidates.begin(), candidates.end(), closes_before);
  std::vector<Candidate> chosen;
  Bytes sum;
  for (const Candidate& candidate : candidates) {
    if (sum >= needed) break;
    chosen.push_back(candidate);
    sum += candidate.bytes;
  }
  if (sum < needed) return {};

  // The last one may have made earlier ones unnecessary: spare the dearest of them.
  for (std::size_t i = chosen.size(); i-- > 0;) {
    if (sum - chosen[i].bytes < needed) continue;
    sum -= chosen[i].bytes;
    chosen.erase(chosen.begin() + static_cast<std::ptrdiff_t>(i));
  }

  double loss = 0;
  for (const Candidate& victim : chosen) loss += victim.loss;
  const Drain latest = chosen.empty() ? Drain::at_once : chosen.back().drain;
  const Candidate* single = nullptr;
  for (const Candidate& candidate : candidates) {
    if (candidate.bytes < needed || candidate.drain > latest) continue;
    if (candidate.loss < loss) {
      loss = candidate.loss;
      single = &candidate;
    }
  }
  if (single != nullptr) return {*single};
  return chosen;
}

}  // namespace omni::scheduling
