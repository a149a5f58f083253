#include "http/body_decoder.h"

#include <gtest/gtest.h>

#include <string>

namespace omni::http {
namespace {

struct Decoded {
  std::string body;
  std::size_t used = 0;
  bool done = false;
  bool failed = false;
};

// Gives the decoder `input` in pieces of at most `piece` bytes.
Decoded decode(BodyDecoder decoder, std::string_view input, std::size_t piece) {
  Decoded out;
  std::size_t available = 0;
  while (!decoder.done()) {
    const auto step = decoder.next(input.substr(out.used, available - out.used));
    if (!step.ok()) {
      out.failed = true;
      return out;
    }
    out.body += step->data;
    out.used += step->skipped + step->data.size();
    if (!step->data.empty() || decoder.done()) continue;
    if (available == input.size()) break;
    available = std::min(available + piece, input.size());
  }
  out.done = decoder.done();
  return out;
}

Decoded decode_chunked(std::string_view input, std::size_t piece = 1 << 20) {
  BodyDecoder decoder;
  decoder.reset_chunked();
  return decode(decoder, input, piece);
}

TEST(ChunkedDecoder, DecodesInPiecesOfAnySizeAndStopsAtTheEnd) {
  const std::string body =
      "5\r\nhello\r\n00A;a=b;c=\"x;y\"\r\n0123456789\r\n1  \r\n!\r\n0\r\nA: b\r\nC:\r\n\r\n";
  const std::string input = body + "GET / HTTP/1.1\r\n";
  for (std::size_t piece = 1; piece <= input.size(); ++piece) {
    const Decoded decoded = decode_chunked(input, piece);
    EXPECT_TRUE(decoded.done) << piece;
    EXPECT_EQ(decoded.body, "hello0123456789!");
    EXPECT_EQ(decoded.used, body.size());
  }
}

TEST(ChunkedDecoder, RefusesMalformedBodies) {
  for (const char* body : {"\r\n",
                           "x\r\n",
                           "-1\r\n",
                           "0x5\r\nhello\r\n",
                           " 5\r\nhello\r\n",
                           "5\nhello\r\n",
                           "5\r\nhello\n",
                           "5\r\nhelloX\r\n",
                           "5\r\nhello0\r\n\r\n",
                           "5\rhello\r\n",
                           "5;a\nhello",
                           "5;a\x01\r\nhello\r\n",
                           "10000000000000000\r\n",
                           "fffffffffffffffff\r\n",
                           "8000000000000000\r\n",
                           "00000000000000001\r\nx\r\n",
                           "0\r\nA b: c\r\n\r\n",
                           "0\r\n: c\r\n\r\n",
                           "0\r\n folded\r\n\r\n",
                           "0\r\nA: b\n\r\n",
                           "0\r\nA: \x01\r\n\r\n",
                           "0\r\n\rX",
                           "0\n\n",
                           ";a\r\n"}) {
    for (const std::size_t piece : {std::size_t{1}, std::size_t{1} << 20}) {
      EXPECT_TRUE(decode_chunked(body, piece).failed) << body;
    }
  }
}

TEST(ChunkedDecoder, BoundsExtensionsAndTrailers) {
  EXPECT_TRUE(decode_chunked("1;" + std::string(5000, 'a') + "\r\n").failed);
  EXPECT_TRUE(decode_chunked("0\r\nA: " + std::string(10000, 'a')).failed);
  std::string many = "0\r\n";
  for (int i = 0; i < 5000; ++i) many += "A:b\r\n";
  EXPECT_TRUE(decode_chunked(many).failed);
}

TEST(ChunkedDecoder, IsNotDoneWhenCutShort) {
  const std::string body = "5\r\nhello\r\n0\r\n\r\n";
  for (std::size_t cut = 0; cut < body.size(); ++cut) {
    const Decoded decoded = decode_chunked(std::string_view(body).substr(0, cut));
    EXPECT_FALSE(decoded.done || decoded.failed) << cut;
  }
}

TEST(BodyDecoder, EndsByLength) {
  BodyDecoder decoder;
  decoder.reset_length(5);
  EXPECT_EQ(decoder.remaining(), 5u);
  const Decoded decoded = decode(decoder, "helloGET", 2);
  EXPECT_TRUE(decoded.done);
  EXPECT_EQ(decoded.body, "hello");
  EXPECT_EQ(decoded.used, 5u);
  EXPECT_FALSE(decoder.finish_at_close()) << "a close before the length is a broken message";
  decoder.reset_length(0);
  EXPECT_TRUE(decoder.done());
}

TEST(BodyDecoder, EndsWithConnection) {
  BodyDecoder decoder;
  decoder.reset_until_close();
  EXPECT_EQ(decoder.next("abc")->data, "abc");
  EXPECT_FALSE(decoder.done());
  EXPECT_TRUE(decoder.finish_at_close());
  EXPECT_TRUE(decoder.done());
  decoder.reset_chunked();
  EXPECT_FALSE(decoder.finish_at_close());
}

}  // namespace
}  // namespace omni::http
