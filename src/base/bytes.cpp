#include "base/bytes.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>

namespace omni {
namespace {

struct SizeUnit {
  std::string_view name;
  int shift;
};
constexpr std::array<SizeUnit, 5> kSizeUnits{
    {{"B", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}}};

}  // namespace

Result<Bytes> parse_bytes(std::string_view text) {
  const std::string copy(text);
  char* end = nullptr;
  const double number = std::strtod(copy.c_str(), &end);
  auto bad = [&](std::string_view why) {
    return Error{ErrorCode::invalid_request,
                 fmt::format("\"{}\" is not a size: {}; write for example \"480MiB\"", text, why)};
  };
  const bool starts_with_digit = !copy.empty() && copy[0] >= '0' && copy[0] <= '9';
  if (!starts_with_digit || end == copy.c_str() || !std::isfinite(number)) return bad("no number");
  std::string_view rest(end);
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  if (rest.empty()) rest = "B";
  for (const SizeUnit& unit : kSizeUnits) {
    if (rest != unit.name) continue;
    const double value = std::ldexp(number, unit.shift);
    if (value > 9.0e18) return bad("too large");
    return Bytes(static_cast<std::int64_t>(value));
  }
  for (std::string_view decimal : {"KB", "MB", "GB", "TB", "K", "M", "G", "T", "kB"}) {
    if (rest == decimal) {
      return bad(
          fmt::format("unit {} is ambiguous, {}iB is meant", rest, rest[0] == 'k' ? 'K' : rest[0]));
    }
  }
  return bad(fmt::format("unknown unit \"{}\"", rest));
}

std::string to_string(Bytes bytes) {
  std::size_t unit = 0;
  double value = static_cast<double>(bytes.count());
  while (std::abs(value) >= 1024 && unit + 1 < kSizeUnits.size()) {
    value /= 1024;
    ++unit;
  }
  const bool whole = unit == 0 || std::abs(value - std::round(value)) < 0.05;
  return whole ? fmt::format("{:.0f} {}", value, kSizeUnits[unit].name)
               : fmt::format("{:.1f} {}", value, kSizeUnits[unit].name);
}

}  // namespace omni
