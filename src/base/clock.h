// Time as policies see it. Deciding code takes `TimePoint now` as a value; only loops read a clock.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/result.h"

namespace omni {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = Clock::duration;
using Seconds = std::chrono::duration<double>;

// "30s", "1h", "250ms", "1h30m", "0s". A bare number is refused: its unit would be a guess.
Result<Duration> parse_duration(std::string_view text);
// The same form back: "1h30m", "250ms".
std::string to_string(Duration duration);

}  // namespace omni
