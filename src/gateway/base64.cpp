#include "gateway/base64.h"

#include <cstdint>

namespace omni::gateway {

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      const std::uint8_t byte =
          at + i < bytes.size() ? static_cast<std::uint8_t>(bytes[at + i]) : 0;
      group = group << 8 | byte;
    }
    for (std::size_t i = 0; i < 4; ++i) {
      const bool present = at + i <= bytes.size();
      out += present ? kDigits[group >> (18 - 6 * i) & 63] : '=';
    }
  }
  return out;
}

}  // namespace omni::gateway
