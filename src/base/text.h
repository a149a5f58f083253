// Small text helpers for messages to people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace omni {

// The candidate within a third of the name's length in edits, or empty: for "did you mean".
std::string nearest_name(std::string_view name, const std::vector<std::string_view>& candidates);
// True when the text is well-formed UTF-8 without surrogates.
bool is_utf8(std::string_view text);
// Well-formed UTF-8: broken bytes become '?'.
std::string to_utf8(std::string_view text);

// "1 request", "3 requests".
std::string counted(std::uint64_t number, std::string_view thing);

}  // namespace omni
