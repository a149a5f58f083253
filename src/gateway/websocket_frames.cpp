#include "gateway/websocket_frames.h"

#include <algorithm>

namespace omni::gateway {
namespace {

constexpr std::uint8_t kControl = 0x08;  // of opcodes
constexpr std::uint8_t kMasked = 0x80;

// How long the header is, as far as its first two bytes tell.
std::size_t header_size(std::uint8_t second) {
  const std::uint8_t length = second & 0x7F;
  const std::size_t extended = length == 126 ? 2 : length == 127 ? 8 : 0;
  return 2 + extended + ((second & kMasked) != 0 ? 4 : 0);
}

}  // namespace

bool WebsocketFrames::feed(std::string_view bytes) {
  bool data = false;
  while (!bytes.empty()) {
    if (payload_ > 0) {
      const std::uint64_t size = std::min<std::uint64_t>(payload_, bytes.size());
      payload_ -= size;
      bytes.remove_prefix(size);
      data = data || is_data_;
      continue;
    }
    header_[have_++] = static_cast<std::uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    is_data_ = (header_[0] & kControl) == 0;
    data = data || is_data_;
    if (have_ >= 2 && have_ == header_size(header_[1])) begin_payload();
  }
  return data;
}

void WebsocketFrames::begin_payload() {
  const std::uint8_t length = header_[1] & 0x7F;
  const std::size_t extended = length == 126 ? 2 : length == 127 ? 8 : 0;
  payload_ = extended == 0 ? length : 0;
  for (std::size_t i = 0; i < extended; ++i) payload_ = payload_ << 8 | header_[2 + i];
  have_ = 0;
}

}  // namespace omni::gateway
