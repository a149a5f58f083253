// Counters, gauges and histograms that cost one relaxed atomic add on the data path, and their
// Prometheus text form.
//
// A family is made once, at start or when a model appears; the data path holds plain references to
// its members. Members live as long as the registry: a model that is removed keeps its counters, as
// Prometheus expects.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace omni {

class Counter {
 public:
  void add(std::uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

class Gauge {
 public:
  void set(double value) { value_.store(value, std::memory_order_relaxed); }
  void add(double delta) {
    double seen = value_.load(std::memory_order_relaxed);
    while (!value_.compare_exchange_weak(seen, seen + delta, std::memory_order_relaxed)) {
    }
  }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

// Seconds in buckets of 1, 2.5 and 5 per decade, from 1 ms to 500 s.
class Histogram {
 public:
  static constexpr std::array<double, 18> kBounds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                                  0.1,   0.25,   0.5,   1,    2.5,   5,
                                                  10,    25,     50,    100,  250,   500};
  void observe(Duration duration);
  std::uint64_t count() const;
  double sum_seconds() const {
    return static_cast<double>(sum_ns_.load(std::memory_order_relaxed)) / 1e9;
  }
  std::uint64_t bucket(std::size_t index) const {
    return buckets_[index].load(std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<std::uint64_t>, kBounds.size() + 1> buckets_{};
  std::atomic<std::uint64_t> sum_ns_{0};
};

class Metrics {
 public:
  // name-value pairs in the order they are shown: {{"model", "minilm"}, {"code", "200"}}
  using Labels = std::vector<std::pair<std::string, std::string>>;

  // The member of a family with these labels, made on first use. Takes a lock: not for the data
  // path.
  Counter& counter(std::string_view name, std::string_view help, Labels labels = {});
  Gauge& gauge(std::string_view name, std::string_view help, Labels labels = {});
  Histogram& histogram(std::string_view name, std::string_view help, Labels labels = {});

  // Prometheus text format 0.0.4.
  std::string render() const;

 private:
  template <typename T>
  struct Family {
    std::string help;
    std::map<std::string, std::unique_ptr<T>> members;  // by rendered labels
  };
  template <typename T>
  using Families = std::map<std::string, Family<T>, std::less<>>;
  template <typename T>
  T& member(Families<T>& families, std::string_view name, std::string_view help,
            const Labels& labels);

  mutable std::mutex mutex_;
  Families<Counter> counters_;
  Families<Gauge> gauges_;
  Families<Histogram> histograms_;
};

}  // namespace omni
