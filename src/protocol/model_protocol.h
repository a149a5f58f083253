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
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace omni::protocol {

inline constexpr std::uint32_t kModelProtocolVersion = 1;  // version n accepts n - 1
inline constexpr std::uint32_t kMaxPayload = 64 * 1024;
inline constexpr std::size_t kFrameHeaderSize = 16;
// Credit of a new stream, in each direction. A DATA frame costs its payload and its header:
// counting the header bounds how many tiny items can be waiting.
inline constexpr std::uint32_t kInitialCredit = 256 * 1024;
// Whoever consumes gives credit back in steps of this. The rest of the window is more than one full
// frame, so a sender never waits for credit that is not coming.
inline constexpr std::uint32_t kCreditStep = 64 * 1024;
inline constexpr std::size_t kMaxItem = 64 << 20;     // bytes of one item of an answer
inline constexpr std::size_t kMaxRequest = 64 << 20;  // bytes of the JSON of a request; of its body
inline constexpr int kModelSocketFd = 3;

enum class FrameType : std::uint8_t {
  // First frame of both sides: JSON {"version": 1, "role": "data" | "control"}; the runtime answers
  // {"version": 1}.
  hello = 1,
  // Runtime → daemon, on each connection, once load() has returned: JSON {"concurrency": n}. A
  // runtime whose handler cannot be loaded writes the traceback to its log and exits with status 1.
  ready = 2,
  // Daemon → runtime: opens a stream. JSON, see ModelRequest in engine/model_channel.h: {"id",
  // "task", "parameters", "stream", "raw", "content_type", "files": [{"name", "filename",
  // "content_type", "size"}], "timeout_ms"}. Larger than one frame: continued in further request
  // frames of the stream, all but the last with kFlagMore.
  request = 3,
  // Both: body bytes (daemon → runtime), or a part of an item of the answer (runtime → daemon). An
  // item ends at the first frame without kFlagMore; bits 1-2 of the flags are its kind. Costs
  // credit.
  data = 4,
  // Daemon → runtime: the request is complete. Runtime → daemon: the answer is; with kFlagError the
  // payload is JSON {"code": an error code's name, "message", "param"?}. The last frame of a stream
  // in its direction.
  end = 5,
  // Both: u32, as much more may be sent on this stream.
  credit = 6,
  // Daemon → runtime: the client left or the time is up; the last frame of the stream in this
  // direction. The runtime closes the handler's iterator and answers END with error "cancelled", at
  // the latest when the handler returns.
  cancel = 7,
  // Runtime → daemon: the answer begins. JSON {"status", "content_type", "streaming", "headers":
  // {name: value}}.
  response = 8,
  // Runtime → daemon, before END: JSON {"usage": {...}}.
  trailer = 9,
  // Daemon → runtime, one for each entry of "files", in order, after the request's JSON and before
  // END: one descriptor as SCM_RIGHTS with the first byte of the frame. No payload.
  fd = 10,
  // Daemon → runtime on the control connection: finish what runs, take nothing new, exit with
  // status 0.
  drain = 11,
  // Both: payload is echoed in a pong.
  ping = 12,
  pong = 13,
};

// request, data: continued in the next frame of this stream.
inline constexpr std::uint8_t kFlagMore = 0x01;
inline constexpr std::uint8_t kKindMask = 0x06;  // data: 0 JSON, 2 text, 4 bytes
inline constexpr std::uint8_t kKindJson = 0x00;
inline constexpr std::uint8_t kKindText = 0x02;
inline constexpr std::uint8_t kKindBytes = 0x04;
inline constexpr std::uint8_t kFlagError = 0x08;  // end

struct FrameHeader {
  std::uint32_t length = 0;  // of the payload
  FrameType type = FrameType::hello;
  std::uint8_t flags = 0;
  // 0: the connection. Requests take 1, 2, 3, ...: each new one is larger than all before.
  std::uint64_t stream = 0;
};

std::array<std::byte, kFrameHeaderSize> encode(const FrameHeader& header);
// Nothing when the type is unknown, the payload too long or a reserved byte set: the peer is not
// one of ours.
std::optional<FrameHeader> decode_header(std::span<const std::byte, kFrameHeaderSize> bytes);

// Header and payload as bytes to write. For small frames: a DATA payload is better not copied.
std::string encode_frame(FrameType type, std::uint64_t stream, std::string_view payload,
                         std::uint8_t flags = 0);

struct Frame {
  FrameHeader header;
  std::string_view payload;
};

// Cuts what a socket gives into frames, in one buffer that never grows:
//
//   const ssize_t n = ::recv(fd, reader.space().data(), reader.space().size(), 0);
//   reader.commit(n);
//   while (auto frame = reader.next()) handle(*frame);
//   if (reader.broken()) ...             // the peer is not one of ours
class FrameReader {
 public:
  FrameReader();

  // Where to read to; never empty once next() has returned nothing. Ends the life of payloads.
  std::span<std::byte> space();
  void commit(std::size_t count);
  // The next whole frame, or nothing: more bytes are needed, or the stream is broken.
  std::optional<Frame> next();
  bool broken() const { return broken_; }

 private:
  std::unique_ptr<std::byte[]> buffer_;  // pages that were never filled cost nothing
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool broken_ = false;
};

}  // namespace omni::protocol
