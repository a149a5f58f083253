#include "gateway/multipart.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "http/message.h"

namespace omni::gateway {
namespace {

constexpr std::size_t kLongestBoundary = 70;  // RFC 2046

Error malformed(std::string_view what) {
  return {ErrorCode::invalid_request, fmt::format("the multipart body is malformed: {}", what)};
}

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// A quoted string or a token at the start of `text`; takes it off. Browsers escape a quote in a
// name as %22, other clients as \".
std::string take_value(std::string_view& text) {
  std::string value;
  if (!text.starts_with('"')) {
    const std::size_t end = std::min(text.find(';'), text.size());
    value = trim(text.substr(0, end));
    text.remove_prefix(end);
    return value;
  }
  std::size_t at = 1;
  for (; at < text.size() && text[at] != '"'; ++at) {
    const bool escape =
        text[at] == '\\' && at + 1 < text.size() && (text[at + 1] == '"' || text[at + 1] == '\\');
    if (escape) ++at;
    value += text[at];
  }
  text.remove_prefix(std::min(at + 1, text.size()));
  return value;
}

// `; name="x"; filename=y` → the parameter's value.
std::optional<std::string> parameter(std::string_view header, std::string_view name) {
  header.remove_prefix(std::min(header.find(';'), header.size()));
  while (header.starts_with(';')) {
    header = trim(header.substr(1));
    const std::size_t equals = header.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view key = trim(header.substr(0, equals));
    header = header.substr(equals + 1);
    const bool wanted = http::iequals(key, name);
    std::string value = take_value(header);
    if (wanted) return value;
    header.remove_prefix(std::min(header.find(';'), header.size()));
  }
  return std::nullopt;
}

Result<void> read_disposition(std::string_view value, PartHead& head) {
  auto name = parameter(value, "name");
  if (!http::iequals(trim(value.substr(0, value.find(';'))), "form-data") || !name) {
    return malformed("a part has no Content-Disposition: form-data with a name");
  }
  head.name = std::move(*name);
  if (auto filename = parameter(value, "filename")) {
    head.is_file = true;
    head.filename = std::move(*filename);
  }
  return {};
}

Result<PartHead> parse_part_head(std::string_view lines) {
  PartHead head;
  bool named = false;
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find("\r\n"), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 2, lines.size()));
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return malformed("a part's header line has no colon");
    const std::string_view name = line.substr(0, colon);
    const std::string_view value = trim(line.substr(colon + 1));
    if (http::iequals(name, "content-disposition")) {
      CHECK(read_disposition(value, head));
      named = true;
    } else if (http::iequals(name, "content-type")) {
      head.content_type = value;
    } else if (http::iequals(name, "content-transfer-encoding") &&
               !http::iequals(value, "binary") && !http::iequals(value, "8bit") &&
               !http::iequals(value, "7bit")) {
      return malformed("Content-Transfer-Encoding is not supported in forms");
    }
  }
  if (!named) return malformed("a part has no Content-Disposition");
  return head;
}

}  // namespace

Result<std::string> multipart_boundary(std::string_view content_type) {
  auto boundary = parameter(content_type, "boundary");
  if (!http::iequals(trim(content_type.substr(0, content_type.find(';'))), "multipart/form-data")) {
    return Error{ErrorCode::unsupported_media_type,
                 fmt::format("send multipart/form-data instead of \"{}\"", content_type)};
  }
  if (!boundary || boundary->empty() || boundary->size() > kLongestBoundary) {
    return malformed("its Content-Type has no usable boundary");
  }
  return *boundary;
}

// The buffer starts with the line end that the first boundary may lack.
MultipartScanner::MultipartScanner(std::string_view boundary, Sink& sink)
    : delimiter_(fmt::format("\r\n--{}", boundary)), sink_(sink), buffer_("\r\n") {}

Result<void> MultipartScanner::feed(std::string_view piece) {
  if (state_ == State::epilogue) return {};
  buffer_.erase(0, at_);
  at_ = 0;
  buffer_ += piece;
  for (;;) {
    TRY(bool starved, step());
    if (starved) return {};
  }
}

Result<void> MultipartScanner::finish() const {
  if (state_ == State::epilogue) return {};
  return malformed("it ends before its closing boundary");
}

Result<bool> MultipartScanner::step() {
  switch (state_) {
    case State::preamble:
      return skip_preamble();
    case State::after_boundary:
      return read_boundary_end();
    case State::head:
      return read_head();
    case State::content:
      return read_content();
    case State::epilogue:
      consume(rest().size());
      return true;
  }
  return true;
}

Result<bool> MultipartScanner::skip_preamble() {
  const std::size_t found = rest().find(delimiter_);
  if (found == std::string_view::npos) {
    if (rest().size() >= delimiter_.size()) consume(rest().size() - delimiter_.size() + 1);
    return true;
  }
  consume(found + delimiter_.size());
  state_ = State::after_boundary;
  return false;
}

// "--" closes the body; else only padding may stand before the line's end.
Result<bool> MultipartScanner::read_boundary_end() {
  if (rest().starts_with("--")) {
    state_ = State::epilogue;
    return false;
  }
  const std::size_t padding = std::min(rest().find_first_not_of(" \t"), rest().size());
  if (padding > kLongestBoundary) return malformed("a boundary line is too long");
  const std::string_view end = rest().substr(padding);
  if (end.size() < 2 && std::string_view("\r\n").starts_with(end)) return true;
  if (end.size() == 1 && end == "-" && padding == 0) return true;
  if (!end.starts_with("\r\n")) return malformed("a boundary is followed by other text");
  if (++parts_ > kMostParts) return malformed(fmt::format("it has over {} parts", kMostParts));
  // The line end stays: an empty head is then a blank line like any other.
  consume(padding);
  state_ = State::head;
  return false;
}

Result<bool> MultipartScanner::read_head() {
  const std::size_t end = rest().find("\r\n\r\n");
  if (end == std::string_view::npos) {
    if (rest().size() >= kLongestPartHead + 4) return malformed("a part's head is too long");
    return true;
  }
  if (end > kLongestPartHead) return malformed("a part's head is too long");
  const std::string_view lines = end == 0 ? std::string_view() : rest().substr(2, end - 2);
  TRY(PartHead head, parse_part_head(lines));
  // Two bytes of the blank line stay: they are the line end of a boundary that follows at once.
  consume(end + 2);
  CHECK(sink_.begin(std::move(head)));
  state_ = State::content;
  content_started_ = false;
  return false;
}

Result<bool> MultipartScanner::read_content() {
  const std::size_t found = rest().find(delimiter_);
  // What may be the beginning of a delimiter is kept for the next piece.
  const std::size_t kept = delimiter_.size() - 1;
  std::size_t length = found != std::string_view::npos ? found
                       : rest().size() > kept          ? rest().size() - kept
                                                       : 0;
  if (!content_started_) {
    if (length < 2 && found == std::string_view::npos) return true;
    const std::size_t blank = std::min<std::size_t>(length, 2);
    consume(blank);
    length -= blank;
    content_started_ = true;
  }
  if (length > 0) CHECK(sink_.data(rest().substr(0, length)));
  consume(length);
  if (found == std::string_view::npos) return true;
  CHECK(sink_.end());
  consume(delimiter_.size());
  state_ = State::after_boundary;
  return false;
}

}  // namespace omni::gateway
