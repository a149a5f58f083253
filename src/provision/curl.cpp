#include "provision/curl.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "config/weight_source.h"

namespace omni {
namespace {

constexpr int kMostRedirects = 10;

// In a curl configuration a value stands in quotes, and these two have a backslash before them.
// Line breaks cannot come: URLs and tokens are checked, ETags come from lines.
std::string in_quotes(std::string_view value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + "\"";
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return result;
}

// "HTTP/1.1 206 Partial Content": 206.
int status_of(std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || line.size() < space + 4) return 0;
  int status = 0;
  for (const char c : line.substr(space + 1, 3)) {
    if (c < '0' || c > '9') return 0;
    status = status * 10 + (c - '0');
  }
  return status;
}

int whole_seconds(Duration duration) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(duration).count();
  return static_cast<int>(std::max<std::int64_t>(1, seconds));
}

}  // namespace

std::string HttpHead::field(const std::string& name) const {
  const auto found = fields.find(name);
  return found == fields.end() ? std::string() : found->second;
}

void CurlReply::take_line(std::string_view line) {
  if (line.starts_with("HTTP/")) {
    heads.push_back({.status = status_of(line)});
    return;
  }
  if (line.starts_with("curl: (")) {
    message = line;
    return;
  }
  if (line.empty() && !heads.empty() && heads.back().status < 200) heads.pop_back();
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || heads.empty()) return;
  std::string_view value = line.substr(colon + 1);
  while (value.starts_with(' ') || value.starts_with('\t')) value.remove_prefix(1);
  while (value.ends_with(' ') || value.ends_with('\t')) value.remove_suffix(1);
  heads.back().fields[lower(line.substr(0, colon))] = value;
}

bool CurlReply::is_transient() const {
  if (exit.by_signal) return true;  // the kernel's memory killer, say
  if (exit.value == 22) return status() >= 500 || status() == 408 || status() == 429;
  // Name, connection, proxy, TLS handshake; cut, timed out, empty, broken streams of HTTP/2 and 3.
  static constexpr std::array<int, 13> kTransient{5, 6, 7, 16, 18, 28, 35, 52, 55, 56, 92, 95, 96};
  return std::find(kTransient.begin(), kTransient.end(), exit.value) != kTransient.end();
}

std::string curl_config(const CurlRequest& request, const DownloadLimits& limits) {
  // Plain HTTP only to this machine, and there past any proxy.
  const bool loopback = request.url.starts_with("http://") && is_loopback_url(request.url);
  const char* protocols = loopback ? "=http,https" : "=https";
  std::string config = fmt::format(
      "url = {}\noutput = {}\nproto = \"{}\"\nproto-redir = \"{}\"\n"
      "silent\nshow-error\nfail\ngloboff\ndump-header = \"-\"\nsuppress-connect-headers\n"
      "user-agent = \"omni/" OMNI_VERSION
      "\"\n"
      "connect-timeout = {}\nspeed-limit = 1\nspeed-time = {}\n",
      in_quotes(request.url), in_quotes(request.head ? "/dev/null" : request.output.string()),
      protocols, protocols, whole_seconds(limits.connect), whole_seconds(limits.stall));
  if (loopback) config += "noproxy = \"*\"\n";
  if (request.head) config += "head\n";
  if (request.follow) config += fmt::format("location\nmax-redirs = {}\n", kMostRedirects);
  if (request.from > Bytes()) config += fmt::format("continue-at = {}\n", request.from.count());
  if (!request.if_range.empty()) {
    config += fmt::format("header = {}\n", in_quotes("If-Range: " + request.if_range));
  }
  if (!request.token.empty()) {
    config += fmt::format("header = {}\n", in_quotes("Authorization: Bearer " + request.token));
  }
  return config;
}

// Of SSL_CERT_FILE and SSL_CERT_DIR it would by itself take one; other programs take both.
Curl::Curl(std::filesystem::path program, const Variables& environment)
    : program_(std::move(program)), env_(as_list(environment)) {
  const std::string file = variable(environment, "SSL_CERT_FILE");
  const std::string folder = variable(environment, "SSL_CERT_DIR");
  if (!file.empty()) certificates_ += fmt::format("cacert = {}\n", in_quotes(file));
  if (!folder.empty()) certificates_ += fmt::format("capath = {}\n", in_quotes(folder));
}

Result<Curl> Curl::find(const Variables& environment, const std::filesystem::path& home) {
  const Variables env = network_environment(environment, home);
  const std::string chosen = variable(environment, "OMNI_CURL");
  if (!chosen.empty()) {
    if (chosen[0] == '/' && is_program(chosen)) return Curl(chosen, env);
    return Error{
        ErrorCode::provision_failed,
        fmt::format("OMNI_CURL is \"{}\", which is no program at an absolute path", chosen)};
  }
  std::filesystem::path found = find_on_path(environment, "curl");
  if (!found.empty()) return Curl(std::move(found), env);
  return Error{ErrorCode::provision_failed,
               "curl, which downloads weights, is not found: install it, on Debian with `apt "
               "install curl`, or name one in OMNI_CURL"};
}

asio::awaitable<Result<void>> Curl::run(CurlRequest request, DownloadLimits limits, int lock,
                                        std::shared_ptr<CurlReply> reply) const {
  // The user's own .curlrc is none of the daemon's business.
  ProcessSpec process{.argv = {program_.string(), "--disable", "--config", "-"},
                      .env = env_,
                      .inherited_fd = lock,
                      .input = curl_config(request, limits) + certificates_};
  LineSink take = [reply](std::string_view line) { reply->take_line(line); };
  CO_TRY(reply->exit, co_await run_process(std::move(process), limits.total, std::move(take)));
  co_return Result<void>();
}

}  // namespace omni
