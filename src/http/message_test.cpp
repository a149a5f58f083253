#include "http/message.h"

#include <gtest/gtest.h>

#include "http/client.h"
#include "http/head_writer.h"

namespace omni::http {
namespace {

TEST(Headers, LookUpIgnoresCase) {
  Headers headers;
  headers.add("Content-Type", "a");
  headers.add("X", "1");
  headers.add("x", "2");
  EXPECT_EQ(headers.get("CONTENT-type"), "a");
  EXPECT_EQ(headers.get("X"), "1");
  EXPECT_EQ(headers.get("missing"), "");
  EXPECT_FALSE(headers.has("missing"));
  headers.set("x", "3");
  ASSERT_EQ(headers.fields().size(), 2u);
  EXPECT_EQ(headers.get("X"), "3");
  headers.set("New", "n");
  EXPECT_EQ(headers.get("new"), "n");
  headers.remove("X");
  EXPECT_FALSE(headers.has("x"));
}

TEST(Headers, FindsTokensOfLists) {
  Headers headers;
  headers.add("Accept", " text/html ,TEXT/event-stream,, ");
  headers.add("accept", "*/*");
  EXPECT_TRUE(headers.has_token("accept", "text/event-stream"));
  EXPECT_TRUE(headers.has_token("accept", "*/*"));
  EXPECT_FALSE(headers.has_token("accept", "text"));
}

TEST(PercentDecode, DecodesOrRefuses) {
  EXPECT_EQ(percent_decode("a%2Fb%20c+"), "a/b c+");
  EXPECT_EQ(percent_decode("%41%c3%A4"), "A\xc3\xa4");
  EXPECT_EQ(percent_decode(""), "");
  for (const char* text : {"%", "%4", "%zz", "a%4g"}) EXPECT_FALSE(percent_decode(text)) << text;
}

TEST(QueryParameter, FindsByDecodedName) {
  EXPECT_EQ(query_parameter("a=1&b=2", "b"), "2");
  EXPECT_EQ(query_parameter("a=1&%62=x%20y", "b"), "x y");
  EXPECT_EQ(query_parameter("flag&x=1", "flag"), "");
  EXPECT_EQ(query_parameter("a=b=c", "a"), "b=c");
  EXPECT_FALSE(query_parameter("a=1", "b"));
  EXPECT_FALSE(query_parameter("", "b"));
  EXPECT_FALSE(query_parameter("a=%zz", "a"));
}

TEST(EncodeHead, LetsNothingBreakOut) {
  Headers headers;
  headers.add("Host", "a\r\nEvil: 1");
  headers.add("X\r\nY", "b");
  const std::string head = encode_head("GET", "/a b\r\nX: y", headers);
  EXPECT_EQ(head, "GET /a%20b%0D%0AX:%20y HTTP/1.1\r\nHost: a  Evil: 1\r\nX--Y: b\r\n\r\n");
}

TEST(EncodeChunk, FramesDataAndEnd) {
  EXPECT_EQ(encode_chunk(std::string(26, 'x')), "1a\r\n" + std::string(26, 'x') + "\r\n");
  EXPECT_EQ(encode_chunk(""), "0\r\n\r\n");
}

TEST(ResponseWriter, RefusesHeaderInjection) {
  DateLine date;
  for (const Header& field :
       {Header{"X", "a\r\nEvil: 1"}, Header{"X", "a\nb"}, Header{"X\r\nY", ""}, Header{"", "x"},
        Header{"X:", "x"}, Header{"X", std::string(1, '\0')}}) {
    ResponseHead head;
    head.headers.add("Good", "1");
    head.headers.add(field.name, field.value);
    std::string out = "kept";
    EXPECT_FALSE(append_response_head(head, {}, date, out).ok()) << field.name;
    EXPECT_EQ(out, "kept");
  }
}

TEST(ResponseWriter, OwnsFraming) {
  DateLine date;
  ResponseHead head;
  head.headers.add("Content-Length", "99");
  head.headers.add("transfer-encoding", "gzip");
  head.headers.add("CONNECTION", "x");
  head.headers.add("Keep-Alive", "timeout=5");
  head.headers.add("Date", "yesterday");
  std::string out;
  ASSERT_TRUE(
      append_response_head(head, {.content_length = 3, .keep_alive = false}, date, out).ok());
  EXPECT_EQ(out,
            "HTTP/1.1 200 OK\r\nDate: yesterday\r\nContent-Length: 3\r\nConnection: close\r\n\r\n");
}

TEST(ResponseWriter, DatesAnswersInHttpForm) {
  DateLine date;
  const std::string line(date.now());
  EXPECT_EQ(line.size(), std::string("Date: Tue, 01 Dec 2026 11:48:33 GMT\r\n").size()) << line;
  EXPECT_TRUE(line.starts_with("Date: ") && line.ends_with(" GMT\r\n"));
}

}  // namespace
}  // namespace omni::http
