#include "gateway/websocket_frames.h"

#include <gtest/gtest.h>

#include <string>

namespace omni::gateway {
namespace {

std::string frame(std::uint8_t first, std::size_t size, bool masked) {
  std::string text(1, static_cast<char>(first));
  const char mask = masked ? '\x80' : '\0';
  if (size < 126) {
    text += static_cast<char>(mask | static_cast<char>(size));
  } else if (size < 65536) {
    text += static_cast<char>(mask | 126);
    text += static_cast<char>(size >> 8);
    text += static_cast<char>(size);
  } else {
    text += static_cast<char>(mask | 127);
    for (int shift = 56; shift >= 0; shift -= 8) text += static_cast<char>(size >> shift);
  }
  if (masked) text += "mask";
  return text + std::string(size, '\x01');
}

constexpr std::uint8_t kText = 0x81;
constexpr std::uint8_t kContinuation = 0x00;
constexpr std::uint8_t kPing = 0x89;
constexpr std::uint8_t kPong = 0x8A;
constexpr std::uint8_t kClose = 0x88;

TEST(WebsocketFrames, KeepingAliveIsNoWork) {
  WebsocketFrames frames;
  EXPECT_FALSE(frames.feed(frame(kPing, 0, true) + frame(kPong, 125, true)));
  EXPECT_FALSE(frames.feed(frame(kClose, 2, false)));
  EXPECT_TRUE(frames.feed(frame(kText, 0, false)));
  EXPECT_TRUE(frames.feed(frame(kPing, 3, false) + frame(kContinuation, 1, false)));
  EXPECT_FALSE(frames.feed(frame(kPing, 3, false)));
}

TEST(WebsocketFrames, FramesOfAnyLengthInPiecesOfAnySize) {
  for (std::size_t size : {0, 125, 126, 65535, 65536, 70000}) {
    for (std::size_t piece : {1, 3, 4096}) {
      WebsocketFrames frames;
      const std::string data = frame(kText, size, true);
      for (std::size_t at = 0; at < data.size(); at += piece) {
        EXPECT_TRUE(frames.feed(std::string_view(data).substr(at, piece))) << size << " " << at;
      }
      const std::string ping = frame(kPing, 5, true);
      for (std::size_t at = 0; at < ping.size(); at += piece) {
        EXPECT_FALSE(frames.feed(std::string_view(ping).substr(at, piece))) << size << " " << at;
      }
    }
  }
}

}  // namespace
}  // namespace omni::gateway
