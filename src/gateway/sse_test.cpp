#include "gateway/sse.h"

#include <gtest/gtest.h>

namespace omni::gateway {
namespace {

std::optional<Usage> tap(std::string_view text, std::size_t step) {
  UsageTap tap;
  for (std::size_t at = 0; at < text.size(); at += step) tap.feed(text.substr(at, step));
  return tap.usage();
}

TEST(UsageTap, FindsTheLastUsageHoweverTheAnswerIsCut) {
  const std::string stream =
      "data: {\"usage\":null}\n\n"
      "data: {\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\n"
      "data: {\"choices\":[],\"usage\": {\"completion_tokens\":7,\"prompt_tokens\":5,"
      "\"prompt_tokens_details\":{\"cached_tokens\":2}},\"x\":1}\n\ndata: [DONE]\n\n";
  for (std::size_t step = 1; step <= stream.size(); ++step) {
    auto usage = tap(stream, step);
    ASSERT_TRUE(usage) << step;
    EXPECT_EQ(usage->prompt_tokens, 5u) << step;
    EXPECT_EQ(usage->completion_tokens, 7u) << step;
  }
}

TEST(UsageTap, IgnoresUsageInsideText) {
  const std::string body =
      R"({"content":"say \"usage\":{\"prompt_tokens\":9}","name":"usage","usage":3})";
  for (std::size_t step = 1; step <= body.size(); ++step) EXPECT_FALSE(tap(body, step)) << step;
}

TEST(UsageTap, IgnoresANameThatAStringEndsWith) {
  const std::string body = R"({"content":"the \"usage":{"prompt_tokens":9},"usage":{}})";
  for (std::size_t step = 1; step <= body.size(); ++step) {
    const auto usage = tap(body, step);
    ASSERT_TRUE(usage) << step;
    EXPECT_EQ(usage->prompt_tokens, 0u) << step;
  }
}

TEST(UsageTap, BoundsWhatItCollects) {
  EXPECT_FALSE(tap("\"usage\":{" + std::string(1 << 20, ' '), 1000));
}

std::string gate(EventGate& gate, std::string_view text, std::size_t step) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += step) out += gate.feed(text.substr(at, step));
  return out;
}

TEST(EventGate, PassesWholeEventsUnchanged) {
  const std::string stream = "data: a\n\n: note\n\ndata: b\r\n\r\ndata: c\ndata: d\n\n";
  for (std::size_t step = 1; step <= stream.size(); ++step) {
    EventGate plain(false);
    EXPECT_EQ(gate(plain, stream, step), stream) << step;
    EXPECT_EQ(plain.rest(), "");
  }
}

TEST(EventGate, HoldsWhatIsUnfinished) {
  for (std::size_t step : {1, 3, 100}) {
    EventGate plain(false);
    EXPECT_EQ(gate(plain, "data: a\n\ndata: {\"cut", step), "data: a\n\n");
    EXPECT_FALSE(plain.torn());
    EXPECT_EQ(plain.rest(), "data: {\"cut");
  }
}

TEST(EventGate, HidesTheEventOfUsageAlone) {
  const std::string before = "data: {\"choices\":[{}],\"usage\":{\"prompt_tokens\":1}}\n\n";
  const std::string hidden = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\n\n";
  const std::string after = "data: [DONE]\n\n";
  const std::string stream = before + hidden + after;
  for (std::size_t step = 1; step <= stream.size(); ++step) {
    EventGate hiding(true);
    EXPECT_EQ(gate(hiding, stream, step), before + after) << step;
    EventGate plain(false);
    EXPECT_EQ(gate(plain, stream, step), stream) << step;
  }
}

TEST(EventGate, LetsAnEventPassThatIsTooLongToHold) {
  EventGate plain(false);
  const std::string begun = "data: " + std::string(300'000, 'x');
  EXPECT_EQ(plain.feed(begun), begun);
  EXPECT_TRUE(plain.torn());
  EXPECT_EQ(plain.feed("x\n\n"), "x\n\n");
  EXPECT_FALSE(plain.torn());
}

}  // namespace
}  // namespace omni::gateway
