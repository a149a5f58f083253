// The gateway in front of Python instances.
#include "gateway/gateway_test_support.h"

namespace omni::gateway::test {
namespace {

using protocol::FrameType;
using protocol::kFlagError;
using protocol::kKindBytes;
using protocol::kKindJson;
using protocol::kKindText;

// A plain answer of one item.
std::string plain(std::uint64_t stream, std::uint8_t kind, std::string_view data) {
  return FakeRuntime::response(stream, {}) + FakeRuntime::item(stream, kind, data) +
         FakeRuntime::end(stream);
}

TEST(GatewayPython, ChatIsACompletionOrChunks) {
  Thread thread;
  FakeRuntime& runtime = thread.runtime([](const FakeRuntime::Call& call) {
    const std::uint64_t s = call.stream;
    return FakeRuntime::response(s, {{"streaming", true}}) +
           FakeRuntime::item(s, kKindText, "Hel") + FakeRuntime::item(s, kKindText, "lo") +
           FakeRuntime::frame(FrameType::trailer, s,
                              R"({"usage":{"prompt_tokens":3,"completion_tokens":2}})") +
           FakeRuntime::end(s);
  });
  thread.publish_resident(thread.model("py", Task::chat, EngineKind::python), runtime.endpoint);
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer whole =
        co_await ask(t, post("/v1/chat/completions", R"({"model":"py","messages":[],"seed":1})"));
    EXPECT_EQ(whole.status, 200) << whole.body;
    const json::object body = parse(whole.body);
    EXPECT_EQ(body.at("choices").at(0).at("message").at("content"), "Hello");
    EXPECT_EQ(body.at("usage").at("prompt_tokens"), 3);
    Answer stream = co_await ask(
        t, post("/v1/chat/completions", R"({"model":"py","messages":[],"stream":true})"));
    EXPECT_NE(stream.headers["content-type"].find("text/event-stream"), std::string::npos);
    EXPECT_NE(stream.body.find(R"("delta":{"content":"Hel"})"), std::string::npos) << stream.body;
    EXPECT_TRUE(stream.body.ends_with("data: [DONE]\n\n")) << stream.body;
    Answer completion = co_await ask(t, post("/v1/completions", R"({"model":"py","prompt":"hi"})"));
    EXPECT_EQ(parse(completion.body).at("choices").at(0).at("text"), "Hello");
  }(thread));
  ASSERT_EQ(runtime.calls.size(), 3u);
  EXPECT_EQ(runtime.connections, 1u) << "one channel for all requests of a thread";
  EXPECT_EQ(runtime.calls[0].request.at("parameters"), json::parse(R"({"messages":[],"seed":1})"));
  EXPECT_EQ(runtime.calls[1].request.at("stream"), true);
  EXPECT_EQ(runtime.calls[2].request.at("parameters").at("messages").at(0).at("content"), "hi");
  EXPECT_EQ(thread.counted("tokens_in", "py"), 9u);
  EXPECT_EQ(thread.counted("tokens_out", "py"), 6u);
}

TEST(GatewayPython, AHandlersErrorIsAnErrorObjectOrAnEvent) {
  Thread thread;
  FakeRuntime& runtime = thread.runtime([](const FakeRuntime::Call& call) {
    const std::uint64_t s = call.stream;
    const std::string error = FakeRuntime::frame(
        FrameType::end, s, R"({"code":"handler_failed","message":"ValueError: no"})", kFlagError);
    if (!call.request.at("stream").as_bool()) return error;
    return FakeRuntime::response(s, {{"streaming", true}}) + FakeRuntime::item(s, kKindText, "x") +
           error;
  });
  thread.publish_resident(thread.model("py", Task::chat, EngineKind::python), runtime.endpoint);
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer plain_error =
        co_await ask(t, post("/v1/chat/completions", R"({"model":"py","messages":[]})"));
    EXPECT_EQ(plain_error.status, 500);
    EXPECT_EQ(text(error_in(plain_error.body), "origin"), "engine");
    EXPECT_NE(text(error_in(plain_error.body), "message").find("ValueError: no"),
              std::string::npos);
    Answer event = co_await ask(
        t, post("/v1/chat/completions", R"({"model":"py","messages":[],"stream":true})"));
    EXPECT_EQ(event.status, 200);
    EXPECT_NE(event.body.find("data: {\"error\":"), std::string::npos) << event.body;
    EXPECT_EQ(event.body.find("[DONE]"), std::string::npos);
  }(thread));
  EXPECT_EQ(thread.control.count<Suspect>(), 0u);
}

TEST(GatewayPython, ARequestIsSentAgainWithItsFileWhenTheRuntimeDies) {
  Thread thread;
  FakeRuntime& broken = thread.runtime([](const FakeRuntime::Call&) { return std::nullopt; });
  FakeRuntime& well = thread.runtime([](const FakeRuntime::Call& call) {
    return plain(call.stream, kKindJson, R"({"text":" hello"})");
  });
  ModelRoute model = thread.model("whisper", Task::speech_to_text, EngineKind::python);
  const InstanceRoute second = thread.instance(model, well.endpoint);
  thread.publish_resident(model, broken.endpoint);
  thread.control.on_admit = [&](const Admit& admit) {
    asio::post(thread.loop, [&, ticket = admit.ticket] { thread.serve(ticket, second); });
  };
  thread.run([](Thread& t) -> asio::awaitable<void> {
    const std::string body =
        "--B\r\nContent-Disposition: form-data; name=file; filename=a.wav\r\n"
        "Content-Type: audio/wav\r\n\r\nRIFFdata\r\n"
        "--B\r\nContent-Disposition: form-data; name=language\r\n\r\nen\r\n"
        "--B\r\nContent-Disposition: form-data; name=model\r\n\r\nwhisper\r\n--B--";
    Answer answer = co_await ask(t, post("/v1/audio/transcriptions", body,
                                         "Content-Type: multipart/form-data; boundary=B\r\n"));
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.body, R"({"text":"hello"})");
  }(thread));
  ASSERT_EQ(broken.calls.size(), 1u);
  ASSERT_EQ(well.calls.size(), 1u);
  for (const FakeRuntime::Call& call : {broken.calls[0], well.calls[0]}) {
    EXPECT_EQ(call.files, std::vector<std::string>{"RIFFdata"});
    EXPECT_EQ(json::serialize(call.request.at("parameters")), R"({"language":"en"})");
    EXPECT_EQ(call.request.at("files").at(0).at("filename"), "a.wav");
  }
  EXPECT_EQ(thread.control.count<Suspect>(), 1u);
}

TEST(GatewayPython, AClientThatLeavesCancelsItsCall) {
  Thread thread;
  FakeRuntime& runtime = thread.runtime([](const FakeRuntime::Call&) { return std::string(); });
  const ModelRoute model = thread.model("py", Task::chat, EngineKind::python);
  const InstanceRoute instance = thread.instance(model, runtime.endpoint);
  ModelRoute resident = model;
  resident.instances.push_back(instance);
  thread.publish(resident);
  thread.run([](Thread& t, FakeRuntime& r, InstanceRoute at) -> asio::awaitable<void> {
    Client client = t.connect();
    co_await client.send(post("/v1/chat/completions", R"({"model":"py","messages":[]})"));
    EXPECT_TRUE(co_await eventually(t.loop, [&] { return r.calls.size() == 1; }));
    const TimePoint left = Clock::now();
    client.close();
    EXPECT_TRUE(co_await eventually(t.loop, [&] { return r.cancels == 1; }));
    EXPECT_LT(Clock::now() - left, kPromptly);
    EXPECT_TRUE(co_await eventually(t.loop, [&] { return at.slot->word.in_flight() == 0; }));
  }(thread, runtime, instance));
}

TEST(GatewayPython, EmbeddingsTakeTextAndGiveOpenAisList) {
  Thread thread;
  FakeRuntime& runtime = thread.runtime([](const FakeRuntime::Call& call) {
    return plain(call.stream, kKindJson, R"({"embeddings":[[1.0,-2.0]]})");
  });
  thread.publish_resident(thread.model("minilm", Task::embeddings, EngineKind::python),
                          runtime.endpoint);
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer answer = co_await ask(
        t, post("/v1/embeddings", R"({"model":"minilm","input":"hi","encoding_format":"base64"})"));
    EXPECT_EQ(parse(answer.body).at("data").at(0).at("embedding"), "AACAPwAAAMA=");
    Answer tokens = co_await ask(t, post("/v1/embeddings", R"({"model":"minilm","input":[1,2]})"));
    EXPECT_EQ(tokens.status, 400);
    EXPECT_NE(text(error_in(tokens.body), "message").find("token arrays"), std::string::npos);
  }(thread));
  EXPECT_EQ(json::serialize(runtime.calls[0].request.at("parameters")), R"({"input":["hi"]})");
}

TEST(GatewayPython, AnEmbeddingsModelReranks) {
  Thread thread;
  FakeRuntime& runtime = thread.runtime([](const FakeRuntime::Call& call) {
    return plain(call.stream, kKindJson, R"({"embeddings":[[1,0],[0,1],[1,1]]})");
  });
  thread.publish_resident(thread.model("minilm", Task::embeddings, EngineKind::python),
                          runtime.endpoint);
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer answer = co_await ask(
        t, post("/v1/rerank",
                R"({"model":"minilm","query":"q","documents":["a",{"text":"b"}],"top_n":1})"));
    const json::object body = parse(answer.body);
    EXPECT_EQ(body.at("results").as_array().size(), 1u) << answer.body;
    EXPECT_EQ(body.at("results").at(0).at("index"), 1);
    Answer none =
        co_await ask(t, post("/v1/rerank", R"({"model":"minilm","query":"q","documents":[]})"));
    EXPECT_EQ(none.status, 400);
  }(thread));
  EXPECT_EQ(json::serialize(runtime.calls[0].request.at("parameters")),
            R"({"input":["q","a","b"]})");
}

TEST(GatewayPython, ImagesAreMadeAndEdited) {
  Thread thread;
  FakeRuntime& runtime = thread.runtime(
      [](const FakeRuntime::Call& call) { return plain(call.stream, kKindBytes, "png"); });
  thread.publish(thread.model("draw", Task::image_generation, EngineKind::python));
  ModelRoute draw = thread.model("draw", Task::image_generation, EngineKind::python);
  draw.instances.push_back(thread.instance(draw, runtime.endpoint));
  thread.publish(std::move(draw));
  ModelRoute edit = thread.model("edit", Task::image_to_image, EngineKind::python);
  edit.instances.push_back(thread.instance(edit, runtime.endpoint));
  thread.publish(std::move(edit));
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer made = co_await ask(
        t, post("/v1/images/generations", R"({"model":"draw","prompt":"hills","size":"8x8"})"));
    EXPECT_EQ(parse(made.body).at("data").at(0).at("b64_json"), "cG5n") << made.body;
    Answer bare = co_await ask(t, post("/ai/run/draw", R"({"prompt":"hills"})"));
    EXPECT_EQ(bare.body, "png");

    const std::string form =
        "--B\r\nContent-Disposition: form-data; name=\"image[]\"; filename=a.png\r\n"
        "Content-Type: image/png\r\n\r\nPNG\r\n"
        "--B\r\nContent-Disposition: form-data; name=n\r\n\r\n1\r\n"
        "--B\r\nContent-Disposition: form-data; name=model\r\n\r\nedit\r\n--B--";
    const std::string form_type = "Content-Type: multipart/form-data; boundary=B\r\n";
    Answer edited = co_await ask(t, post("/v1/images/edits", form, form_type));
    EXPECT_EQ(parse(edited.body).at("data").at(0).at("b64_json"), "cG5n") << edited.body;
    Answer raw = co_await ask(t, post("/ai/run/edit", "PNG", "Content-Type: image/png\r\n"));
    EXPECT_EQ(raw.body, "png");
    Answer json = co_await ask(t, post("/ai/run/edit", "{}"));
    EXPECT_EQ(json.status, 400);
    EXPECT_NE(json.body.find("part `image`"), std::string::npos) << json.body;
  }(thread));
  ASSERT_EQ(runtime.calls.size(), 4u);
  EXPECT_EQ(runtime.calls[0].request.at("parameters"),
            json::value({{"prompt", "hills"}, {"size", "8x8"}, {"n", 1}}));
  for (std::size_t i : {2u, 3u}) {
    EXPECT_EQ(runtime.calls[i].files, std::vector<std::string>{"PNG"});
    EXPECT_EQ(runtime.calls[i].request.at("files").at(0).at("name"), "image");
  }
}

TEST(GatewayPython, SpeechIsBytesAsTheyCome) {
  Thread thread;
  FakeRuntime& runtime = thread.runtime([](const FakeRuntime::Call& call) {
    const std::uint64_t s = call.stream;
    return FakeRuntime::response(s, {{"streaming", true}}) +
           FakeRuntime::item(s, kKindBytes, "RIFF") + FakeRuntime::item(s, kKindBytes, "data") +
           FakeRuntime::end(s);
  });
  thread.publish_resident(thread.model("tts", Task::text_to_speech, EngineKind::python),
                          runtime.endpoint);
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer answer =
        co_await ask(t, post("/v1/audio/speech", R"({"model":"tts","input":"hi","voice":"a"})"));
    EXPECT_EQ(answer.headers["content-type"], "audio/wav");
    EXPECT_EQ(answer.body, "RIFFdata");
    Answer mp3 = co_await ask(
        t, post("/v1/audio/speech", R"({"model":"tts","input":"hi","response_format":"mp3"})"));
    EXPECT_EQ(mp3.status, 400);
    EXPECT_NE(mp3.body.find("audio/wav"), std::string::npos);
  }(thread));
}

TEST(GatewayPython, RunCarriesTheHandlersOwnForm) {
  Thread thread;
  FakeRuntime& runtime = thread.runtime([](const FakeRuntime::Call& call) {
    if (call.request.at("raw").as_bool()) {
      return FakeRuntime::response(call.stream, {{"content_type", "image/png"}, {"status", 201}}) +
             FakeRuntime::item(call.stream, kKindBytes, call.body) + FakeRuntime::end(call.stream);
    }
    return plain(call.stream, kKindJson, R"({"label":"cat"})");
  });
  thread.publish_resident(thread.model("any", Task::other, EngineKind::python), runtime.endpoint);
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer dict = co_await ask(t, post("/ai/run/any", R"({"x":1})"));
    EXPECT_EQ(dict.headers["content-type"], "application/json");
    EXPECT_EQ(dict.body, R"({"label":"cat"})");
    const std::string type = "Content-Type: image/jpeg\r\n";
    Answer bytes = co_await ask(t, post("/ai/run/any", "binary", type));
    EXPECT_EQ(bytes.status, 201);
    EXPECT_EQ(bytes.headers["content-type"], "image/png");
    EXPECT_EQ(bytes.body, "binary");
    Answer large = co_await ask(t, post("/ai/run/any", std::string(2 << 20, 'x'), type));
    EXPECT_EQ(large.status, 201);
    Answer chat = co_await ask(t, post("/v1/chat/completions", R"({"model":"any"})"));
    EXPECT_NE(text(error_in(chat.body), "message").find("POST /ai/run/"), std::string::npos);
  }(thread));
  ASSERT_EQ(runtime.calls.size(), 3u);
  EXPECT_EQ(runtime.calls[1].request.at("content_type"), "image/jpeg");
  EXPECT_EQ(runtime.calls[2].files.size(), 1u);
  EXPECT_EQ(runtime.calls[2].body, "");
}

TEST(GatewayPython, HandlersGetTheModelsDefaults) {
  Thread thread;
  FakeRuntime& runtime = thread.runtime(
      [](const FakeRuntime::Call& call) { return plain(call.stream, kKindJson, "{}"); });
  ModelRoute model = thread.model("any", Task::other, EngineKind::python);
  model.defaults = {{"size", R"({"width":3})"}, {"steps", "20"}};
  thread.publish_resident(std::move(model), runtime.endpoint);
  thread.run([](Thread& t) -> asio::awaitable<void> {
    co_await ask(t, post("/ai/run/any", R"({"steps":5})"));
  }(thread));
  ASSERT_EQ(runtime.calls.size(), 1u);
  EXPECT_EQ(boost::json::serialize(runtime.calls[0].request.at("parameters")),
            R"({"steps":5,"size":{"width":3}})");
}

TEST(GatewayPython, ADeadChannelIsReplaced) {
  Thread thread;
  int answered = 0;
  FakeRuntime& runtime =
      thread.runtime([&](const FakeRuntime::Call& call) -> std::optional<std::string> {
        if (++answered == 1) return std::nullopt;
        return plain(call.stream, kKindJson, "{}");
      });
  ModelRoute model = thread.model("any", Task::other, EngineKind::python);
  const InstanceRoute again = thread.instance(model, runtime.endpoint);
  ModelRoute resident = model;
  resident.instances.push_back(again);
  thread.publish(resident);
  thread.control.on_admit = [&](const Admit& admit) {
    asio::post(thread.loop, [&, ticket = admit.ticket] { thread.serve(ticket, again); });
  };
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer answer = co_await ask(t, post("/ai/run/any", "{}"));
    EXPECT_EQ(answer.status, 200);
  }(thread));
  EXPECT_EQ(runtime.connections, 2u);
}

}  // namespace
}  // namespace omni::gateway::test
