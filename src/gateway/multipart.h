// multipart/form-data, scanned as it streams: memory stays the same however large a part is and
// wherever it stands. Pure; fuzzed by tests/fuzz/gateway.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace omni::gateway {

struct PartHead {
  std::string name;
  std::string filename;  // of a file part
  bool is_file = false;  // a filename was given, be it empty
  std::string content_type;
};

// The boundary out of a Content-Type; invalid_request when it is no usable multipart/form-data.
Result<std::string> multipart_boundary(std::string_view content_type);

class MultipartScanner {
 public:
  // Called in order: begin, any number of data, end, for each part. An error ends the scan.
  class Sink {
   public:
    virtual ~Sink() = default;
    virtual Result<void> begin(PartHead head) = 0;
    virtual Result<void> data(std::string_view bytes) = 0;
    virtual Result<void> end() = 0;
  };

  static constexpr std::size_t kMostParts = 128;
  static constexpr std::size_t kLongestPartHead = 16 * 1024;

  MultipartScanner(std::string_view boundary, Sink& sink);

  Result<void> feed(std::string_view piece);
  // The body has ended: an error unless the closing boundary was seen.
  Result<void> finish() const;

 private:
  enum class State : std::uint8_t { preamble, after_boundary, head, content, epilogue };

  // Each takes one step in buffer_ and says whether it needs more bytes to go on.
  Result<bool> step();
  Result<bool> skip_preamble();
  Result<bool> read_boundary_end();
  Result<bool> read_head();
  Result<bool> read_content();
  void consume(std::size_t count) { at_ += count; }
  std::string_view rest() const { return std::string_view(buffer_).substr(at_); }

  std::string delimiter_;  // "\r\n--boundary"
  Sink& sink_;
  State state_ = State::preamble;
  std::string buffer_;
  std::size_t at_ = 0;
  std::size_t parts_ = 0;
  bool content_started_ = false;  // the blank line before the content is gone
};

}  // namespace omni::gateway
