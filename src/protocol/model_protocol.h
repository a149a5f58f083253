// The omni model protocol: how the daemon talks to omni_runtime inside a Python instance. Written
// out for implementers in docs/contracts/model-protocol.md; python/omni_runtime/protocol.py is the
// other side.
//
// The runtime listens on a Unix stream socket that it finds as descriptor 3. There is one
// connection per I/O thread of the daemon (role "data") and one of the supervisor (role "control").
// Closing a connection cancels its streams.
//
// A frame is a 16-byte little-endian header and at most 64 KiB of payload.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace omni::protocol {

inline constexpr std::uint32_t kModelProtocolVersion = 1;  // version n accepts n - 1
inline constexpr std::uint32_t kMaxPayload = 64 * 1024;
inline constexpr std::uint32_t kInitialCredit =
    256 * 1024;  // DATA payload bytes per stream and direction
inline constexpr std::size_t kFrameHeaderSize = 16;
inline constexpr int kModelSocketFd = 3;

enum class FrameType : std::uint8_t {
  // First frame of both sides: JSON {"version": 1, "role": "data" | "control"}; the runtime answers
  // {"version": 1}.
  hello = 1,
  // Runtime → daemon, on each connection, once load() has returned: JSON {"concurrency": n}. A
  // runtime whose handler
  // cannot be loaded writes the traceback to its log and exits with status 1.
  ready = 2,
  // Daemon → runtime: opens a stream. JSON, see ModelRequest in engine/model_channel.h: {"id",
  // "task", "parameters",
  // "stream", "raw", "content_type", "files": [{"name", "filename", "content_type", "size"}],
  // "timeout_ms"}. Larger than
  // one frame: continued in further request frames of the stream, all but the last with kFlagMore.
  request = 3,
  // Both: body bytes (daemon → runtime), or a part of an item of the answer (runtime → daemon). An
  // item ends at the
  // first frame without kFlagMore; bits 1-2 of the flags are its kind. Costs credit.
  data = 4,
  // Daemon → runtime: the request is complete. Runtime → daemon: the answer is; with kFlagError the
  // payload is JSON
  // {"code": an error code's name, "message"}. The last frame of a stream in its direction.
  end = 5,
  // Both: u32, as many more bytes of DATA payload may be sent on this stream.
  credit = 6,
  // Daemon → runtime: the client left or the time is up. The runtime closes the handler's iterator
  // and answers END
  // with error "cancelled", at the latest when the handler returns.
  cancel = 7,
  // Runtime → daemon: the answer begins. JSON {"status", "content_type", "streaming", "headers":
  // {name: value}}.
  response = 8,
  // Runtime → daemon, before END: JSON {"usage": {...}}.
  trailer = 9,
  // Daemon → runtime, one for each entry of "files", in order, before END: one descriptor as
  // SCM_RIGHTS with the
  // first byte of the frame. No payload.
  fd = 10,
  // Daemon → runtime on the control connection: finish what runs, take nothing new, exit with
  // status 0.
  drain = 11,
  // Both: payload is echoed in a pong.
  ping = 12,
  pong = 13,
};

inline constexpr std::uint8_t kFlagMore =
    0x01;  // request, data: continued in the next frame of this stream
inline constexpr std::uint8_t kKindMask = 0x06;  // data: 0 JSON, 2 text, 4 bytes
inline constexpr std::uint8_t kKindJson = 0x00;
inline constexpr std::uint8_t kKindText = 0x02;
inline constexpr std::uint8_t kKindBytes = 0x04;
inline constexpr std::uint8_t kFlagError = 0x08;  // end

struct FrameHeader {
  std::uint32_t length = 0;  // of the payload
  FrameType type = FrameType::hello;
  std::uint8_t flags = 0;
  std::uint64_t stream =
      0;  // 0: the connection; requests use 1, 2, 3, ... of the daemon's choice, never reused
};

std::array<std::byte, kFrameHeaderSize> encode(const FrameHeader& header);
// Nothing when the type is unknown, the payload too long or a reserved byte set: the peer is not
// one of ours.
std::optional<FrameHeader> decode_header(std::span<const std::byte, kFrameHeaderSize> bytes);

}  // namespace omni::protocol
