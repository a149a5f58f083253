#include "config/placeholders.h"

#include <gtest/gtest.h>

namespace omni {
namespace {

const PlaceholderValues kValues{
    {"port", "8080"}, {"weights.m.gguf", "/w/m.gguf"}, {"model_dir", "/m"}};

TEST(Placeholders, AreReplaced) {
  EXPECT_EQ(fill_placeholders("--port={port}", kValues).value(), "--port=8080");
  EXPECT_EQ(fill_placeholders("{model_dir}/{weights.m.gguf}", kValues).value(), "/m//w/m.gguf");
  EXPECT_EQ(fill_placeholders("", kValues).value(), "");
}

TEST(Placeholders, LeaveJsonAndTemplatesAlone) {
  for (const char* text : {R"({"a": {"b": 1}})", "{ port }", "{}", "{", "}", "{{", "{Port}",
                           "{{ messages }}", "{%- if x %}", "{port", "{9}"}) {
    EXPECT_EQ(fill_placeholders(text, kValues).value(), text);
  }
}

TEST(Placeholders, DoubleBracesStandForTheText) {
  EXPECT_EQ(fill_placeholders("{{port}} {port}", kValues).value(), "{port} 8080");
}

TEST(Placeholders, WithoutAValueAreAnError) {
  auto filled = fill_placeholders("{socket}", kValues);
  ASSERT_FALSE(filled.ok());
  EXPECT_EQ(filled.error().message, "placeholder {socket} has no value here, in \"{socket}\"");
}

}  // namespace
}  // namespace omni
