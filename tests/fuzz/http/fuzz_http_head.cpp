// Any bytes as a request head and as an answer's head. Beyond memory errors it checks three
// promises: the scanner finds the same end however the bytes arrive; what the strict parser
// accepts, Beast's independent parser reads the same way (two readings of one head are request
// smuggling); and it comes out as a head that is accepted again.
#include <boost/beast/http.hpp>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "http/client.h"
#include "http/strict_head.h"

namespace omni::http {
namespace {

namespace beast = boost::beast;

void require(bool holds) {
  if (!holds) std::abort();
}

std::size_t scan_whole(std::string_view input) {
  HeadScanner scanner;
  const auto length = scanner.scan(input, input.size() + 1);
  return length.ok() ? *length : 0;
}

std::size_t scan_bytewise(std::string_view input) {
  HeadScanner scanner;
  for (std::size_t size = 1; size <= input.size(); ++size) {
    const auto length = scanner.scan(input.substr(0, size), input.size() + 1);
    if (!length.ok()) return 0;
    if (*length > 0) return *length;
  }
  return 0;
}

void compare_with_beast(std::string_view raw, const RequestHead& head) {
  beast::http::request_parser<beast::http::empty_body> parser;
  parser.header_limit(UINT32_MAX);
  parser.body_limit(boost::none);
  beast::error_code status;
  parser.put(boost::asio::const_buffer(raw.data(), raw.size()), status);
  // Beast counts a body limit and content length of its own; what it cannot read at all is its gap.
  if (status || !parser.is_header_done()) return;
  const auto& other = parser.get();
  require(other.method_string() == head.method);
  require((other.version() == 10) == head.http_1_0);
  require(parser.chunked() == head.chunked);
  require(parser.content_length().has_value() == head.content_length.has_value());
  if (head.content_length) require(*parser.content_length() == *head.content_length);
  require(parser.keep_alive() == head.keep_alive);
}

}  // namespace
}  // namespace omni::http

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace omni::http;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t length = scan_whole(input);
  require(length == scan_bytewise(input));
  const std::string_view raw = length > 0 ? input.substr(0, length) : input;
  RequestHead head;
  if (parse_request_head(raw, head).ok()) {
    require(length == raw.size());
    compare_with_beast(raw, head);
    RequestHead again;
    require(parse_request_head(encode_head(head.method, head.target, head.headers), again).ok() ||
            head.http_1_0);
    require(again.headers.fields().size() == head.headers.fields().size());
  }
  ParsedResponse response;
  (void)parse_response_head(raw, response).ok();
  return 0;
}
