#include "protocol/model_protocol.h"

#include <cassert>
#include <cstring>

namespace omni::protocol {
namespace {

// Two frames: a large one that is still incomplete leaves room to read well.
constexpr std::size_t kBufferSize = 2 * (kFrameHeaderSize + kMaxPayload);

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

std::string encode_frame(FrameType type, std::uint64_t stream, std::string_view payload,
                         std::uint8_t flags) {
  const auto length = static_cast<std::uint32_t>(payload.size());
  const auto head = encode({.length = length, .type = type, .flags = flags, .stream = stream});
  std::string out;
  out.reserve(head.size() + payload.size());
  out.append(reinterpret_cast<const char*>(head.data()), head.size());
  out.append(payload);
  return out;
}

FrameReader::FrameReader() : buffer_(std::make_unique_for_overwrite<std::byte[]>(kBufferSize)) {}

std::span<std::byte> FrameReader::space() {
  if (begin_ > 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  return {buffer_.get() + end_, kBufferSize - end_};
}

void FrameReader::commit(std::size_t count) {
  assert(count <= kBufferSize - end_);
  end_ += count;
}

std::optional<Frame> FrameReader::next() {
  const std::size_t have = end_ - begin_;
  if (broken_ || have < kFrameHeaderSize) return std::nullopt;
  const std::byte* at = buffer_.get() + begin_;
  const auto header =
      decode_header(std::span<const std::byte, kFrameHeaderSize>(at, kFrameHeaderSize));
  if (!header) {
    broken_ = true;
    return std::nullopt;
  }
  const std::size_t size = kFrameHeaderSize + header->length;
  if (have < size) return std::nullopt;
  begin_ += size;
  const char* payload = reinterpret_cast<const char*>(at + kFrameHeaderSize);
  return Frame{.header = *header, .payload = {payload, header->length}};
}

}  // namespace omni::protocol
