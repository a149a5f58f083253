// Room for a file before it is fetched.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace omni {

// disk_full unless the folder's file system has `needed` and `margin` free. Blocking.
Result<void> check_disk_space(const std::filesystem::path& folder, std::string_view what,
                              Bytes needed, Bytes margin);

}  // namespace omni
