#include "provision/programs.h"

#include <unistd.h>

#include <algorithm>
#include <array>

namespace omni {
namespace {

constexpr const char* kSystemCertificates = "/etc/ssl/certs/ca-certificates.crt";  // Debian's
constexpr const char* kPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

}  // namespace

Variables process_environment() {
  Variables variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

std::string variable(const Variables& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string() : found->second;
}

bool is_program(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
}

std::filesystem::path find_on_path(const Variables& environment, std::string_view name) {
  const std::string path = variable(environment, "PATH");
  for (std::size_t from = 0; from <= path.size();) {
    const std::size_t to = std::min(path.find(':', from), path.size());
    const std::filesystem::path folder = path.substr(from, to - from);
    if (folder.is_absolute() && is_program(folder / name)) return folder / name;
    from = to + 1;
  }
  return {};
}

Variables network_environment(const Variables& environment, const std::filesystem::path& home) {
  static constexpr std::array<std::string_view, 16> kPassed{
      "HOME",       "TMPDIR",        "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "NETRC",     "HTTP_PROXY",
      "http_proxy", "HTTPS_PROXY",   "https_proxy",    "ALL_PROXY",       "all_proxy", "NO_PROXY",
      "no_proxy",   "SSL_CERT_FILE", "SSL_CERT_DIR",   "SSL_CLIENT_CERT"};
  Variables result{{"PATH", kPath}, {"LANG", "C.UTF-8"}, {"HOME", home.string()}};
  for (const auto& [name, value] : environment) {
    if (std::find(kPassed.begin(), kPassed.end(), name) != kPassed.end()) result[name] = value;
  }
  // What is set for pip alone holds for the others too.
  if (const std::string pip = variable(environment, "PIP_CERT");
      !pip.empty() && !environment.contains("SSL_CERT_FILE")) {
    result["SSL_CERT_FILE"] = pip;
  }
  // The system's certificates, where its administrator adds a company's own: by themselves the
  // programs may know only those they were built with.
  if (!result.contains("SSL_CERT_FILE") && !result.contains("SSL_CERT_DIR") &&
      ::access(kSystemCertificates, R_OK) == 0) {
    result["SSL_CERT_FILE"] = kSystemCertificates;
  }
  return result;
}

std::vector<std::string> as_list(const Variables& environment) {
  std::vector<std::string> list;
  for (const auto& [name, value] : environment) list.push_back(name + "=" + value);
  return list;
}

}  // namespace omni
