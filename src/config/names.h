// What names and paths in the files may look like. Private to this module.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string_view>

namespace omni {

constexpr bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// Not empty, and only ASCII letters, digits and the given characters.
constexpr bool is_made_of(std::string_view text, std::string_view also) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [also](char c) {
    return is_alphanumeric(c) || also.find(c) != std::string_view::npos;
  });
}

// [a-z0-9][a-z0-9._-]{0,63}
constexpr bool is_model_name(std::string_view name) {
  return is_made_of(name, "._-") && name.size() <= 64 && is_alphanumeric(name[0]) &&
         std::none_of(name.begin(), name.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
}

// What clients of other servers send as model names: "gpt-4o", "org/model:tag", "@cf/org/model".
constexpr bool is_alias(std::string_view name) {
  return is_made_of(name, "._-/:@+") && name.size() <= 128 &&
         (is_alphanumeric(name[0]) || name[0] == '@');
}

// A relative path that stays inside the folder it starts at.
inline bool is_inside_folder(const std::filesystem::path& path) {
  return !path.empty() && path.is_relative() && path.has_filename() &&
         std::none_of(path.begin(), path.end(),
                      [](const std::filesystem::path& part) { return part == ".."; });
}

}  // namespace omni
