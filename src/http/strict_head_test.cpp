#include "http/strict_head.h"

#include <gtest/gtest.h>

namespace omni::http {
namespace {

Result<RequestHead> parse(std::string raw) {
  RequestHead head;
  CHECK(parse_request_head(raw, head));
  return head;
}

Result<RequestHead> with_fields(const std::string& fields) {
  return parse("POST /x HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n");
}

struct Refusal {
  const char* why;
  std::string raw;
};

TEST(StrictHead, RefusesWhatHasTwoReadings) {
  const std::string host = "Host: a\r\n";
  const std::string post = "POST / HTTP/1.1\r\n" + host;
  const Refusal table[] = {
      {"obs-fold", post + "X: a\r\n b\r\n\r\n"},
      {"obs-fold by tab", post + "X: a\r\n\tb\r\n\r\n"},
      {"fold of the first field", "GET / HTTP/1.1\r\n Host: a\r\n\r\n"},
      {"repeated Content-Length", post + "Content-Length: 3\r\nContent-Length: 3\r\n\r\n"},
      {"different Content-Length", post + "Content-Length: 3\r\ncontent-length: 4\r\n\r\n"},
      {"list Content-Length", post + "Content-Length: 3, 3\r\n\r\n"},
      {"signed Content-Length", post + "Content-Length: +3\r\n\r\n"},
      {"negative Content-Length", post + "Content-Length: -3\r\n\r\n"},
      {"hexadecimal Content-Length", post + "Content-Length: 0x3\r\n\r\n"},
      {"empty Content-Length", post + "Content-Length:\r\n\r\n"},
      {"inner space in Content-Length", post + "Content-Length: 1 0\r\n\r\n"},
      {"huge Content-Length", post + "Content-Length: 9223372036854775808\r\n\r\n"},
      {"overflowing Content-Length", post + "Content-Length: 99999999999999999999\r\n\r\n"},
      {"both lengths", post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"},
      {"both lengths, other order",
       post + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n"},
      {"TE list", post + "Transfer-Encoding: gzip, chunked\r\n\r\n"},
      {"TE not last", post + "Transfer-Encoding: chunked, gzip\r\n\r\n"},
      {"TE identity", post + "Transfer-Encoding: identity\r\n\r\n"},
      {"TE quoted", post + "Transfer-Encoding: \"chunked\"\r\n\r\n"},
      {"TE with parameter", post + "Transfer-Encoding: chunked;q=1\r\n\r\n"},
      {"TE with vertical tab", post + "Transfer-Encoding: \x0b"
                                      "chunked\r\n\r\n"},
      {"empty TE", post + "Transfer-Encoding:\r\n\r\n"},
      {"repeated TE", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"},
      {"chunked in HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"},
      {"no Host", "GET / HTTP/1.1\r\n\r\n"},
      {"two Hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"},
      {"two Hosts in HTTP/1.0", "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"},
      {"list Host", "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n"},
      {"Host with path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"},
      {"Host with user", "GET / HTTP/1.1\r\nHost: me@a\r\n\r\n"},
      {"Host with space", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"},
      {"space before colon", post + "X : a\r\n\r\n"},
      {"tab before colon", post + "X\t: a\r\n\r\n"},
      {"empty name", post + ": a\r\n\r\n"},
      {"no colon", post + "X\r\n\r\n"},
      {"bad character in name", post + "X(: a\r\n\r\n"},
      {"non-ASCII name", post + "X\xc3\xa4: a\r\n\r\n"},
      {"NUL in name", post + std::string("X\0: a\r\n\r\n", 9)},
      {"NUL in value", post + std::string("X: a\0b\r\n\r\n", 10)},
      {"bare CR in value", post + "X: a\rb\r\n\r\n"},
      {"DEL in value", post + "X: a\x7f\r\n\r\n"},
      {"escape in value", post + "X: a\x1b[0m\r\n\r\n"},
      {"bare LF after a field", post + "X: a\n\r\n"},
      {"bare LF after the request line", "GET / HTTP/1.1\nHost: a\r\n\r\n"},
      {"bare LF as blank line", "GET / HTTP/1.1\r\nHost: a\r\n\n"},
      {"no blank line", "GET / HTTP/1.1\r\nHost: a\r\n"},
      {"bytes after the blank line", "GET / HTTP/1.1\r\nHost: a\r\n\r\nX"},
      {"no version", "GET /\r\n" + host + "\r\n"},
      {"lower-case version", "GET / http/1.1\r\n" + host + "\r\n"},
      {"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
      {"HTTP/1.2", "GET / HTTP/1.2\r\n" + host + "\r\n"},
      {"two spaces", "GET  / HTTP/1.1\r\n" + host + "\r\n"},
      {"space in target", "GET /a b HTTP/1.1\r\n" + host + "\r\n"},
      {"tab for space", "GET\t/ HTTP/1.1\r\n" + host + "\r\n"},
      {"leading space", " GET / HTTP/1.1\r\n" + host + "\r\n"},
      {"trailing space", "GET / HTTP/1.1 \r\n" + host + "\r\n"},
      {"empty target", "GET  HTTP/1.1\r\n" + host + "\r\n"},
      {"fragment", "GET /a#b HTTP/1.1\r\n" + host + "\r\n"},
      {"non-ASCII target", "GET /\xc3\xa4 HTTP/1.1\r\n" + host + "\r\n"},
      {"control character in target", "GET /\x01 HTTP/1.1\r\n" + host + "\r\n"},
      {"relative target", "GET a HTTP/1.1\r\n" + host + "\r\n"},
      {"authority form", "CONNECT a:80 HTTP/1.1\r\n" + host + "\r\n"},
      {"asterisk of GET", "GET * HTTP/1.1\r\n" + host + "\r\n"},
      {"other scheme", "GET ftp://a/ HTTP/1.1\r\n" + host + "\r\n"},
      {"URL without host", "GET http:///x HTTP/1.1\r\n" + host + "\r\n"},
      {"URL with user", "GET http://me@a/x HTTP/1.1\r\n" + host + "\r\n"},
      {"bad method", "G(T / HTTP/1.1\r\n" + host + "\r\n"},
      {"endless method", std::string(40, 'A') + " / HTTP/1.1\r\n" + host + "\r\n"},
      {"TLS hello", "\x16\x03\x01\x02\r\n\r\n"},
      {"nothing", ""},
      {"blank line alone", "\r\n"},
  };
  for (const Refusal& row : table) {
    const auto head = parse(row.raw);
    EXPECT_FALSE(head.ok()) << row.why;
    if (!head.ok()) {
      EXPECT_EQ(head.error().code, ErrorCode::invalid_request) << row.why;
      EXPECT_FALSE(head.error().message.empty());
    }
  }
}

TEST(StrictHead, ReadsPlainRequest) {
  const auto head = parse(
      "POST /v1/chat/completions?x=1&y HTTP/1.1\r\nHost: localhost:8484\r\n"
      "content-LENGTH: 12\r\nX-Empty:\r\nX-Space: \t a b \t\r\nCookie: \xff\r\n\r\n");
  ASSERT_TRUE(head.ok()) << head.error().message;
  EXPECT_EQ(head->method, "POST");
  EXPECT_EQ(head->path(), "/v1/chat/completions");
  EXPECT_EQ(head->query(), "x=1&y");
  EXPECT_EQ(head->content_length, 12u);
  EXPECT_EQ(head->headers.get("Content-Length"), "12");
  EXPECT_EQ(head->headers.get("x-empty"), "");
  EXPECT_TRUE(head->headers.has("x-empty"));
  EXPECT_EQ(head->headers.get("x-space"), "a b");
  EXPECT_TRUE(head->keep_alive);
  EXPECT_FALSE(head->http_1_0);
  EXPECT_FALSE(head->chunked);
  EXPECT_TRUE(head->has_body());
}

TEST(StrictHead, LeavesNothingOfTheHeadBefore) {
  RequestHead head;
  ASSERT_TRUE(parse_request_head("POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
                                 "Content-Length: 3\r\nConnection: close\r\n\r\n",
                                 head)
                  .ok());
  ASSERT_TRUE(parse_request_head("GET /b HTTP/1.1\r\nHost: b\r\n\r\n", head).ok());
  EXPECT_EQ(head.target, "/b");
  EXPECT_EQ(head.headers.fields().size(), 1u);
  EXPECT_FALSE(head.content_length);
  EXPECT_FALSE(head.expect_continue);
  EXPECT_TRUE(head.keep_alive);
}

TEST(StrictHead, DecidesWhetherConnectionLives) {
  EXPECT_TRUE(with_fields("")->keep_alive);
  EXPECT_FALSE(with_fields("Connection: close\r\n")->keep_alive);
  EXPECT_FALSE(with_fields("Connection: Upgrade, CLOSE\r\n")->keep_alive);
  EXPECT_FALSE(with_fields("Connection: x\r\nConnection: close\r\n")->keep_alive);
  EXPECT_TRUE(with_fields("Connection: closed\r\n")->keep_alive);
  EXPECT_FALSE(parse("GET / HTTP/1.0\r\n\r\n")->keep_alive);
  EXPECT_TRUE(parse("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n")->keep_alive);
}

TEST(StrictHead, TurnsAbsoluteFormIntoOriginForm) {
  struct Row {
    const char *target, *origin, *host;
  };
  const Row table[] = {{"http://b:80/x?y", "/x?y", "b:80"},
                       {"HTTP://b", "/", "b"},
                       {"https://[::1]:8484?q", "/?q", "[::1]:8484"}};
  for (const Row& row : table) {
    const auto head = parse("GET " + std::string(row.target) + " HTTP/1.1\r\nHost: evil\r\n\r\n");
    ASSERT_TRUE(head.ok()) << row.target;
    EXPECT_EQ(head->target, row.origin);
    EXPECT_EQ(head->headers.get("host"), row.host);
  }
  EXPECT_EQ(parse("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")->target, "*");
}

TEST(StrictHead, KnowsExpectations) {
  EXPECT_TRUE(with_fields("Expect: 100-Continue\r\n")->expect_continue);
  EXPECT_FALSE(with_fields("Expect: 200-ok\r\n")->expect_continue);
  EXPECT_FALSE(parse("GET / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n")->expect_continue);
}

TEST(StrictHead, BoundsNumberOfFields) {
  std::string fields;
  for (int i = 0; i < 200; ++i) fields += "X: y\r\n";
  const auto head = with_fields(fields);
  ASSERT_FALSE(head.ok());
  EXPECT_EQ(head.error().code, ErrorCode::head_too_large);
}

TEST(StrictHead, CutsLongTextInMessages) {
  const auto head = with_fields("X" + std::string(5000, '(') + ": y\r\n");
  ASSERT_FALSE(head.ok());
  EXPECT_LT(head.error().message.size(), 300u);
}

TEST(HeadScanner, FindsEndInPiecesOfAnySize) {
  const std::string head = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
  const std::string input = head + "body\n";
  for (std::size_t first = 0; first <= input.size(); ++first) {
    HeadScanner scanner;
    const auto early = scanner.scan(std::string_view(input).substr(0, first), 1024);
    ASSERT_TRUE(early.ok());
    EXPECT_EQ(*early, first >= head.size() ? head.size() : 0) << first;
    if (*early > 0) continue;
    const auto late = scanner.scan(input, 1024);
    ASSERT_TRUE(late.ok());
    EXPECT_EQ(*late, head.size());
  }
}

TEST(HeadScanner, RefusesBareLineFeedAtOnce) {
  HeadScanner scanner;
  EXPECT_FALSE(scanner.scan("GET / HTTP/1.1\n", 1024).ok());
  scanner = {};
  EXPECT_FALSE(scanner.scan("\n", 1024).ok());
}

TEST(HeadScanner, RefusesTooLargeHead) {
  const std::string head = "GET / HTTP/1.1\r\nX: " + std::string(2000, 'a') + "\r\n\r\n";
  for (const std::size_t arrived : {std::size_t{1024}, head.size()}) {
    HeadScanner scanner;
    const auto scanned = scanner.scan(std::string_view(head).substr(0, arrived), 1024);
    ASSERT_FALSE(scanned.ok());
    EXPECT_EQ(scanned.error().code, ErrorCode::head_too_large);
  }
  HeadScanner scanner;
  EXPECT_EQ(scanner.scan(head, head.size()).value(), head.size());
}

TEST(ResponseHeadParse, ReadsStatusAndFraming) {
  ParsedResponse response;
  ASSERT_TRUE(parse_response_head("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", response).ok());
  EXPECT_EQ(response.head.status, 200);
  EXPECT_EQ(response.head.content_length, 3u);
  EXPECT_TRUE(response.keep_alive);
  ASSERT_TRUE(
      parse_response_head("HTTP/1.1 404\r\nTransfer-Encoding: Chunked\r\n\r\n", response).ok());
  EXPECT_EQ(response.head.status, 404);
  EXPECT_FALSE(response.head.content_length);
  EXPECT_TRUE(response.chunked);
  ASSERT_TRUE(parse_response_head("HTTP/1.0 500 No \xc3\xa4\r\n\r\n", response).ok());
  EXPECT_FALSE(response.keep_alive);
  EXPECT_FALSE(response.chunked);
}

TEST(ResponseHeadParse, RefusesMalformedAnswers) {
  for (const char* raw :
       {"HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n", "HTTP/1.1 099 X\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n", "HTTP/2 200 OK\r\n\r\n", "HTTP/1.1 200 O\rK\r\n\r\n",
        "HTTP/1.1\r\n\r\n", "HT\r\n\r\n", "ICY 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", "HTTP/1.1 200 OK\nX: a\r\n\r\n"}) {
    ParsedResponse response;
    const auto parsed = parse_response_head(raw, response);
    ASSERT_FALSE(parsed.ok()) << raw;
    EXPECT_EQ(parsed.error().code, ErrorCode::engine_protocol);
  }
}

}  // namespace
}  // namespace omni::http
