// One file from a URL into a part file, however often the line breaks: tries go on where the last
// one ended, also after a restart of the daemon.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <filesystem>
#include <optional>
#include <string>

#include "base/result.h"
#include "provision/curl.h"

namespace omni {

struct Download {
  std::string url;
  std::string shown;           // the URL in messages
  std::string name;            // the file in progress lines
  std::string token;           // for the URL's host
  std::optional<Bytes> size;   // if it is known before
  std::filesystem::path part;  // beside it lies PART.etag, which server's file it is of
  int lock = -1;               // held by curl too
};

// Whether the file is made of more than one piece: then a wrong digest may be a mixture of two
// files, and not the server's fault.
struct Downloaded {
  bool pieced = false;
};

// Retries what may go better next time. Errors: disk_full before the first byte if there is no
// room, or in the middle; provision_failed for what the server or curl say. The part file stays
// after a failure.
asio::awaitable<Result<Downloaded>> download(asio::thread_pool& workers, Curl curl, Download file,
                                             DownloadLimits limits, LineSink progress);

// "model.gguf: 1.2 of 4.7 GiB, 25 %, 48 MiB/s"
std::string progress_line(std::string_view name, Bytes done, std::optional<Bytes> total,
                          Bytes per_second);

}  // namespace omni
