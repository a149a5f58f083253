// curl, the program that downloads: TLS, redirects and proxies are its matter, its memory is not
// the daemon's, and killing it ends a download.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "provision/process.h"
#include "provision/programs.h"

namespace omni {

// How long things may take, how often they are tried. Tests make them short.
struct DownloadLimits {
  Duration connect = std::chrono::seconds(30);
  // A try without a byte for so long has failed. Whole seconds, at least one.
  Duration stall = std::chrono::seconds(60);
  // Tries in a row that bring nothing new; the pause before the next doubles.
  int tries = 6;
  Duration first_pause = std::chrono::seconds(1);
  Duration longest_pause = std::chrono::seconds(60);
  Duration total = std::chrono::hours(24);  // of one file, with all its tries
  Duration report = std::chrono::seconds(2);
  Bytes margin = Bytes(256 << 20);  // disk space that a download leaves to others
};

// One response's head. A redirect adds another.
struct HttpHead {
  int status = 0;
  std::map<std::string, std::string> fields;  // by lower-case name

  std::string field(const std::string& name) const;  // empty: it is not there
};

// What curl has told so far.
struct CurlReply {
  std::vector<HttpHead> heads;  // without informational ones
  std::string message;          // curl's own, of a failure: "curl: (18) transfer closed with …"
  ExitStatus exit;

  // A line of its output: of a head, or a message.
  void take_line(std::string_view line);
  const HttpHead* head() const { return heads.empty() ? nullptr : &heads.back(); }
  int status() const { return heads.empty() ? 0 : heads.back().status; }
  // It may go better next time: the server is overloaded, the line broke or stood still.
  bool is_transient() const;
};

struct CurlRequest {
  std::string url;
  bool head = false;     // HEAD instead of GET
  bool follow = true;    // redirects; from https only to https
  std::string token;     // for this host alone: curl drops it when a redirect leads elsewhere
  std::string if_range;  // an ETag: only if the file still has it is the rest sent
  Bytes from;            // continues a file that has so many bytes already
  std::filesystem::path output;  // of GET
};

// What curl reads as its configuration: nothing of a request stands on its command line.
std::string curl_config(const CurlRequest& request, const DownloadLimits& limits);

class Curl {
 public:
  // $OMNI_CURL, then PATH. A missing one is an error that says how to get it.
  static Result<Curl> find(const Variables& environment, const std::filesystem::path& home);

  // Runs it once. `reply` grows while it runs; shared, since the caller may look at it meanwhile.
  // An error only if it cannot be run: what the server did is in `reply`. `lock` is held until curl
  // has ended, whatever happens to this process.
  asio::awaitable<Result<void>> run(CurlRequest request, DownloadLimits limits, int lock,
                                    std::shared_ptr<CurlReply> reply) const;

 private:
  Curl(std::filesystem::path program, const Variables& environment);

  std::filesystem::path program_;
  std::vector<std::string> env_;
  std::string certificates_;  // what of its configuration is about them
};

}  // namespace omni
