#include "config/placeholders.h"

#include <fmt/format.h>

namespace omni {
namespace {

constexpr bool is_word_char(char c) { return (c >= 'a' && c <= 'z') || c == '_'; }
constexpr bool is_name_char(char c) {
  return is_word_char(c) || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '-';
}

// The name of the placeholder that `text` starts with, or empty.
std::string_view name_at(std::string_view text) {
  if (!text.starts_with('{')) return {};
  std::size_t end = 1;
  while (end < text.size() && is_word_char(text[end])) ++end;
  if (end == 1) return {};
  if (end < text.size() && text[end] == '.') {
    while (end < text.size() && is_name_char(text[end])) ++end;
  }
  if (end == text.size() || text[end] != '}') return {};
  return text.substr(1, end - 1);
}

// Splits the text into literal parts and placeholder names.
void scan(std::string_view text, const std::function<void(std::string_view)>& on_literal,
          const std::function<void(std::string_view)>& on_placeholder) {
  while (!text.empty()) {
    const std::size_t brace = text.find('{');
    if (brace != 0) {
      on_literal(text.substr(0, brace));
      text.remove_prefix(std::min(brace, text.size()));
      continue;
    }
    const std::string_view quoted = name_at(text.substr(1));
    if (!quoted.empty() && text.substr(quoted.size() + 3).starts_with('}')) {
      on_literal(text.substr(1, quoted.size() + 2));
      text.remove_prefix(quoted.size() + 4);
    } else if (const std::string_view name = name_at(text); !name.empty()) {
      on_placeholder(name);
      text.remove_prefix(name.size() + 2);
    } else {
      on_literal(text.substr(0, 1));
      text.remove_prefix(1);
    }
  }
}

}  // namespace

Result<std::string> fill_placeholders(std::string_view text, const PlaceholderValues& values) {
  std::string filled;
  std::string missing;
  scan(
      text, [&](std::string_view literal) { filled += literal; },
      [&](std::string_view name) {
        const auto value = values.find(name);
        if (value == values.end()) {
          missing = name;
        } else {
          filled += value->second;
        }
      });
  if (!missing.empty()) {
    return Error{ErrorCode::invalid_config,
                 fmt::format("placeholder {{{}}} has no value here, in \"{}\"", missing, text)};
  }
  return filled;
}

void find_placeholders(std::string_view text, const std::function<void(std::string_view)>& found) {
  scan(text, [](std::string_view) {}, found);
}

}  // namespace omni
