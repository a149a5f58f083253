#include "engine/model_stream.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

namespace omni::engine {
namespace {

using protocol::FrameType;

constexpr std::string_view kResponse = R"({"status":200,"streaming":true})";

ModelStream make_stream(std::string body = {}, std::vector<FilePart> files = {}) {
  ModelRequest request;
  request.body = std::move(body);
  request.files = std::move(files);
  std::string head = ModelStream::encode_head(request, std::chrono::seconds(1));
  return ModelStream(1, std::move(request), std::move(head));
}

Result<void> receive(ModelStream& stream, FrameType type, std::string_view payload = {},
                     std::uint8_t flags = 0) {
  const auto length = static_cast<std::uint32_t>(payload.size());
  return stream.on_frame({.header = {.length = length, .type = type, .flags = flags, .stream = 1},
                          .payload = payload});
}

FrameType type_of(const OutgoingFrame& frame) { return static_cast<FrameType>(frame.head[4]); }

// Everything that may be sent now: types in order, and the number of DATA bytes.
std::pair<std::vector<FrameType>, std::size_t> drain(ModelStream& stream) {
  std::vector<FrameType> types;
  std::size_t data = 0;
  while (stream.has_frame()) {
    const OutgoingFrame frame = stream.next_frame();
    types.push_back(type_of(frame));
    if (types.back() == FrameType::data) data += frame.payload.size();
  }
  return {types, data};
}

std::string le32(std::uint32_t value) {
  return {static_cast<char>(value), static_cast<char>(value >> 8), static_cast<char>(value >> 16),
          static_cast<char>(value >> 24)};
}

TEST(ModelStream, SendsRequestFilesBodyAndEndInOrder) {
  std::vector<FilePart> files;
  files.push_back({.name = "a", .content = Fd(::memfd_create("a", 0))});
  ModelStream stream = make_stream("body", std::move(files));
  EXPECT_EQ(drain(stream).first, (std::vector<FrameType>{FrameType::request, FrameType::fd,
                                                         FrameType::data, FrameType::end}));
}

TEST(ModelStream, BodyWaitsForCredit) {
  ModelStream stream = make_stream(std::string(1'000'000, 'x'));
  const auto [types, sent] = drain(stream);
  EXPECT_LE(sent + (types.size() - 1) * protocol::kFrameHeaderSize, protocol::kInitialCredit);
  EXPECT_GT(sent, protocol::kInitialCredit - protocol::kMaxPayload);
  EXPECT_FALSE(stream.has_frame());
  ASSERT_TRUE(receive(stream, FrameType::credit, le32(1'000'000)).ok());
  const auto [more_types, rest] = drain(stream);
  EXPECT_EQ(sent + rest, 1'000'000u);
  EXPECT_EQ(more_types.back(), FrameType::end);
}

TEST(ModelStream, CreditComesBackOnlyForItemsThatAreTaken) {
  ModelStream stream = make_stream();
  drain(stream);
  ASSERT_TRUE(receive(stream, FrameType::response, kResponse).ok());
  const std::string payload(protocol::kMaxPayload - protocol::kFrameHeaderSize, 'x');
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(receive(stream, FrameType::data, payload).ok());
  EXPECT_FALSE(stream.has_frame()) << "nothing is taken yet";
  EXPECT_FALSE(receive(stream, FrameType::data, payload).ok()) << "its window is used up";
  stream.take_item();
  EXPECT_EQ(drain(stream).first, std::vector<FrameType>{FrameType::credit});
  EXPECT_TRUE(receive(stream, FrameType::data, payload).ok());
}

TEST(ModelStream, ItemLargerThanTheWindowArrivesWhileItIsWaitedFor) {
  ModelStream stream = make_stream();
  drain(stream);
  ASSERT_TRUE(receive(stream, FrameType::response, kResponse).ok());
  const std::string payload(protocol::kMaxPayload, 'x');
  stream.set_hungry(true);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(receive(stream, FrameType::data, payload, protocol::kFlagMore).ok()) << i;
    drain(stream);
  }
  ASSERT_TRUE(receive(stream, FrameType::data, "").ok());
  EXPECT_EQ(stream.take_item().data.size(), 100 * payload.size());
}

TEST(ModelStream, ItemHasALimit) {
  ModelStream stream = make_stream();
  drain(stream);
  ASSERT_TRUE(receive(stream, FrameType::response, kResponse).ok());
  const std::string payload(protocol::kMaxPayload, 'x');
  stream.set_hungry(true);
  Result<void> result;
  std::size_t frames = 0;
  while (result.ok() && frames < 2000) {
    result = receive(stream, FrameType::data, payload, protocol::kFlagMore);
    drain(stream);
    ++frames;
  }
  EXPECT_EQ(frames, protocol::kMaxItem / protocol::kMaxPayload + 1);
}

TEST(ModelStream, EmptyItemsUseUpTheWindow) {
  ModelStream stream = make_stream();
  drain(stream);
  ASSERT_TRUE(receive(stream, FrameType::response, kResponse).ok());
  std::size_t count = 0;
  while (receive(stream, FrameType::data).ok() && count < 1'000'000) ++count;
  EXPECT_EQ(count, protocol::kInitialCredit / protocol::kFrameHeaderSize);
}

TEST(ModelStream, RefusesEveryBreachOfOrder) {
  struct Step {
    FrameType type;
    std::string_view payload = {};
    std::uint8_t flags = 0;
  };
  const Step response{FrameType::response, kResponse};
  const Step plain{FrameType::response, R"({"streaming":false})"};
  const std::vector<std::vector<Step>> breaches{
      {{FrameType::data, "x"}},
      {{FrameType::trailer, "{}"}},
      {{FrameType::end}},
      {response, response},
      {response, {FrameType::data, "x", protocol::kFlagMore}, {FrameType::end}},
      {response, {FrameType::data, "x", protocol::kFlagMore}, {FrameType::trailer, "{}"}},
      {response,
       {FrameType::data, "x", protocol::kFlagMore},
       {FrameType::data, "x", protocol::kKindText}},
      {response, {FrameType::data, "x", protocol::kKindMask}},
      {response, {FrameType::data, "\xff", protocol::kKindText}},
      {response, {FrameType::data, "\"\xff\""}},
      {response, {FrameType::data, "1\n\ndata: 2"}},
      {response, {FrameType::trailer, "[]"}},
      {plain, {FrameType::end}},
      {plain, {FrameType::data, "1"}, {FrameType::data, "2"}},
      {{FrameType::end, "oops", protocol::kFlagError}},
      {{FrameType::end, R"({"code":7})", protocol::kFlagError}},
      {{FrameType::credit, "abc"}},
      {{FrameType::credit, "\xff\xff\xff\xff"}},
      {{FrameType::request, "{}"}},
      {{FrameType::response, "not json"}},
      {{FrameType::response, R"({"status":"200"})"}},
      {{FrameType::response, R"({"status":99})"}},
      {{FrameType::response, R"({"status":1e9})"}},
      {{FrameType::response, R"({"streaming":1})"}},
      {{FrameType::response, R"({"content_type":"a\r\nb: c"})"}},
      {{FrameType::response, R"({"headers":[]})"}},
      {{FrameType::response, R"({"headers":{"a":"b\r\nc: d"}})"}},
      {{FrameType::response, R"({"headers":{"a b":"c"}})"}},
      {{FrameType::response, R"({"headers":{"a":1}})"}}};
  for (std::size_t i = 0; i < breaches.size(); ++i) {
    ModelStream stream = make_stream();
    drain(stream);
    const auto& steps = breaches[i];
    for (std::size_t n = 0; n < steps.size(); ++n) {
      const auto result = receive(stream, steps[n].type, steps[n].payload, steps[n].flags);
      EXPECT_EQ(result.ok(), n + 1 < steps.size()) << "breach " << i << " step " << n;
      if (!result) EXPECT_EQ(result.error().code, ErrorCode::engine_protocol);
    }
  }
}

TEST(ModelStream, RuntimeSpeaksOnlyForItself) {
  using enum ErrorCode;
  for (const auto& [name, code] : std::vector<std::pair<std::string, ErrorCode>>{
           {"invalid_request", invalid_request},
           {"shutting_down", shutting_down},
           {"overloaded", overloaded},
           {"cancelled", handler_failed},  // nobody cancelled it
           {"model_not_found", handler_failed},
           {"nonsense", handler_failed}}) {
    ModelStream stream = make_stream();
    drain(stream);
    const std::string payload = R"({"code":")" + name + R"(","message":"m","param":"p"})";
    ASSERT_TRUE(receive(stream, FrameType::end, payload, protocol::kFlagError).ok());
    EXPECT_EQ(stream.failure()->code, code) << name;
    EXPECT_EQ(stream.error_param(), "p");
    EXPECT_FALSE(stream.answered());
  }
}

TEST(ModelStream, CancelBeforeTheFirstFrameSendsNothing) {
  ModelStream stream = make_stream();
  stream.cancel({ErrorCode::cancelled, "left"});
  EXPECT_TRUE(stream.ended());
  EXPECT_FALSE(stream.has_frame());
}

TEST(ModelStream, CancelStopsTheBodyAndWaitsForEnd) {
  ModelStream stream = make_stream(std::string(1'000'000, 'x'));
  drain(stream);
  stream.cancel({ErrorCode::cancelled, "left"});
  EXPECT_EQ(drain(stream).first, std::vector<FrameType>{FrameType::cancel});
  EXPECT_TRUE(stream.cancelling());
  ASSERT_TRUE(receive(stream, FrameType::response, kResponse).ok()) << "it crossed the CANCEL";
  ASSERT_TRUE(receive(stream, FrameType::credit, le32(1'000'000)).ok());
  EXPECT_FALSE(stream.has_frame());
  ASSERT_TRUE(receive(stream, FrameType::end).ok());
  EXPECT_FALSE(stream.cancelling());
  EXPECT_EQ(stream.failure()->code, ErrorCode::cancelled);
}

TEST(ModelStream, EarlyErrorStopsTheRequest) {
  ModelStream stream = make_stream(std::string(1'000'000, 'x'));
  drain(stream);
  ASSERT_TRUE(receive(stream, FrameType::end, R"({"code":"body_too_large","message":"m"})",
                      protocol::kFlagError)
                  .ok());
  EXPECT_TRUE(stream.ended());
  EXPECT_FALSE(stream.has_frame());
}

}  // namespace
}  // namespace omni::engine
