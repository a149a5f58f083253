#include "gateway/multipart.h"

#include <gtest/gtest.h>

#include <vector>

namespace omni::gateway {
namespace {

class Collector : public MultipartScanner::Sink {
 public:
  struct Part {
    PartHead head;
    std::string content;
    bool ended = false;
  };

  Result<void> begin(PartHead head) override {
    parts.push_back({std::move(head), {}, false});
    return {};
  }
  Result<void> data(std::string_view bytes) override {
    parts.back().content += bytes;
    largest = std::max(largest, bytes.size());
    return {};
  }
  Result<void> end() override {
    parts.back().ended = true;
    return {};
  }

  std::vector<Part> parts;
  std::size_t largest = 0;
};

std::string form(std::initializer_list<std::pair<std::string, std::string>> parts) {
  std::string body;
  for (const auto& [head, content] : parts) {
    body += "--B\r\nContent-Disposition: form-data; " + head + "\r\n\r\n" + content + "\r\n";
  }
  return body + "--B--\r\n";
}

Result<void> scan(Collector& sink, std::string_view body, std::size_t step,
                  std::string_view boundary = "B") {
  MultipartScanner scanner(boundary, sink);
  for (std::size_t at = 0; at < body.size(); at += step) {
    CHECK(scanner.feed(body.substr(at, step)));
  }
  return scanner.finish();
}

TEST(Multipart, GivesTheSamePartsHoweverTheBodyIsCut) {
  const std::string content = "RIFF\r\n--\r\n--A\r\n\r\n";
  const std::string body =
      form({{"name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav", content},
            {"name=\"empty\"", ""},
            {"name=model", "whisper"}});
  for (std::size_t step = 1; step <= body.size(); ++step) {
    Collector sink;
    auto outcome = scan(sink, body, step);
    ASSERT_TRUE(outcome.ok()) << step << ": " << outcome.error().message;
    ASSERT_EQ(sink.parts.size(), 3u) << step;
    EXPECT_EQ(sink.parts[0].head.name, "file");
    EXPECT_EQ(sink.parts[0].head.filename, "a.wav");
    EXPECT_TRUE(sink.parts[0].head.is_file);
    EXPECT_EQ(sink.parts[0].head.content_type, "audio/wav");
    EXPECT_EQ(sink.parts[0].content, content) << step;
    EXPECT_EQ(sink.parts[1].content, "");
    EXPECT_EQ(sink.parts[2].head.name, "model");
    EXPECT_EQ(sink.parts[2].content, "whisper");
    EXPECT_TRUE(sink.parts[2].ended);
  }
}

TEST(Multipart, SkipsPreambleAndEpilogue) {
  Collector sink;
  ASSERT_TRUE(scan(sink, "hello\r\n" + form({{"name=a", "1"}}) + "\r\nbye --B", 3).ok());
  ASSERT_EQ(sink.parts.size(), 1u);
  EXPECT_EQ(sink.parts[0].content, "1");
}

TEST(Multipart, ReadsQuotedNames) {
  Collector sink;
  ASSERT_TRUE(scan(sink, form({{R"(filename="a;b\"c\\d.wav" ; name="x;y")", "1"}}), 1000).ok());
  EXPECT_EQ(sink.parts[0].head.filename, "a;b\"c\\d.wav");
  EXPECT_EQ(sink.parts[0].head.name, "x;y");
}

TEST(Multipart, RefusesMalformedBodies) {
  const std::string head = "Content-Disposition: form-data; name=a\r\n\r\n";
  const std::string bodies[] = {
      "",
      "no boundary at all",
      "--B\r\n" + head + "cut",
      "--B\r\n" + head + "x\r\n--Bx\r\n",
      "--B\r\nno colon\r\n\r\nx\r\n--B--",
      "--B\r\nContent-Type: text/plain\r\n\r\nx\r\n--B--",
      "--B\r\n\r\nx\r\n--B--",
      "--B\r\nContent-Disposition: attachment; name=a\r\n\r\nx\r\n--B--",
      "--B\r\nContent-Disposition: form-data\r\n\r\nx\r\n--B--",
      "--B\r\nContent-Transfer-Encoding: base64\r\n" + head + "x\r\n--B--",
      "--B\r\nX: " + std::string(20'000, 'x') + "\r\n" + head + "x\r\n--B--",
      "--B" + std::string(200, ' ') + "\r\n" + head + "x\r\n--B--",
  };
  for (const std::string& body : bodies) {
    for (std::size_t step : {std::size_t{1}, std::size_t{7}, body.size() + 1}) {
      Collector sink;
      auto outcome = scan(sink, body, step);
      ASSERT_FALSE(outcome.ok()) << body.substr(0, 80) << " in steps of " << step;
      EXPECT_EQ(outcome.error().code, ErrorCode::invalid_request);
    }
  }
}

TEST(Multipart, BoundsTheNumberOfParts) {
  std::string body;
  for (int i = 0; i < 200; ++i) {
    body += "--B\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n";
  }
  Collector sink;
  EXPECT_FALSE(scan(sink, body + "--B--", 1000).ok());
  EXPECT_EQ(sink.parts.size(), MultipartScanner::kMostParts);
}

TEST(MultipartBoundary, ComesOutOfTheContentType) {
  EXPECT_EQ(multipart_boundary("multipart/form-data; boundary=abc").value(), "abc");
  EXPECT_EQ(multipart_boundary("Multipart/Form-Data; charset=x; boundary=\"a b\"").value(), "a b");
  EXPECT_EQ(multipart_boundary("application/json").error().code, ErrorCode::unsupported_media_type);
  EXPECT_EQ(multipart_boundary("").error().code, ErrorCode::unsupported_media_type);
  EXPECT_EQ(multipart_boundary("multipart/form-data").error().code, ErrorCode::invalid_request);
  EXPECT_EQ(multipart_boundary("multipart/form-data; boundary=").error().code,
            ErrorCode::invalid_request);
  EXPECT_FALSE(multipart_boundary("multipart/form-data; boundary=" + std::string(71, 'x')).ok());
}

}  // namespace
}  // namespace omni::gateway
