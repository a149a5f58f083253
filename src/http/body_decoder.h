// Where a message's body is in the bytes of its connection: by length, in chunks, or until the
// peer closes. Pure: no I/O; both directions use it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"

namespace omni::http {

// What lies at the front of the input: bytes of framing to skip, then body bytes (a view into it).
struct BodyStep {
  std::size_t skipped = 0;
  std::string_view data;
};

// Transfer-Encoding: chunked. As strict as the head: CRLF only; extensions and trailers are
// checked, bounded and dropped.
class ChunkedDecoder {
 public:
  // Decodes up to the first body bytes, or as far as the input goes. Never looks past the body's
  // end.
  Result<BodyStep> next(std::string_view input);
  bool done() const { return state_ == State::done; }

 private:
  enum class State : std::uint8_t {
    size_start,  // the first digit of a chunk's size
    size,
    extension,
    size_lf,
    data,
    data_cr,
    data_lf,
    trailer_start,  // the first character of a trailer line, or the last blank line
    trailer_name,
    trailer_value,
    trailer_lf,
    end_lf,
    done,
  };
  // Takes one byte of framing; an error text, or null.
  const char* advance(char c);
  const char* add_digit(char c);

  State state_ = State::size_start;
  std::uint64_t remaining_ = 0;  // of the current chunk
  std::size_t line_bytes_ = 0;   // of the current extension, or of all trailers
};

class BodyDecoder {
 public:
  void reset_length(std::uint64_t length) { kind_ = Kind::length, remaining_ = length; }
  void reset_chunked() { kind_ = Kind::chunked, chunked_ = {}; }
  void reset_until_close() { kind_ = Kind::until_close; }

  Result<BodyStep> next(std::string_view input);
  bool done() const {
    return kind_ == Kind::chunked ? chunked_.done() : kind_ == Kind::length && remaining_ == 0;
  }
  // The peer closed: whether that is the body's end. Else it was cut short.
  bool finish_at_close() {
    if (kind_ == Kind::until_close) reset_length(0);
    return done();
  }
  // Bytes still to come, when the framing tells.
  std::optional<std::uint64_t> remaining() const {
    if (kind_ == Kind::length) return remaining_;
    return done() ? std::optional<std::uint64_t>(0) : std::nullopt;
  }

 private:
  enum class Kind : std::uint8_t { length, chunked, until_close };
  Kind kind_ = Kind::length;
  std::uint64_t remaining_ = 0;
  ChunkedDecoder chunked_;
};

}  // namespace omni::http
