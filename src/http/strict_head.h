// The strict check of a raw head, and its parse, in one: what is accepted here has exactly one
// reading, so that no other server behind or before omni can see another message in the same bytes.
// Pure: no I/O. Refused (docs/contracts/head-validation.md): bare LF, obs-fold, whitespace before
// the colon, bad characters, a Content-Length that is repeated, a list or not a number, together
// with Transfer-Encoding, a Transfer-Encoding other than exactly `chunked` or in HTTP/1.0, no Host
// or several.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/result.h"
#include "http/message.h"

namespace omni::http {

// Finds the end of a head that arrives in pieces; looks at every byte once.
class HeadScanner {
 public:
  // The length of the head with its blank line, 0 while it is incomplete. `input` starts at the
  // head's first byte and only grows between calls. Errors: head_too_large, invalid_request (bare
  // LF).
  Result<std::size_t> scan(std::string_view input, std::size_t limit);
  void reset() { scanned_ = line_ = 0; }

 private:
  std::size_t scanned_ = 0;
  std::size_t line_ = 0;  // where the current line starts
};

// `raw` is a whole head with its blank line. The result goes into `head`, whose memory is reused.
// An absolute-form target becomes origin form and its authority the Host (RFC 9112, 3.2.2).
Result<void> parse_request_head(std::string_view raw, RequestHead& head);

struct ParsedResponse {
  ResponseHead head;
  bool chunked = false;
  bool keep_alive = true;
};
// Errors: engine_protocol.
Result<void> parse_response_head(std::string_view raw, ParsedResponse& response);

}  // namespace omni::http
