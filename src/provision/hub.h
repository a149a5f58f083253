// The Hugging Face hub, or a server that speaks like it: where a file of a repository is, and which
// digest it has. docs/contracts/provision.md.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "config/weight_source.h"
#include "provision/curl.h"
#include "provision/programs.h"

namespace omni {

// What the hub says about a file. One of the digests is set.
struct HubFile {
  std::string url;       // of the commit, if the hub names it: a branch moves on
  std::string sha256;    // of a large file
  std::string git_sha1;  // of a small one: git's name of it, of "blob SIZE\0" and the content
  std::optional<Bytes> size;
};

// HF_ENDPOINT, or the Hugging Face hub; without a slash at its end.
Result<std::string> hub_endpoint(const Variables& environment);

class Hub {
 public:
  // Of hub_endpoint(), with the token of HF_TOKEN, or of the file that HF_TOKEN_PATH names, or of
  // $HF_HOME/token, or of ~/.cache/huggingface/token. No error ever holds a token. Blocking.
  static Result<Hub> from(const Variables& environment);

  const std::string& endpoint() const { return endpoint_; }
  const std::string& token() const { return token_; }
  std::string file_url(const HubSource& source, const std::string& revision) const;

  // Tries again what may go better next time.
  asio::awaitable<Result<HubFile>> look_up(HubSource source, Curl curl, DownloadLimits limits,
                                           LineSink progress) const;

 private:
  Hub(std::string endpoint, std::string token, std::string token_source)
      : endpoint_(std::move(endpoint)),
        token_(std::move(token)),
        token_source_(std::move(token_source)) {}
  Error refusal(const HubSource& source, const CurlReply& reply) const;
  Result<HubFile> read_reply(const HubSource& source, const std::string& url,
                             const CurlReply& reply) const;

  std::string endpoint_;
  std::string token_;
  std::string token_source_;  // "HF_TOKEN" or a file's path
};

}  // namespace omni
