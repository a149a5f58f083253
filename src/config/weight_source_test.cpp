#include "config/weight_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace omni {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string error_of(std::string_view source) {
  auto parsed = parse_weight_source(source);
  return parsed.ok() ? "no error" : parsed.error().message;
}

TEST(WeightSource, TakesUrlsWithTheirQuery) {
  const auto source = parse_weight_source("https://host:8443/a/b.gguf?x=1").value();
  const auto& url = std::get<UrlSource>(source);
  EXPECT_EQ(url.url, "https://host:8443/a/b.gguf?x=1");
  EXPECT_EQ(url.shown(), "https://host:8443/a/b.gguf");
  EXPECT_EQ(path_in_source(source).filename(), "b.gguf");
}

TEST(WeightSource, TakesHttpOnThisMachineAlone) {
  for (const char* url : {"http://127.0.0.1:80/x", "http://localhost/x", "http://[::1]:1/x"}) {
    EXPECT_EQ(error_of(url), "no error") << url;
  }
  for (const char* url : {"http://example.org/x", "http://127.0.0.1.example.org/x",
                          "http://localhost.example.org/x", "http://128.0.0.1/x"}) {
    EXPECT_THAT(error_of(url), HasSubstr("write https://")) << url;
  }
}

TEST(WeightSource, RefusesUrlsThatNameNoFileOrHoldSecrets) {
  EXPECT_THAT(error_of("https://host"), HasSubstr("names no file"));
  EXPECT_THAT(error_of("https://host/a/"), HasSubstr("names no file"));
  EXPECT_THAT(error_of("https:///a"), HasSubstr("names no host"));
  EXPECT_THAT(error_of("https://user:secret@host/a"),
              AllOf(HasSubstr("password"), Not(HasSubstr("secret"))));
  for (const char* url : {"https://host/a b", "https://host/a\"b", "https://host/a\nheader = \"x\"",
                          "https://host/a#b", "https://host/{a,b}"}) {
    EXPECT_THAT(error_of(url), HasSubstr("%XX")) << url;
  }
}

TEST(WeightSource, TakesFilesOfTheHubWithAndWithoutARevision) {
  auto source = parse_weight_source("hf:org/name/sub/model.gguf").value();
  auto hub = std::get<HubSource>(source);
  EXPECT_EQ(hub.repository, "org/name");
  EXPECT_EQ(hub.revision, "main");
  EXPECT_EQ(hub.path, "sub/model.gguf");
  source = parse_weight_source("hf:org/name@v1.0/model.gguf").value();
  hub = std::get<HubSource>(source);
  EXPECT_EQ(hub.repository, "org/name");
  EXPECT_EQ(hub.revision, "v1.0");
  EXPECT_EQ(path_in_source(source), "model.gguf");
}

TEST(WeightSource, RefusesHalfAHubSource) {
  for (const char* source : {"hf:", "hf:x", "hf:org/name", "hf:org@v1/name"}) {
    EXPECT_THAT(error_of(source), HasSubstr("hf:ORG/NAME")) << source;
  }
  EXPECT_THAT(error_of("hf:/name/x"), HasSubstr("has no ORG/NAME"));
  EXPECT_THAT(error_of("hf:org//x"), HasSubstr("has no ORG/NAME"));
  EXPECT_THAT(error_of("hf:org@a/n/x"), HasSubstr("has no ORG/NAME"));
  EXPECT_THAT(error_of("hf:org/name@/x"), HasSubstr("after @"));
  EXPECT_THAT(error_of("hf:org/name@../x"), HasSubstr("after @"));
  EXPECT_THAT(error_of("hf:org/name/../x"), HasSubstr("inside the repository"));
  EXPECT_THAT(error_of("hf:org/name/"), HasSubstr("inside the repository"));
}

}  // namespace
}  // namespace omni
