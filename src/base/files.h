// Small files, whole: specs, state records, /proc entries. Blocking; never called on an I/O thread.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace omni {

// The whole file. Larger than `limit` is an error, so that a stray path to a weight file cannot
// fill memory.
Result<std::string> read_file(const std::filesystem::path& path, Bytes limit = Bytes(16 << 20));
// Readers see the old content or the new, never a part: written beside it, then renamed over it.
Result<void> write_file_atomic(const std::filesystem::path& path, std::string_view content,
                               int mode = 0644);
// mkdir -p; the last folder gets the mode.
Result<void> make_directories(const std::filesystem::path& path, int mode = 0755);

}  // namespace omni
