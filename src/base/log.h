// The daemon's own log: one line an event, to standard error, text or JSON. Modules log through
// spdlog's macros-free functions (spdlog::info("model {} is resident", name)); an error is logged
// once, where it is finally handled.
#pragma once

#include <string_view>

#include "base/result.h"

namespace omni {

enum class LogFormat { text, json };

// Called once by main before any other thread exists. level: trace, debug, info, warn, error.
Result<void> configure_log(std::string_view level, LogFormat format);

}  // namespace omni
