// What lies in a model's folder: the one rule of what counts as part of the model.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>
#include <system_error>

namespace omni {

// Neither makes a version nor a change: hidden files, and what Python writes by itself.
inline bool is_ignored_file(std::string_view name) {
  return name.starts_with('.') || name == "__pycache__";
}

// Calls `visit` with every file and folder below `folder` that counts, in no order. Links to
// folders are not followed. The error is that of the walk, which ends there.
std::error_code walk_model_folder(
    const std::filesystem::path& folder,
    const std::function<void(const std::filesystem::directory_entry&)>& visit);

}  // namespace omni
