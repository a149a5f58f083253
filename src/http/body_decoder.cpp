#include "http/body_decoder.h"

#include <algorithm>

#include "http/characters.h"

namespace omni::http {
namespace {

// Extensions have no known use; a long one is somebody making us read for nothing.
constexpr std::size_t kExtensionLimit = 1024;
constexpr std::size_t kTrailersLimit = 8 * 1024;

}  // namespace

Result<BodyStep> ChunkedDecoder::next(std::string_view input) {
  std::size_t at = 0;
  while (at < input.size() && state_ != State::done) {
    if (state_ == State::data) {
      const auto here =
          static_cast<std::size_t>(std::min<std::uint64_t>(remaining_, input.size() - at));
      remaining_ -= here;
      if (remaining_ == 0) state_ = State::data_cr;
      return BodyStep{at, input.substr(at, here)};
    }
    if (const char* problem = advance(input[at])) {
      return Error{ErrorCode::invalid_request,
                   std::string("the chunked body is malformed: ") + problem};
    }
    ++at;
  }
  return BodyStep{at, {}};
}

const char* ChunkedDecoder::advance(char c) {
  switch (state_) {
    case State::size_start:
      remaining_ = 0;
      line_bytes_ = 0;
      state_ = State::size;
      return add_digit(c);
    case State::size:
      if (c == '\r') return state_ = State::size_lf, nullptr;
      // Some servers pad the size with spaces.
      if (c == ';' || is_space(c)) return state_ = State::extension, nullptr;
      return add_digit(c);
    case State::extension:
      if (c == '\r') return state_ = State::size_lf, nullptr;
      if (++line_bytes_ > kExtensionLimit) return "a chunk extension is too long";
      return is_value_char(c) ? nullptr : "a chunk extension has a control character";
    case State::size_lf:
      if (c != '\n') return "CR without LF after a chunk size";
      state_ = remaining_ > 0 ? State::data : State::trailer_start;
      return nullptr;
    case State::data_cr:
      return c == '\r' ? (state_ = State::data_lf, nullptr) : "a chunk is longer than its size";
    case State::data_lf:
      return c == '\n' ? (state_ = State::size_start, nullptr) : "CR without LF after a chunk";
    case State::trailer_start:
      if (c == '\r') return state_ = State::end_lf, nullptr;
      if (!is_token_char(c)) return "a trailer name is empty or folded";
      state_ = State::trailer_name;
      [[fallthrough]];
    case State::trailer_name:
      if (++line_bytes_ > kTrailersLimit) return "the trailers are too long";
      if (c == ':') return state_ = State::trailer_value, nullptr;
      return is_token_char(c) ? nullptr : "a trailer name has a bad character";
    case State::trailer_value:
      if (c == '\r') return state_ = State::trailer_lf, nullptr;
      if (++line_bytes_ > kTrailersLimit) return "the trailers are too long";
      return is_value_char(c) ? nullptr : "a trailer value has a control character";
    case State::trailer_lf:
      return c == '\n' ? (state_ = State::trailer_start, nullptr) : "CR without LF in a trailer";
    case State::end_lf:
      return c == '\n' ? (state_ = State::done, nullptr) : "CR without LF at the end";
    case State::data:
    case State::done:
      break;
  }
  return "bytes where none belong";
}

const char* ChunkedDecoder::add_digit(char c) {
  unsigned digit = 0;
  if (is_digit(c)) {
    digit = static_cast<unsigned>(c - '0');
  } else if (to_lower(c) >= 'a' && to_lower(c) <= 'f') {
    digit = static_cast<unsigned>(to_lower(c) - 'a') + 10;
  } else {
    return "a chunk size is not a hexadecimal number";
  }
  if (remaining_ > (std::uint64_t{INT64_MAX} >> 4)) return "a chunk size is too large";
  remaining_ = remaining_ * 16 + digit;
  // Leading zeros would go on for ever.
  return ++line_bytes_ > 16 ? "a chunk size has too many digits" : nullptr;
}

Result<BodyStep> BodyDecoder::next(std::string_view input) {
  switch (kind_) {
    case Kind::chunked:
      return chunked_.next(input);
    case Kind::until_close:
      return BodyStep{0, input};
    case Kind::length:
      break;
  }
  const std::string_view data =
      input.substr(0, static_cast<std::size_t>(std::min<std::uint64_t>(remaining_, input.size())));
  remaining_ -= data.size();
  return BodyStep{0, data};
}

}  // namespace omni::http
