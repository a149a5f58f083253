#include "http/head_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "http/characters.h"
#include "http/client.h"

namespace omni::http {
namespace {

enum class Field { plain, framing, date };

Field classify(std::string_view name) {
  switch (name.size()) {
    case 4:
      return iequals(name, "date") ? Field::date : Field::plain;
    case 10:
      return iequals(name, "connection") || iequals(name, "keep-alive") ? Field::framing
                                                                        : Field::plain;
    case 14:
      return iequals(name, "content-length") ? Field::framing : Field::plain;
    case 17:
      return iequals(name, "transfer-encoding") ? Field::framing : Field::plain;
    default:
      return Field::plain;
  }
}

void append_framing(const ResponseFraming& framing, std::string& out) {
  if (framing.content_length) {
    out += "Content-Length: ";
    append_decimal(*framing.content_length, out);
    out += "\r\n";
  }
  if (framing.chunked) out += "Transfer-Encoding: chunked\r\n";
  if (framing.upgrade) {
    out += "Connection: Upgrade\r\n";
  } else if (!framing.keep_alive) {
    out += "Connection: close\r\n";
  } else if (framing.to_http_1_0) {
    out += "Connection: keep-alive\r\n";
  }
}

// The text, with another in the place of each character that does not belong there.
template <typename Belongs, typename Replace>
void append_clean(std::string_view text, Belongs belongs, Replace replace, std::string& out) {
  while (!text.empty()) {
    const auto bad = std::find_if_not(text.begin(), text.end(), belongs);
    const auto clean = static_cast<std::size_t>(bad - text.begin());
    out += text.substr(0, clean);
    if (bad == text.end()) return;
    out += replace(*bad);
    text.remove_prefix(clean + 1);
  }
}

std::string percent_encoded(char c) {
  return fmt::format("%{:02X}", static_cast<unsigned char>(c));
}

}  // namespace

std::string_view DateLine::now() {
  const std::time_t second = std::time(nullptr);
  if (second == second_) return line_;
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm utc{};
  ::gmtime_r(&second, &utc);
  second_ = second;
  line_ = fmt::format("Date: {}, {:02} {} {} {:02}:{:02}:{:02} GMT\r\n", kDays[utc.tm_wday],
                      utc.tm_mday, kMonths[utc.tm_mon], utc.tm_year + 1900, utc.tm_hour, utc.tm_min,
                      utc.tm_sec);
  return line_;
}

Result<void> append_response_head(const ResponseHead& head, const ResponseFraming& framing,
                                  DateLine& date, std::string& out) {
  const std::size_t start = out.size();
  out += "HTTP/1.1 ";
  append_decimal(static_cast<std::uint64_t>(head.status), out);
  out += ' ';
  out += reason_phrase(head.status);
  out += "\r\n";
  bool has_date = false;
  for (const Header& field : head.headers.fields()) {
    if (!is_field_name(field.name) || !is_field_value(field.value)) {
      out.resize(start);
      return Error{ErrorCode::internal,
                   fmt::format("response header {:?} has a character that would break the head",
                               field.name)};
    }
    const Field kind = classify(field.name);
    if (kind == Field::framing) continue;
    if (kind == Field::date) has_date = true;
    out += field.name;
    out += ": ";
    out += field.value;
    out += "\r\n";
  }
  if (!has_date) out += date.now();
  append_framing(framing, out);
  out += "\r\n";
  return {};
}

void append_decimal(std::uint64_t number, std::string& out) {
  char digits[20];
  const auto end = std::to_chars(digits, digits + sizeof(digits), number).ptr;
  out.append(digits, end);
}

void append_chunk_size(std::size_t size, std::string& out) {
  char digits[16];
  const auto end = std::to_chars(digits, digits + sizeof(digits), size, 16).ptr;
  out.append(digits, end);
  out += "\r\n";
}

RequestHeadWriter::RequestHeadWriter(std::string_view method, std::string_view target) {
  head_.reserve(512);
  append_clean(method, is_token_char, [](char) { return ""; }, head_);
  head_ += ' ';
  append_clean(target, is_target_char, percent_encoded, head_);
  head_ += " HTTP/1.1\r\n";
}

void RequestHeadWriter::add(std::string_view name, std::string_view value) {
  append_clean(name, is_token_char, [](char) { return '-'; }, head_);
  head_ += ": ";
  append_clean(value, is_value_char, [](char) { return ' '; }, head_);
  head_ += "\r\n";
}

std::string RequestHeadWriter::finish() && {
  head_ += "\r\n";
  return std::move(head_);
}

std::string encode_head(std::string_view method, std::string_view target, const Headers& headers) {
  RequestHeadWriter head(method, target);
  for (const Header& field : headers.fields()) head.add(field.name, field.value);
  return std::move(head).finish();
}

std::string encode_chunk(std::string_view data) {
  std::string chunk;
  chunk.reserve(data.size() + 20);
  append_chunk_size(data.size(), chunk);
  chunk += data;
  chunk += "\r\n";
  return chunk;
}

}  // namespace omni::http
