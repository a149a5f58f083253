// Tells work from keeping alive in one direction of a WebSocket (RFC 6455, section 5.2): pings,
// pongs and closes are no work. Only headers are read; nothing is held.
#pragma once

#include <cstdint>
#include <string_view>

namespace omni::gateway {

class WebsocketFrames {
 public:
  // The bytes that come next. Whether any of them is of a data frame.
  bool feed(std::string_view bytes);

 private:
  void begin_payload();

  std::uint8_t header_[14];    // of the frame that begins
  std::size_t have_ = 0;       // bytes of it
  std::uint64_t payload_ = 0;  // bytes of the frame still to come
  bool is_data_ = false;
};

}  // namespace omni::gateway
