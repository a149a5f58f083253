#include "provision/hub.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/files.h"
#include "provision/retries.h"
#include "provision/store.h"

namespace omni {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDefaultEndpoint = "https://huggingface.co";
constexpr int kMostMoves = 5;  // of a renamed repository

std::string trimmed(std::string text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && is_space(text.back())) text.pop_back();
  const auto first = std::find_if_not(text.begin(), text.end(), is_space);
  text.erase(text.begin(), first);
  return text;
}

struct Token {
  std::string value;
  std::string source;
};

// The files where the hub's own tools keep a token.
std::vector<fs::path> token_files(const Variables& environment) {
  if (const std::string home = variable(environment, "HF_HOME"); !home.empty()) {
    return {fs::path(home) / "token"};
  }
  const std::string home = variable(environment, "HOME");
  if (home.empty()) return {};
  return {fs::path(home) / ".cache/huggingface/token"};
}

Result<Token> find_token(const Variables& environment) {
  if (std::string token = trimmed(variable(environment, "HF_TOKEN")); !token.empty()) {
    return Token{std::move(token), "HF_TOKEN"};
  }
  if (const std::string named = variable(environment, "HF_TOKEN_PATH"); !named.empty()) {
    TRY(std::string token, read_file(named));
    return Token{trimmed(std::move(token)), named};
  }
  for (const fs::path& file : token_files(environment)) {
    std::error_code ignored;
    if (!fs::exists(file, ignored)) continue;
    TRY(std::string token, read_file(file));
    return Token{trimmed(std::move(token)), file.string()};
  }
  return Token{};
}

// A path as part of a URL.
std::string url_path(std::string_view path) {
  constexpr std::string_view kPlain = "-._~/";
  std::string encoded;
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       kPlain.find(c) != std::string_view::npos;
    encoded += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return encoded;
}

// An ETag without its quotes and W/.
std::string bare(std::string etag) {
  if (etag.starts_with("W/")) etag.erase(0, 2);
  std::erase(etag, '"');
  return etag;
}

bool is_sha1(std::string_view text) {
  return text.size() == 40 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string name_of(const HubSource& source) {
  return fmt::format("{} at revision {}", source.repository, source.revision);
}

}  // namespace

Result<std::string> hub_endpoint(const Variables& environment) {
  std::string endpoint = variable(environment, "HF_ENDPOINT");
  if (endpoint.empty()) endpoint = kDefaultEndpoint;
  while (endpoint.ends_with('/')) endpoint.pop_back();
  if (std::string problem = check_fetch_url(endpoint); !problem.empty()) {
    return Error{ErrorCode::provision_failed, "HF_ENDPOINT: " + problem};
  }
  return endpoint;
}

Result<Hub> Hub::from(const Variables& environment) {
  TRY(std::string endpoint, hub_endpoint(environment));
  TRY(Token token, find_token(environment));
  const bool printable = std::all_of(token.value.begin(), token.value.end(),
                                     [](char c) { return c > ' ' && c < '\x7f'; });
  if (!printable) {
    return Error{ErrorCode::provision_failed,
                 fmt::format("{} holds characters that no token has", token.source)};
  }
  return Hub(std::move(endpoint), std::move(token.value), std::move(token.source));
}

std::string Hub::file_url(const HubSource& source, const std::string& revision) const {
  return fmt::format("{}/{}/resolve/{}/{}", endpoint_, source.repository, revision,
                     url_path(source.path.lexically_normal().string()));
}

Error Hub::refusal(const HubSource& source, const CurlReply& reply) const {
  const int status = reply.status();
  std::string why;
  if (status == 401 || status == 403) {
    why = token_.empty()
              ? fmt::format(
                    "{} refuses {} without a token ({}): set HF_TOKEN in the daemon's "
                    "environment, or name a file that holds it in HF_TOKEN_PATH",
                    endpoint_, source.repository, status)
              : fmt::format(
                    "{} refuses {} to the token of {} ({}): accept the terms at {}/{}, or "
                    "give another token by HF_TOKEN or HF_TOKEN_PATH",
                    endpoint_, source.repository, token_source_, status, endpoint_,
                    source.repository);
  } else if (status == 404) {
    why = fmt::format("{} has no {} in repository {} at revision {}: correct the source", endpoint_,
                      source.path.string(), source.repository, source.revision);
  } else if (status >= 400) {
    why = fmt::format("{} answers {} for {} of {}", endpoint_, status, source.path.string(),
                      name_of(source));
  } else {
    why =
        fmt::format("cannot ask {} about {} of {}: {}", endpoint_, source.path.string(),
                    name_of(source), reply.message.empty() ? to_string(reply.exit) : reply.message);
  }
  return {ErrorCode::provision_failed, std::move(why)};
}

Result<HubFile> Hub::read_reply(const HubSource& source, const std::string& url,
                                const CurlReply& reply) const {
  const HttpHead& head = *reply.head();
  HubFile file{.url = url};
  const std::string commit = head.field("x-repo-commit");
  if (is_sha1(commit)) file.url = file_url(source, commit);
  const std::string linked = bare(head.field("x-linked-etag"));
  const std::string etag = linked.empty() ? bare(head.field("etag")) : linked;
  if (is_sha256(etag)) file.sha256 = etag;
  if (is_sha1(etag)) file.git_sha1 = etag;
  std::string size = head.field("x-linked-size");
  if (size.empty() && head.status == 200) size = head.field("content-length");
  if (!size.empty() && size.size() <= 18 && size.find_first_not_of("0123456789") == size.npos) {
    file.size = Bytes(std::stoll(size));
  }
  return file;
}

asio::awaitable<Result<HubFile>> Hub::look_up(HubSource source, Curl curl, DownloadLimits limits,
                                              LineSink progress) const {
  Retries retries(limits);
  std::string url = file_url(source, source.revision);
  for (int moves = 0;;) {
    auto reply = std::make_shared<CurlReply>();
    // Not followed: the digest is in the hub's own answer, and the servers that it sends downloads
    // to may not answer HEAD.
    CurlRequest request{.url = url, .head = true, .follow = false, .token = token_};
    CO_CHECK(co_await curl.run(std::move(request), limits, -1, reply));
    if (reply->exit.success() && reply->head() != nullptr) {
      // A renamed repository: the same server under another path.
      std::string place = reply->head()->field("location");
      if (place.starts_with('/') && !place.starts_with("//")) place = endpoint_ + place;
      const bool moved = reply->head()->status / 100 == 3 && place.starts_with(endpoint_ + "/") &&
                         reply->head()->field("x-linked-etag").empty();
      if (!moved || ++moves > kMostMoves) co_return read_reply(source, url, *reply);
      url = place;
      continue;
    }
    const auto pause = reply->is_transient() ? retries.next() : std::nullopt;
    if (!pause) co_return refusal(source, *reply);
    progress(fmt::format("{}: {}: trying again in {}", source.path.filename().string(),
                         reply->message, to_string(*pause)));
    asio::steady_timer timer(co_await asio::this_coro::executor, *pause);
    auto token = asio::use_awaitable;
    co_await timer.async_wait(token);
  }
}

}  // namespace omni
