// Placeholders in a command engine's command and in a model's env: "{port}", "{weights.gguf}". Only
// {word} and {word.name} count, so JSON and templates in arguments stay as they are; {{word}}
// stands for the text "{word}".
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace omni {

// By name without braces: "socket" or "port", "model_dir", "env_dir", "memory" (whole MiB),
// "threads", "weights.NAME".
using PlaceholderValues = std::map<std::string, std::string, std::less<>>;

// The text with every placeholder replaced. One without a value is an error; load_model_spec() has
// checked that a spec uses only what it will have.
Result<std::string> fill_placeholders(std::string_view text, const PlaceholderValues& values);
// Calls `found` with the name of each placeholder, in order.
void find_placeholders(std::string_view text, const std::function<void(std::string_view)>& found);

}  // namespace omni
