#include "http/strict_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/bytes.h"
#include "http/characters.h"

namespace omni::http {
namespace {

// More fields than any client sends; a head of 4-byte fields would cost 30 times its own memory.
constexpr std::size_t kMaxFields = 128;
constexpr std::size_t kMaxMethod = 32;

Error refused(std::string message) { return {ErrorCode::invalid_request, std::move(message)}; }

// Text from the peer in a message to people: short, and without what would break a log line.
std::string shown(std::string_view text) {
  constexpr std::size_t kShown = 64;
  std::string copy(text.substr(0, kShown));
  for (char& c : copy) {
    if (!is_value_char(c) || static_cast<unsigned char>(c) >= 0x80) c = '?';
  }
  if (text.size() > kShown) copy += "...";
  return copy;
}

// The next line of `rest` without its CRLF.
Result<std::string_view> take_line(std::string_view& rest) {
  const std::size_t end = rest.find('\n');
  if (end == std::string_view::npos) return refused("the head has no end");
  if (end == 0 || rest[end - 1] != '\r') return refused("a line of the head ends in LF without CR");
  const std::string_view line = rest.substr(0, end - 1);
  rest.remove_prefix(end + 1);
  return line;
}

Result<void> parse_field(std::string_view line, Headers& headers) {
  if (is_space(line.front())) return refused("a header is folded over two lines (obs-fold)");
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) {
    return refused(fmt::format("header line \"{}\" has no colon", shown(line)));
  }
  const std::string_view name = line.substr(0, colon);
  if (!is_field_name(name)) {
    return refused(
        fmt::format("header name \"{}\" is empty or has a character that names cannot "
                    "have (a space before the colon?)",
                    shown(name)));
  }
  std::string_view value = line.substr(colon + 1);
  while (!value.empty() && is_space(value.front())) value.remove_prefix(1);
  while (!value.empty() && is_space(value.back())) value.remove_suffix(1);
  if (!is_field_value(value)) {
    return refused(fmt::format("the value of header \"{}\" has a control character", name));
  }
  headers.add(std::string(name), std::string(value));
  return {};
}

// Fields up to the blank line, which must be the end of `rest`.
Result<void> parse_fields(std::string_view rest, Headers& headers) {
  for (;;) {
    TRY(const std::string_view line, take_line(rest));
    if (line.empty()) break;
    if (headers.fields().size() == kMaxFields) {
      return Error{ErrorCode::head_too_large,
                   fmt::format("the head has more than {} fields", kMaxFields)};
    }
    CHECK(parse_field(line, headers));
  }
  if (!rest.empty()) return refused("bytes follow the blank line of the head");
  return {};
}

struct Framing {
  std::optional<std::uint64_t> content_length;
  bool chunked = false;
};

Result<std::uint64_t> parse_length(std::string_view value) {
  std::uint64_t length = 0;
  const char* const end = value.data() + value.size();
  const bool digits = !value.empty() && std::all_of(value.begin(), value.end(), is_digit);
  const auto parsed = std::from_chars(value.data(), end, length);
  if (!digits || parsed.ec != std::errc() || parsed.ptr != end || length > INT64_MAX) {
    return refused(fmt::format("Content-Length \"{}\" is not one decimal number", shown(value)));
  }
  return length;
}

Result<Framing> parse_framing(const Headers& headers, bool http_1_0) {
  Framing framing;
  for (const Header& field : headers.fields()) {
    if (iequals(field.name, "content-length")) {
      if (framing.content_length) return refused("Content-Length is given more than once");
      TRY(framing.content_length, parse_length(field.value));
    } else if (iequals(field.name, "transfer-encoding")) {
      if (framing.chunked) return refused("Transfer-Encoding is given more than once");
      if (http_1_0) return refused("Transfer-Encoding does not exist in HTTP/1.0");
      if (!iequals(field.value, "chunked")) {
        return refused(fmt::format("Transfer-Encoding \"{}\" is not supported: only \"chunked\" is",
                                   shown(field.value)));
      }
      framing.chunked = true;
    }
  }
  if (framing.chunked && framing.content_length) {
    return refused("Content-Length and Transfer-Encoding are given together");
  }
  return framing;
}

bool keeps_alive(const Headers& headers, bool http_1_0) {
  if (headers.has_token("connection", "close")) return false;
  return !http_1_0 || headers.has_token("connection", "keep-alive");
}

// "HTTP/1.1" or "HTTP/1.0"; nothing for any other text.
std::optional<bool> parse_is_http_1_0(std::string_view version) {
  if (version == "HTTP/1.1") return false;
  if (version == "HTTP/1.0") return true;
  return std::nullopt;
}

Result<void> check_host(std::string_view host) {
  if (!std::all_of(host.begin(), host.end(), is_host_char)) {
    return refused(fmt::format("host \"{}\" has a character that hosts cannot have", shown(host)));
  }
  return {};
}

// "http://host/path?query" into the host and "/path?query".
Result<std::string_view> split_absolute_form(std::string_view& target) {
  const std::size_t scheme_end = target.find("://");
  const std::string_view scheme = target.substr(0, scheme_end);
  if (scheme_end == std::string_view::npos ||
      !(iequals(scheme, "http") || iequals(scheme, "https"))) {
    return refused(fmt::format("target \"{}\" is neither a path nor an http URL", shown(target)));
  }
  target.remove_prefix(scheme_end + 3);
  const std::size_t host_end = std::min(target.find_first_of("/?"), target.size());
  const std::string_view host = target.substr(0, host_end);
  target.remove_prefix(host_end);
  if (host.empty()) return refused("the target URL has no host");
  CHECK(check_host(host));
  return host;
}

// Sets method, target and version; gives the host of an absolute-form target, else nothing.
Result<std::string_view> parse_request_line(std::string_view line, RequestHead& head) {
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) {
    return refused(fmt::format("request line \"{}\" is not METHOD TARGET VERSION", shown(line)));
  }
  const std::string_view method = line.substr(0, first);
  std::string_view target = line.substr(first + 1, last - first - 1);
  const auto http_1_0 = parse_is_http_1_0(line.substr(last + 1));
  if (!http_1_0) {
    return refused(
        fmt::format("version \"{}\" is not HTTP/1.1 or HTTP/1.0", shown(line.substr(last + 1))));
  }
  if (!is_field_name(method) || method.size() > kMaxMethod) {
    return refused(fmt::format("method \"{}\" is not a token", shown(method)));
  }
  if (target.empty() || !std::all_of(target.begin(), target.end(), is_target_char)) {
    return refused(fmt::format("target \"{}\" is empty or has a character that targets cannot have",
                               shown(target)));
  }
  std::string_view host;
  if (target.front() != '/' && !(target == "*" && method == "OPTIONS")) {
    TRY(host, split_absolute_form(target));
  }
  head.method = method;
  // "http://host" and "http://host?query" leave no path.
  head.target = host.data() != nullptr && (target.empty() || target.front() == '?') ? "/" : "";
  head.target += target;
  head.http_1_0 = *http_1_0;
  return host;
}

Result<void> settle_host(std::string_view target_host, RequestHead& head) {
  const auto& fields = head.headers.fields();
  const auto hosts = std::count_if(fields.begin(), fields.end(),
                                   [](const Header& field) { return iequals(field.name, "host"); });
  if (hosts > 1) return refused("Host is given more than once");
  if (hosts == 0 && !head.http_1_0) return refused("Host is missing");
  CHECK(check_host(head.headers.get("host")));
  if (!target_host.empty()) head.headers.set("Host", std::string(target_host));
  return {};
}

}  // namespace

Result<std::size_t> HeadScanner::scan(std::string_view input, std::size_t limit) {
  while (scanned_ < input.size()) {
    const void* found = std::memchr(input.data() + scanned_, '\n', input.size() - scanned_);
    if (found == nullptr) {
      scanned_ = input.size();
      break;
    }
    const std::size_t lf = static_cast<std::size_t>(static_cast<const char*>(found) - input.data());
    if (lf >= limit) break;
    if (lf == 0 || input[lf - 1] != '\r') {
      return refused("a line of the head ends in LF without CR");
    }
    const bool blank = lf - 1 == line_;
    line_ = scanned_ = lf + 1;
    if (blank) return lf + 1;
  }
  if (input.size() >= limit) {
    return Error{ErrorCode::head_too_large,
                 fmt::format("the head is larger than {}",
                             to_string(Bytes(static_cast<std::int64_t>(limit))))};
  }
  return std::size_t{0};
}

Result<void> parse_request_head(std::string_view raw, RequestHead& head) {
  head.headers.clear();
  TRY(const std::string_view line, take_line(raw));
  TRY(const std::string_view target_host, parse_request_line(line, head));
  CHECK(parse_fields(raw, head.headers));
  CHECK(settle_host(target_host, head));
  TRY(const Framing framing, parse_framing(head.headers, head.http_1_0));
  head.content_length = framing.content_length;
  head.chunked = framing.chunked;
  head.keep_alive = keeps_alive(head.headers, head.http_1_0);
  head.expect_continue = !head.http_1_0 && iequals(head.headers.get("expect"), "100-continue");
  return {};
}

static Result<void> parse_response(std::string_view raw, ParsedResponse& response) {
  response.head.headers.clear();
  TRY(const std::string_view line, take_line(raw));
  const auto http_1_0 = parse_is_http_1_0(line.substr(0, 8));
  const std::string_view rest = line.substr(std::min<std::size_t>(8, line.size()));
  // " 200", " 200 " and " 200 OK": the reason, and some servers' last space, may be missing.
  const bool status_shaped = rest.size() >= 4 && rest[0] == ' ' && rest[1] >= '1' &&
                             rest[1] <= '9' && is_digit(rest[2]) && is_digit(rest[3]) &&
                             (rest.size() == 4 || rest[4] == ' ');
  if (!http_1_0 || !status_shaped || !is_field_value(rest)) {
    return refused(fmt::format("status line \"{}\" is not HTTP/1.1", shown(line)));
  }
  response.head.status = (rest[1] - '0') * 100 + (rest[2] - '0') * 10 + (rest[3] - '0');
  CHECK(parse_fields(raw, response.head.headers));
  TRY(const Framing framing, parse_framing(response.head.headers, *http_1_0));
  response.head.content_length = framing.content_length;
  response.chunked = framing.chunked;
  response.keep_alive = keeps_alive(response.head.headers, *http_1_0);
  return {};
}

Result<void> parse_response_head(std::string_view raw, ParsedResponse& response) {
  auto parsed = parse_response(raw, response);
  if (parsed.ok()) return {};
  return Error{ErrorCode::engine_protocol, "the answer is malformed: " + parsed.error().message};
}

}  // namespace omni::http
