#include "base/metrics.h"

#include <fmt/format.h>

namespace omni {
namespace {

std::string escape_label(std::string_view value) {
  std::string out;
  for (char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

std::string render_labels(const Metrics::Labels& labels) {
  std::string out;
  for (const auto& [name, value] : labels) {
    out += fmt::format("{}{}=\"{}\"", out.empty() ? "" : ",", name, escape_label(value));
  }
  return out;
}

std::string with_label(const std::string& labels, std::string_view extra) {
  return labels.empty() ? std::string(extra) : labels + "," + std::string(extra);
}

std::string braces(const std::string& labels) { return labels.empty() ? "" : "{" + labels + "}"; }

void render_header(std::string& out, std::string_view name, std::string_view help,
                   std::string_view type) {
  out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

}  // namespace

void Histogram::observe(Duration duration) {
  const double seconds = Seconds(duration).count();
  std::size_t index = 0;
  while (index < kBounds.size() && seconds > kBounds[index]) ++index;
  buckets_[index].fetch_add(1, std::memory_order_relaxed);
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
  sum_ns_.fetch_add(static_cast<std::uint64_t>(std::max<std::int64_t>(0, ns)),
                    std::memory_order_relaxed);
}

std::uint64_t Histogram::count() const {
  std::uint64_t total = 0;
  for (const auto& bucket : buckets_) total += bucket.load(std::memory_order_relaxed);
  return total;
}

template <typename T>
T& Metrics::member(Families<T>& families, std::string_view name, std::string_view help,
                   const Labels& labels) {
  std::scoped_lock lock(mutex_);
  auto& family = families[std::string(name)];
  family.help = help;
  auto& slot = family.members[render_labels(labels)];
  if (!slot) slot = std::make_unique<T>();
  return *slot;
}

Counter& Metrics::counter(std::string_view name, std::string_view help, Labels labels) {
  return member(counters_, name, help, labels);
}
Gauge& Metrics::gauge(std::string_view name, std::string_view help, Labels labels) {
  return member(gauges_, name, help, labels);
}
Histogram& Metrics::histogram(std::string_view name, std::string_view help, Labels labels) {
  return member(histograms_, name, help, labels);
}

std::string Metrics::render() const {
  std::scoped_lock lock(mutex_);
  std::string out;
  for (const auto& [name, family] : counters_) {
    render_header(out, name, family.help, "counter");
    for (const auto& [labels, counter] : family.members) {
      out += fmt::format("{}{} {}\n", name, braces(labels), counter->value());
    }
  }
  for (const auto& [name, family] : gauges_) {
    render_header(out, name, family.help, "gauge");
    for (const auto& [labels, gauge] : family.members) {
      out += fmt::format("{}{} {}\n", name, braces(labels), gauge->value());
    }
  }
  for (const auto& [name, family] : histograms_) {
    render_header(out, name, family.help, "histogram");
    for (const auto& [labels, histogram] : family.members) {
      std::uint64_t below = 0;
      for (std::size_t i = 0; i < Histogram::kBounds.size(); ++i) {
        below += histogram->bucket(i);
        out += fmt::format(
            "{}_bucket{} {}\n", name,
            braces(with_label(labels, fmt::format("le=\"{}\"", Histogram::kBounds[i]))), below);
      }
      below += histogram->bucket(Histogram::kBounds.size());
      out +=
          fmt::format("{}_bucket{} {}\n", name, braces(with_label(labels, "le=\"+Inf\"")), below);
      out += fmt::format("{}_sum{} {}\n", name, braces(labels), histogram->sum_seconds());
      out += fmt::format("{}_count{} {}\n", name, braces(labels), below);
    }
  }
  return out;
}

}  // namespace omni
