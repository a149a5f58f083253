#include "protocol/model_protocol.h"

#include <gtest/gtest.h>

#include <cstring>

namespace omni::protocol {
namespace {

void feed(FrameReader& reader, std::string_view bytes) {
  ASSERT_GE(reader.space().size(), bytes.size());
  std::memcpy(reader.space().data(), bytes.data(), bytes.size());
  reader.commit(bytes.size());
}

TEST(FrameHeader, SurvivesEncoding) {
  const FrameHeader header{.length = 65536,
                           .type = FrameType::data,
                           .flags = kKindText | kFlagMore,
                           .stream = 0x0102030405060708};
  const auto bytes = encode(header);
  EXPECT_EQ(std::to_integer<int>(bytes[8]), 8) << "little endian";
  const auto back = decode_header(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->length, header.length);
  EXPECT_EQ(back->type, header.type);
  EXPECT_EQ(back->flags, header.flags);
  EXPECT_EQ(back->stream, header.stream);
}

TEST(FrameHeader, RefusesWhatIsNoFrame) {
  const FrameHeader good{.length = 1, .type = FrameType::ping, .flags = 0, .stream = 0};
  for (const auto& [at, value] :
       std::vector<std::pair<int, int>>{{2, 2}, {3, 1}, {4, 0}, {4, 14}, {6, 1}, {7, 1}}) {
    auto bytes = encode(good);
    bytes[static_cast<std::size_t>(at)] = static_cast<std::byte>(value);
    EXPECT_FALSE(decode_header(bytes)) << "byte " << at << " = " << value;
  }
}

TEST(FrameReader, CutsFramesWhereverReadsEnd) {
  const std::string bytes = encode_frame(FrameType::data, 7, "hello", kKindText) +
                            encode_frame(FrameType::end, 7, "") +
                            encode_frame(FrameType::data, 8, std::string(kMaxPayload, 'x'));
  for (const std::size_t step : {1ul, 15ul, 16ul, 17ul, 1000ul, bytes.size()}) {
    FrameReader reader;
    std::vector<std::string> payloads;
    for (std::size_t at = 0; at < bytes.size(); at += step) {
      feed(reader, std::string_view(bytes).substr(at, step));
      while (const auto frame = reader.next()) payloads.emplace_back(frame->payload);
    }
    EXPECT_EQ(payloads, (std::vector<std::string>{"hello", "", std::string(kMaxPayload, 'x')}));
    EXPECT_FALSE(reader.broken());
  }
}

TEST(FrameReader, StopsForEverAtGarbage) {
  FrameReader reader;
  feed(reader, encode_frame(FrameType::ping, 0, "") + "HTTP/1.1 200 OK\r\n");
  EXPECT_TRUE(reader.next());
  EXPECT_FALSE(reader.next());
  EXPECT_TRUE(reader.broken());
  feed(reader, encode_frame(FrameType::ping, 0, ""));
  EXPECT_FALSE(reader.next());
}

}  // namespace
}  // namespace omni::protocol
