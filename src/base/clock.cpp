#include "base/clock.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace omni {
namespace {

using namespace std::chrono_literals;

struct DurationUnit {
  std::string_view name;
  std::chrono::milliseconds length;
};
// "ms" stands before "m" so that it is tried first.
constexpr std::array<DurationUnit, 5> kDurationUnits{
    {{"ms", 1ms}, {"d", 24h}, {"h", 1h}, {"m", 1min}, {"s", 1s}}};

}  // namespace

Result<Duration> parse_duration(std::string_view text) {
  const Error bad{
      ErrorCode::invalid_request,
      fmt::format("\"{}\" is not a duration: write for example \"30s\", \"5m\" or \"250ms\"",
                  text)};
  std::string_view rest = text;
  std::chrono::milliseconds total{0};
  if (rest.empty()) return bad;
  while (!rest.empty()) {
    std::int64_t number = 0;
    auto [end, status] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (status != std::errc() || number < 0 || number > 1'000'000'000) return bad;
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    const DurationUnit* found = nullptr;
    for (const DurationUnit& unit : kDurationUnits) {
      if (rest.starts_with(unit.name)) {
        found = &unit;
        break;
      }
    }
    if (found == nullptr) return bad;
    rest.remove_prefix(found->name.size());
    total += number * found->length;
  }
  if (total > std::chrono::hours(24 * 366 * 10)) return bad;
  return std::chrono::duration_cast<Duration>(total);
}

std::string to_string(Duration duration) {
  auto left = std::chrono::duration_cast<std::chrono::milliseconds>(duration);
  if (left.count() < 1000) return fmt::format("{}ms", left.count());
  std::string text;
  for (auto [name, length] : {DurationUnit{"h", 1h}, DurationUnit{"m", 1min}, DurationUnit{"s", 1s},
                              DurationUnit{"ms", 1ms}}) {
    if (left / length == 0) continue;
    text += fmt::format("{}{}", left / length, name);
    left %= length;
  }
  return text;
}

}  // namespace omni
