// Trees of files below the state folder. All blocking.
#pragma once

#include <filesystem>

#include "base/result.h"

namespace omni {

// rm -rf; a missing one is fine.
Result<void> remove_tree(const std::filesystem::path& path);
// chmod -R a+rX,go-w: instances run under other uids. Symbolic links are left alone.
Result<void> make_readable(const std::filesystem::path& path);
// Everything written to the file system of `path` so far survives a power cut.
Result<void> sync_file_system(const std::filesystem::path& path);

}  // namespace omni
