#include "protocol/model_protocol.h"

namespace omni::protocol {
namespace {

template <typename T>
void put(std::byte* out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out[i] = static_cast<std::byte>(value >> (8 * i));
}

template <typename T>
T get(const std::byte* in) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(in[i]) << (8 * i);
  return value;
}

}  // namespace

std::array<std::byte, kFrameHeaderSize> encode(const FrameHeader& header) {
  std::array<std::byte, kFrameHeaderSize> out{};
  put<std::uint32_t>(out.data(), header.length);
  out[4] = static_cast<std::byte>(header.type);
  out[5] = static_cast<std::byte>(header.flags);
  put<std::uint64_t>(out.data() + 8, header.stream);
  return out;
}

std::optional<FrameHeader> decode_header(std::span<const std::byte, kFrameHeaderSize> bytes) {
  FrameHeader header;
  header.length = get<std::uint32_t>(bytes.data());
  const auto type = std::to_integer<std::uint8_t>(bytes[4]);
  header.flags = std::to_integer<std::uint8_t>(bytes[5]);
  header.stream = get<std::uint64_t>(bytes.data() + 8);
  const bool known = type >= static_cast<std::uint8_t>(FrameType::hello) &&
                     type <= static_cast<std::uint8_t>(FrameType::pong);
  const bool reserved_clear = bytes[6] == std::byte{0} && bytes[7] == std::byte{0};
  if (!known || !reserved_clear || header.length > kMaxPayload) return std::nullopt;
  header.type = static_cast<FrameType>(type);
  return header;
}

}  // namespace omni::protocol
