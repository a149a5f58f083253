#include "cli/sse.h"

#include <gtest/gtest.h>

namespace omni::cli {
namespace {

constexpr std::string_view kStream =
    ": comment\n\nid: 7\ndata: one\ndata: two\n\nretry: 5\r\ndata:three\r\n\r\ndata\n\n";

void expect_sample(const std::vector<SseEvent>& events) {
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].id, "7");
  EXPECT_EQ(events[0].data, "one\ntwo");
  EXPECT_EQ(events[1].id, "");
  EXPECT_EQ(events[1].data, "three");
  EXPECT_EQ(events[2].data, "");
}

TEST(SseReader, ReadsFieldsCommentsAndAllLineEnds) {
  SseReader reader;
  expect_sample(reader.feed(kStream));
}

TEST(SseReader, ReadsTheSameFromSingleBytes) {
  SseReader reader;
  std::vector<SseEvent> events;
  for (const char c : kStream) {
    for (SseEvent& event : reader.feed({&c, 1})) events.push_back(std::move(event));
  }
  expect_sample(events);
}

TEST(SseReader, HoldsBackAnEventThatIsNotComplete) {
  SseReader reader;
  EXPECT_TRUE(reader.feed("data: one\n").empty());
  EXPECT_EQ(reader.feed("\n").size(), 1u);
}

}  // namespace
}  // namespace omni::cli
