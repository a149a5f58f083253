// Heads and chunks as bytes; the requests' side of it is in client.h.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

#include "base/result.h"
#include "http/message.h"

namespace omni::http {

// The Date line of every answer, made once a second.
class DateLine {
 public:
  std::string_view now();

 private:
  std::time_t second_ = -1;
  std::string line_;
};

// How an answer is framed: the server's decision, never the handler's.
struct ResponseFraming {
  std::optional<std::uint64_t> content_length;
  bool chunked = false;
  bool keep_alive = true;
  bool to_http_1_0 = false;
  bool upgrade = false;
};

// A name or value that would break out of its line is refused, so that nothing a model or a client
// says can add a header or a message. Fields that framing owns (Content-Length, Transfer-Encoding,
// Connection, Keep-Alive) are left out of `head`, so that a relayed head cannot contradict it.
Result<void> append_response_head(const ResponseHead& head, const ResponseFraming& framing,
                                  DateLine& date, std::string& out);

void append_decimal(std::uint64_t number, std::string& out);
// "1f40\r\n"
void append_chunk_size(std::size_t size, std::string& out);

}  // namespace omni::http
