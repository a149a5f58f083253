#include "config/model_files.h"

namespace omni {

std::error_code walk_model_folder(
    const std::filesystem::path& folder,
    const std::function<void(const std::filesystem::directory_entry&)>& visit) {
  std::error_code status;
  std::filesystem::recursive_directory_iterator entry(folder, status);
  for (; !status && entry != std::filesystem::recursive_directory_iterator();
       entry.increment(status)) {
    if (is_ignored_file(entry->path().filename().string())) {
      entry.disable_recursion_pending();
    } else {
      visit(*entry);
    }
  }
  return status;
}

}  // namespace omni
