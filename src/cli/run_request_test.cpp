#include "cli/run_request.h"

#include <gtest/gtest.h>

namespace omni::cli {
namespace {

RunInput input_of(std::string content) {
  return {.model = "alias", .resolved = "name", .content = std::move(content)};
}

Request request_of(Task task, const RunInput& input) {
  Result<Request> request = run_request(task, input);
  EXPECT_TRUE(request.ok()) << request.error().message;
  return request.ok() ? *std::move(request) : Request{};
}

TEST(RunRequest, ChatsWithSystemMessageAndParameters) {
  RunInput input = input_of("hi");
  input.system = "be brief";
  input.parameters = {"temperature=0.2", "user=me", "stop=[\"a=b\"]"};
  const Request request = request_of(Task::chat, input);
  EXPECT_EQ(request.target, "/v1/chat/completions");
  EXPECT_EQ(request.headers.get("Content-Type"), "application/json");
  EXPECT_EQ(request.body,
            R"({"model":"alias","messages":[{"role":"system","content":"be brief"},)"
            R"({"role":"user","content":"hi"}],"stream":true,"temperature":2E-1,"user":"me",)"
            R"("stop":["a=b"]})");
}

TEST(RunRequest, AsksForTheTasksOfText) {
  EXPECT_EQ(request_of(Task::completion, input_of("hi")).body,
            R"({"model":"alias","prompt":"hi","stream":true})");
  EXPECT_EQ(request_of(Task::embeddings, input_of("hi")).body, R"({"model":"alias","input":"hi"})");
  const Request speech = request_of(Task::text_to_speech, input_of("hi"));
  EXPECT_EQ(speech.target, "/v1/audio/speech");
  EXPECT_EQ(speech.body, R"({"model":"alias","input":"hi"})");
}

TEST(RunRequest, SendsAFileAsTheLastPartOfAForm) {
  RunInput input = input_of("RIFF");
  input.filename = "a\"b.wav";
  input.parameters = {"language=en"};
  const Request request = request_of(Task::speech_to_text, input);
  const std::string_view type = request.headers.get("Content-Type");
  ASSERT_TRUE(type.starts_with("multipart/form-data; boundary="));
  const std::string boundary(type.substr(type.find('=') + 1));
  EXPECT_EQ(request.target, "/v1/audio/transcriptions");
  EXPECT_EQ(request.body,
            "--" + boundary +
                "\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nalias\r\n--" + boundary +
                "\r\nContent-Disposition: form-data; name=\"language\"\r\n\r\nen\r\n--" + boundary +
                "\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a%22b.wav\"\r\n"
                "Content-Type: audio/wav\r\n\r\nRIFF\r\n--" +
                boundary + "--\r\n");
}

TEST(RunRequest, OtherTasksGetJsonOrBytesByTheModelsOwnName) {
  RunInput json = input_of(R"({"a": 1})");
  json.parameters = {"b=2"};
  const Request object = request_of(Task::other, json);
  EXPECT_EQ(object.target, "/ai/run/name");
  EXPECT_EQ(object.body, R"({"a":1,"b":2})");

  RunInput image = input_of("\x89PNG");
  image.filename = "cat.png";
  const Request bytes = request_of(Task::other, image);
  EXPECT_EQ(bytes.headers.get("Content-Type"), "image/png");
  EXPECT_EQ(bytes.body, "\x89PNG");
}

TEST(RunRequest, ImagesAndAudioAreAskedForAsTheyAre) {
  const Request image = request_of(Task::image_generation, input_of("hills"));
  EXPECT_EQ(image.target, "/ai/run/name");
  EXPECT_EQ(image.body, R"({"prompt":"hills"})");
  RunInput noisy = input_of("RIFF");
  noisy.filename = "noisy.wav";
  const Request audio = request_of(Task::audio_to_audio, noisy);
  EXPECT_EQ(audio.target, "/ai/run/name");
  EXPECT_EQ(audio.headers.get("Content-Type"), "audio/wav");
  const Request ranked = request_of(Task::rerank, input_of(R"({"query":"q","documents":["a"]})"));
  EXPECT_EQ(ranked.body, R"({"query":"q","documents":["a"]})");
}

TEST(RunRequest, RefusesWhatCannotBeSent) {
  RunInput input = input_of("hi");
  input.parameters = {"temperature"};
  EXPECT_EQ(run_request(Task::chat, input).error().code, ErrorCode::usage);
  EXPECT_EQ(run_request(Task::chat, input_of("\xff")).error().code, ErrorCode::invalid_request);
  RunInput bytes = input_of("bytes");
  bytes.parameters = {"a=1"};
  EXPECT_EQ(run_request(Task::other, bytes).error().code, ErrorCode::usage);
}

}  // namespace
}  // namespace omni::cli
