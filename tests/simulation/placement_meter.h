// What the players of placement.h count.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "placement.h"

namespace omni::simulation {

class Meter {
 public:
  explicit Meter(TimePoint begin) : begin_(begin), last_(begin) {}

  void waited(Duration wait) { waits_.push_back(Seconds(wait).count()); }
  void loads(TimePoint now, int change) { advance(now), loads_ += change; }
  void serves(TimePoint now, int change) { advance(now), serves_ += change; }

  Figures figures() {
    Figures result = counted;
    std::sort(waits_.begin(), waits_.end());
    result.requests = waits_.size();
    if (waits_.empty()) return result;
    const auto at = [this](double share) {
      return waits_[static_cast<std::size_t>(share * static_cast<double>(waits_.size() - 1))];
    };
    result.p50 = at(0.5);
    result.p99 = at(0.99);
    result.longest = waits_.back();
    result.mean =
        std::accumulate(waits_.begin(), waits_.end(), 0.0) / static_cast<double>(waits_.size());
    const double whole = Seconds(last_ - begin_).count();
    result.loading = Seconds(loading_).count() / whole;
    result.serving = Seconds(serving_).count() / whole;
    return result;
  }

  Figures counted;  // starts and restores

 private:
  void advance(TimePoint now) {
    if (loads_ > 0) loading_ += now - last_;
    if (serves_ > 0) serving_ += now - last_;
    last_ = now;
  }

  TimePoint begin_;
  TimePoint last_;
  int loads_ = 0;
  int serves_ = 0;
  Duration loading_{};
  Duration serving_{};
  std::vector<double> waits_;
};

Figures play_omni(const std::vector<Arrival>& arrivals, const Machine& machine, bool evict);
Figures play_lru(const std::vector<Arrival>& arrivals, const Machine& machine);
Figures play_fifo(const std::vector<Arrival>& arrivals, const Machine& machine);

}  // namespace omni::simulation
