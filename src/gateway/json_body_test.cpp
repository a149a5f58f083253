#include "gateway/json_body.h"

#include <gtest/gtest.h>

namespace omni::gateway {
namespace {

std::string text_of(const std::string& body, const std::optional<ByteRange>& range) {
  return range ? body.substr(range->begin, range->end - range->begin) : "none";
}

Result<JsonFacts> scan(std::string body) {
  JsonScanner scanner;
  return scanner.scan(body);
}

std::string error_of(std::string body) {
  auto facts = scan(std::move(body));
  return facts.ok() ? "accepted" : facts.error().message;
}

TEST(JsonScanner, FindsModelAndStreamAnywhere) {
  JsonScanner scanner;
  std::string body =
      R"( { "messages":[{"model":"no","x":"}]\""}], "stream" : true ,"model": "a\u0062c" } )";
  auto facts = scanner.scan(body);
  ASSERT_TRUE(facts.ok()) << facts.error().message;
  EXPECT_EQ(facts->model, "abc");
  EXPECT_TRUE(facts->stream);
  EXPECT_EQ(text_of(body, facts->model_value), R"("a\u0062c")");
  EXPECT_EQ(text_of(body, facts->stream_value), "true");
}

TEST(JsonScanner, FindsMemberWhoseNameIsEscaped) {
  auto facts = scan(R"({"\u006dodel":"x"})");
  ASSERT_TRUE(facts.ok());
  EXPECT_EQ(facts->model, "x");
}

TEST(JsonScanner, ReadsStreamOptions) {
  EXPECT_TRUE(scan(R"({"stream_options":{"include_usage":true}})")->include_usage);
  EXPECT_FALSE(scan(R"({"stream_options":{"include_usage":false}})")->include_usage);
  EXPECT_FALSE(scan(R"({"stream_options":null,"stream":null})")->include_usage);
}

TEST(JsonScanner, NamesTheOffsetOfAnError) {
  EXPECT_NE(error_of(R"({"model": "x", })").find("at byte 15"), std::string::npos)
      << error_of(R"({"model": "x", })");
  EXPECT_NE(error_of("{} {}").find("text after the document at byte 3"), std::string::npos)
      << error_of("{} {}");
}

TEST(JsonScanner, RefusesWhatEnginesFailOn) {
  for (std::string body : {R"({"a":"\ud800"})", R"({"a":"\ud800x"})", R"({"a":"\udc00"})",
                           R"({"a":"\ud800\ud800"})", "{\"a\":\"\xff\"}", R"({"a":01})", "",
                           R"({"a":)", "[]", "\"x\"", R"({"a":"\x"})", R"({'a':1})", "nul"}) {
    auto facts = scan(body);
    ASSERT_FALSE(facts.ok()) << body;
    EXPECT_EQ(facts.error().code, ErrorCode::invalid_json) << body;
  }
  EXPECT_TRUE(scan(R"({"a":"\ud83d\ude00 \\ud800"})").ok());
}

TEST(JsonScanner, RefusesDuplicatesOfWhatItReads) {
  EXPECT_EQ(error_of(R"({"model":"a","model":"b"})"), "`model` is given twice");
  EXPECT_EQ(error_of(R"({"stream":true,"stream":false})"), "`stream` is given twice");
  EXPECT_TRUE(scan(R"({"x":1,"x":2})").ok());
}

TEST(JsonScanner, RefusesWrongTypes) {
  EXPECT_EQ(error_of(R"({"model":3})"), "`model` must be a string");
  EXPECT_EQ(error_of(R"({"stream":"yes"})"), "`stream` must be true or false");
}

TEST(JsonScanner, LimitsDepth) {
  const auto nested = [](std::size_t depth) {
    return R"({"a":)" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_TRUE(scan(nested(100)).ok());
  EXPECT_NE(error_of(nested(200)).find("deeper than 128"), std::string::npos);
  EXPECT_NE(error_of(nested(100'000)).find("deeper than 128"), std::string::npos);
}

TEST(JsonScanner, TakesOneBodyAfterAnother) {
  JsonScanner scanner;
  std::string large = R"({"model":"m","a":")" + std::string(300'000, 'x') + "\"}";
  std::string bad = "{";
  std::string small = R"({"model":"s"})";
  EXPECT_EQ(scanner.scan(large)->model, "m");
  EXPECT_FALSE(scanner.scan(bad).ok());
  EXPECT_EQ(scanner.scan(small)->model, "s");
}

std::string edited(std::string body, auto change) {
  JsonScanner scanner;
  auto facts = scanner.scan(body);
  if (!facts.ok()) return facts.error().message;
  JsonEdit edit(*facts);
  change(edit, *facts);
  return edit.apply(std::move(body));
}

TEST(JsonEdit, ReplacesOnlyTheValue) {
  auto rename = [](JsonEdit& edit, const JsonFacts& facts) {
    edit.set("model", facts.model_value, quote("served \"x\""));
  };
  EXPECT_EQ(edited(R"({ "a":1, "model" : "m" , "b":2})", rename),
            R"({ "a":1, "model" : "served \"x\"" , "b":2})");
}

TEST(JsonEdit, AddsMissingMembers) {
  auto change = [](JsonEdit& edit, const JsonFacts& facts) {
    edit.set("model", facts.model_value, quote("m"));
    edit.set("stream", facts.stream_value, "true");
  };
  EXPECT_EQ(edited("{}", change), R"({"model":"m","stream":true})");
  EXPECT_EQ(edited(R"({"stream":false,"a":[]})", change), R"({"model":"m","stream":true,"a":[]})");
}

TEST(JsonEdit, WithoutChangesKeepsTheBody) {
  EXPECT_EQ(edited(R"({"a": 1})", [](JsonEdit&, const JsonFacts&) {}), R"({"a": 1})");
}

}  // namespace
}  // namespace omni::gateway
