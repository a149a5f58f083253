#include "gateway/gateway.h"

#include "gateway/gateway_test_support.h"

namespace omni::gateway::test {
namespace {

const std::string kChat = R"({"model":"llama","messages":[{"role":"user","content":"hi"}]})";
const std::string kChatStream = R"({"model":"llama","messages":[],"stream":true})";

asio::awaitable<void> answer_json(http::Exchange& exchange) {
  co_await reply(exchange, 200, "application/json",
                 R"({"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7}})");
}

// The connection breaks without a byte of an answer, as when a process dies.
asio::awaitable<void> die(http::Exchange& exchange) {
  exchange.abort();
  co_return;
}

// ---- without a model

TEST(Gateway, ListsEachModelOnceAndFindsItByAlias) {
  Thread thread;
  thread.publish(thread.model("whisper", Task::speech_to_text), {"stt"});
  thread.publish(thread.model("llama", Task::chat));
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer list = co_await ask(t, get("/v1/models"));
    EXPECT_EQ(list.status, 200);
    const json::object body = parse(list.body);
    EXPECT_EQ(body.at("data").as_array().size(), 2u) << list.body;
    const json::object first = body.at("data").at(0).as_object();
    EXPECT_EQ(json::serialize(first),
              R"({"id":"llama","object":"model","created":1700000000,"owned_by":"omni",)"
              R"("state":"resident","task":"chat"})");
    Answer one = co_await ask(t, get("/v1/models/stt"));
    EXPECT_EQ(text(parse(one.body), "id"), "whisper");
    Answer unknown = co_await ask(t, get("/v1/models/lama"));
    EXPECT_EQ(unknown.status, 404);
    EXPECT_NE(text(error_in(unknown.body), "message").find("did you mean \"llama\"?"),
              std::string::npos);
    Answer head = co_await ask(t, "HEAD /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", true);
    EXPECT_EQ(head.status, 200);
    EXPECT_EQ(head.headers["content-length"], std::to_string(list.body.size()));
  }(thread));
}

TEST(Gateway, ShowsWhichModelsRun) {
  Thread thread;
  for (const char* state : {"resident", "stopped", "starting", "draining", "failed"}) {
    ModelRoute model = thread.model(std::string("is-") + state, Task::chat);
    model.state = state;
    thread.publish(std::move(model), {std::string("alias-") + state});
  }
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer answer = co_await ask(t, get("/running"));
    EXPECT_EQ(answer.body, R"({"running":[{"model":"is-draining","state":"stopping"},)"
                           R"({"model":"is-resident","state":"ready"},)"
                           R"({"model":"is-starting","state":"starting"}]})");
  }(thread));
  EXPECT_EQ(thread.control.count<Admit>(), 0u);
}

TEST(Gateway, AModelWithABrokenSpecIsShownAndRefused) {
  Thread thread;
  ModelRoute model = thread.model("broken", Task::other);
  model.unusable = Error{ErrorCode::invalid_config, "model.toml:3: taks: unknown key"};
  thread.publish(std::move(model));
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer shown = co_await ask(t, get("/v1/models/broken"));
    EXPECT_EQ(shown.status, 200);
    Answer refused = co_await ask(t, post("/v1/chat/completions", R"({"model":"broken"})"));
    EXPECT_EQ(refused.status, 500);
    EXPECT_EQ(text(error_in(refused.body), "code"), "invalid_config");
  }(thread));
}

TEST(Gateway, ReadyzIsRedWhenTheControlLoopStallsOrDrains) {
  Thread thread;
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer ready = co_await ask(t, get("/readyz"));
    EXPECT_EQ(ready.status, 200);
    t.shared.control_tick = (Clock::now() - 3s).time_since_epoch().count();
    Answer stalled = co_await ask(t, get("/readyz"));
    EXPECT_EQ(stalled.status, 503);
    EXPECT_EQ(text(parse(stalled.body), "reason"), "control loop stalled");
    t.shared.control_tick = Clock::now().time_since_epoch().count();
    t.shared.draining = true;
    Answer draining = co_await ask(t, get("/readyz"));
    EXPECT_EQ(draining.status, 503);
    Answer alive = co_await ask(t, get("/livez"));
    EXPECT_EQ(alive.status, 200);
    Answer health = co_await ask(t, get("/health"));
    EXPECT_EQ(health.status, 200);
  }(thread));
}

TEST(Gateway, UnknownPathsAndMethodsAreErrorObjects) {
  Thread thread;
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer unknown = co_await ask(t, get("/v1/chat/completion"));
    EXPECT_EQ(unknown.status, 404);
    EXPECT_EQ(text(error_in(unknown.body), "code"), "not_found");
    EXPECT_EQ(text(error_in(unknown.body), "request_id"), unknown.headers["x-request-id"]);
    Answer method = co_await ask(t, get("/v1/chat/completions"));
    EXPECT_EQ(method.status, 405);
    EXPECT_EQ(method.headers["allow"], "POST, OPTIONS");
    Answer admin = co_await ask(t, get("/admin/models"));
    EXPECT_EQ(admin.status, 404);
    Answer metrics = co_await ask(t, get("/metrics"));
    EXPECT_NE(metrics.body.find("omni_request_errors_total{model=\"\",code=\"not_found\"} 2"),
              std::string::npos)
        << metrics.body;
  }(thread));
}

TEST(Gateway, KeepsASaneRequestIdAndMakesOneOtherwise) {
  Thread thread;
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer kept = co_await ask(t, get("/livez", "X-Request-Id: abc-1.2_3\r\n"));
    EXPECT_EQ(kept.headers["x-request-id"], "abc-1.2_3");
    Answer made = co_await ask(t, get("/livez", "X-Request-Id: a b\"c\r\n"));
    EXPECT_EQ(made.headers["x-request-id"].substr(0, 4), "req_");
    Answer other = co_await ask(t, get("/livez"));
    EXPECT_NE(made.headers["x-request-id"], other.headers["x-request-id"]);
  }(thread));
}

TEST(Gateway, RefusesForeignPagesAndAnswersPreflights) {
  Thread thread;
  thread.config.cors_origins = {"https://app.example"};
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer host = co_await ask(t, "GET /livez HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    EXPECT_EQ(host.status, 403);
    EXPECT_EQ(text(error_in(host.body), "code"), "forbidden_origin");
    Answer origin = co_await ask(t, get("/livez", "Origin: https://evil.example\r\n"));
    EXPECT_EQ(origin.status, 403);
    EXPECT_EQ(origin.headers.count("access-control-allow-origin"), 0u);
    Answer allowed = co_await ask(t, get("/livez", "Origin: https://app.example\r\n"));
    EXPECT_EQ(allowed.status, 200);
    EXPECT_EQ(allowed.headers["access-control-allow-origin"], "https://app.example");
    Answer preflight = co_await ask(
        t,
        "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: "
        "https://app.example\r\n"
        "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-a\r\n\r\n");
    EXPECT_EQ(preflight.status, 204);
    EXPECT_EQ(preflight.headers["access-control-allow-methods"], "POST, OPTIONS");
    EXPECT_EQ(preflight.headers["access-control-allow-headers"], "x-a");
  }(thread));
}

// ---- bodies

TEST(Gateway, RefusesBadBodiesBeforeAnyModelIsAsked) {
  Thread thread;
  thread.publish(thread.model("llama", Task::chat));
  thread.publish(thread.model("minilm", Task::embeddings));
  thread.config.json_body = 2_KiB;
  thread.run([](Thread& t) -> asio::awaitable<void> {
    struct Case {
      std::string body;
      int status;
      std::string code;
      std::string part;
    };
    const std::vector<Case> cases{
        {"{\"model\":", 400, "invalid_json", "at byte"},
        {"{\"model\":\"llama\",\"a\":\"\\ud800\"}", 400, "invalid_json", "surrogate"},
        {"{}", 400, "invalid_request", "`model` is required"},
        {"{\"model\":1}", 400, "invalid_request", "must be a string"},
        {"{\"model\":\"lama\"}", 404, "model_not_found", "did you mean \"llama\"?"},
        {"{\"model\":\"minilm\"}", 400, "task_mismatch", "POST /v1/embeddings"},
        {"{\"model\":\"" + std::string(3000, 'x') + "\"}", 413, "body_too_large",
         "2 KiB (limits.json_body)"},
    };
    for (const Case& c : cases) {
      Answer answer = co_await ask(t, post("/v1/chat/completions", c.body));
      EXPECT_EQ(answer.status, c.status) << answer.body;
      EXPECT_EQ(text(error_in(answer.body), "code"), c.code);
      EXPECT_NE(text(error_in(answer.body), "message").find(c.part), std::string::npos)
          << answer.body;
    }
    Answer type = co_await ask(t, post("/v1/chat/completions", "x", "Content-Type: image/png\r\n"));
    EXPECT_EQ(type.status, 415);
  }(thread));
  EXPECT_EQ(thread.control.count<Admit>(), 0u);
  EXPECT_EQ(thread.shared.held_bytes, 0);
}

TEST(Gateway, BoundsTheBodiesHeldTogether) {
  Thread thread;
  thread.config.body_memory = 100_B;
  thread.publish(thread.model("llama", Task::chat));
  thread.run([](Thread& t) -> asio::awaitable<void> {
    // One request waits for the model and holds its body; the next finds no room.
    Client first = t.connect();
    co_await first.send(post("/v1/chat/completions", kChat));
    EXPECT_TRUE(co_await eventually(t.loop, [&] { return t.admission.waiting() == 1; }));
    EXPECT_EQ(t.shared.held_bytes, static_cast<std::int64_t>(kChat.size()));
    Answer second = co_await ask(t, post("/v1/chat/completions", kChat));
    EXPECT_EQ(second.status, 503);
    EXPECT_EQ(text(error_in(second.body), "code"), "overloaded");
    EXPECT_EQ(second.headers["retry-after"], "1");
    first.close();
    EXPECT_TRUE(co_await eventually(t.loop, [&] { return t.shared.held_bytes == 0; }));
  }(thread));
}

// ---- command engines

TEST(Gateway, PassesARequestAndItsAnswerUnchanged) {
  Thread thread;
  FakeEngine& engine = thread.engine(answer_json);
  thread.publish_resident(thread.model("llama", Task::chat), engine.endpoint);
  thread.run([](Thread& t, FakeEngine& e) -> asio::awaitable<void> {
    const std::string headers =
        "Content-Type: application/json\r\nX-Request-Id: id7\r\nConnection: x-hop\r\nX-Hop: 1\r\n"
        "X-End: 2\r\nAccept-Encoding: gzip\r\nAuthorization: Bearer k\r\n";
    Answer answer = co_await ask(t, post("/v1/chat/completions?q=1", kChat, headers));
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, R"({"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7}})");
    EXPECT_EQ(answer.headers["x-request-id"], "id7");
    EXPECT_EQ(e.seen.size(), 1u);
    const http::RequestHead& head = e.seen[0].head;
    EXPECT_EQ(head.target, "/v1/chat/completions?q=1");
    EXPECT_EQ(e.seen[0].body, kChat);
    EXPECT_EQ(head.headers.get("x-request-id"), "id7");
    EXPECT_EQ(head.headers.get("host"), "localhost");
    EXPECT_EQ(head.headers.get("x-end"), "2");
    EXPECT_EQ(head.headers.get("authorization"), "Bearer k");
    EXPECT_FALSE(head.headers.has("x-hop"));
    EXPECT_FALSE(head.headers.has("accept-encoding"));
  }(thread, engine));
  EXPECT_EQ(thread.counted("tokens_in", "llama"), 5u);
  EXPECT_EQ(thread.counted("tokens_out", "llama"), 7u);
  EXPECT_EQ(thread.counted("requests", "llama"), 1u);
  EXPECT_EQ(thread.shared.held_bytes, 0);
}

TEST(Gateway, StreamsWithTheEnginesOwnNameAndHidesTheUsageItAskedFor) {
  Thread thread;
  FakeEngine& engine = thread.engine([](http::Exchange& exchange) -> asio::awaitable<void> {
    co_await begin_events(exchange);
    co_await say(exchange, "data: {\"choices\":[{}]}\n\n");
    co_await say(
        exchange,
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":3}}\n\n");
    co_await say(exchange, "data: [DONE]\n\n");
    co_await end(exchange);
  });
  ModelRoute model = thread.model("llama", Task::chat);
  model.served_name = "/weights/x.gguf";
  thread.publish_resident(std::move(model), engine.endpoint);
  thread.run([](Thread& t, FakeEngine& e) -> asio::awaitable<void> {
    Answer answer = co_await ask(t, post("/v1/chat/completions", kChatStream));
    EXPECT_EQ(answer.body, "data: {\"choices\":[{}]}\n\ndata: [DONE]\n\n");
    EXPECT_EQ(answer.headers["cache-control"], "no-cache");
    EXPECT_EQ(answer.headers["x-accel-buffering"], "no");
    EXPECT_EQ(e.seen[0].body, R"({"stream_options":{"include_usage":true},)"
                              R"("model":"/weights/x.gguf","messages":[],"stream":true})");
    EXPECT_EQ(e.seen[0].head.content_length, e.seen[0].body.size());
    const std::string asking =
        R"({"model":"llama","stream":true,"stream_options":{"include_usage":true}})";
    Answer asked = co_await ask(t, post("/v1/chat/completions", asking));
    EXPECT_NE(asked.body.find("prompt_tokens"), std::string::npos);
  }(thread, engine));
  EXPECT_EQ(thread.counted("tokens_out", "llama"), 6u);
}

TEST(Gateway, AddsTheModelsDefaultsWhereTheRequestHasNone) {
  Thread thread;
  FakeEngine& engine = thread.engine([](http::Exchange& exchange) -> asio::awaitable<void> {
    co_await reply(exchange, 200, "application/json", "{}");
  });
  ModelRoute model = thread.model("llama", Task::chat);
  model.defaults = {{"stop", R"(["\n"])"}, {"temperature", "0.2"}};
  thread.publish_resident(std::move(model), engine.endpoint);
  ModelRoute whisper = thread.model("whisper", Task::speech_to_text);
  whisper.defaults = {{"language", R"("en")"}, {"temperature", "0.2"}};
  thread.publish_resident(std::move(whisper), engine.endpoint);
  thread.run([](Thread& t, FakeEngine& e) -> asio::awaitable<void> {
    co_await ask(t, post("/v1/chat/completions", R"({"model":"llama"})"));
    EXPECT_EQ(e.seen[0].body, R"({"stop":["\n"],"temperature":0.2,"model":"llama"})");
    co_await ask(
        t, post("/v1/chat/completions", R"({"model":"llama","stop":null,"t\u0065mperature":1})"));
    EXPECT_EQ(e.seen[1].body, R"({"model":"llama","stop":null,"t\u0065mperature":1})")
        << "what a request has, in whatever spelling, is its own";
    co_await ask(t, post("/ai/run/llama", "{}"));
    EXPECT_EQ(e.seen[2].body, R"({"model":"llama","stop":["\n"],"temperature":0.2})");
    const std::string form =
        "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper\r\n"
        "--b\r\nContent-Disposition: form-data; name=\"temperature\"\r\n\r\n1\r\n"
        "--b\r\nContent-Disposition: form-data; name=\"file\"; "
        "filename=\"a\"\r\n\r\nx\r\n--b--\r\n";
    const std::string type = "Content-Type: multipart/form-data; boundary=b\r\n";
    co_await ask(t, post("/v1/audio/transcriptions", form, type));
    EXPECT_NE(e.seen[3].body.find("name=\"language\"\r\n\r\nen\r\n"), std::string::npos);
    EXPECT_NE(e.seen[3].body.find("name=\"temperature\"\r\n\r\n1\r\n"), std::string::npos);
    EXPECT_EQ(e.seen[3].body.find("0.2"), std::string::npos);
  }(thread, engine));
}

TEST(Gateway, EachEventReachesTheClientAtOnce) {
  Thread thread;
  asio::steady_timer go(thread.loop, TimePoint::max());
  FakeEngine& engine = thread.engine([&go](http::Exchange& exchange) -> asio::awaitable<void> {
    co_await begin_events(exchange);
    co_await say(exchange, "data: 1\n\n");
    co_await go.async_wait(kTuple);
    co_await say(exchange, "data: 2\n\n");
    co_await end(exchange);
  });
  thread.publish_resident(thread.model("llama", Task::chat), engine.endpoint);
  thread.run([](Thread& t, asio::steady_timer& go_on) -> asio::awaitable<void> {
    Client client = t.connect();
    co_await client.send(post("/v1/chat/completions", kChatStream));
    const std::string first = co_await client.read_until("data: 1\n\n");
    EXPECT_EQ(first.find("data: 2"), std::string::npos);
    go_on.cancel();
    const std::string second = co_await client.read_until("data: 2\n\n");
    EXPECT_FALSE(second.empty());
  }(thread, go));
}

TEST(Gateway, EngineErrorsPassOrAreQuoted) {
  Thread thread;
  FakeEngine& engine = thread.engine([](http::Exchange& exchange) -> asio::awaitable<void> {
    if (exchange.request().has_body() && exchange.request().headers.has("x-json")) {
      co_await reply(exchange, 400, "application/json", R"({"error":{"message":"too long"}})");
    } else {
      co_await reply(exchange, 500, "text/plain", "it broke");
    }
  });
  thread.publish_resident(thread.model("llama", Task::chat), engine.endpoint);
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer passed = co_await ask(t, post("/v1/chat/completions", kChat, "X-Json: 1\r\n"));
    EXPECT_EQ(passed.status, 400);
    EXPECT_EQ(passed.body, R"({"error":{"message":"too long"}})");
    Answer quoted = co_await ask(t, post("/v1/chat/completions", kChat));
    EXPECT_EQ(quoted.status, 500);
    EXPECT_EQ(text(error_in(quoted.body), "origin"), "engine");
    EXPECT_EQ(text(error_in(quoted.body), "message"), "the engine answered 500: it broke");
    Answer metrics = co_await ask(t, get("/metrics"));
    EXPECT_NE(metrics.body.find("{model=\"llama\",code=\"engine_500\"} 1"), std::string::npos);
  }(thread));
  EXPECT_EQ(thread.control.count<Suspect>(), 0u);
}

TEST(Gateway, ASilentEngineIsATimeoutAndASuspect) {
  Thread thread;
  FakeEngine& engine = thread.engine(
      [&thread](http::Exchange&) -> asio::awaitable<void> { co_await pause(thread.loop, 5s); });
  ModelRoute model = thread.model("llama", Task::chat);
  model.request_timeout = 30ms;
  thread.publish_resident(std::move(model), engine.endpoint);
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer answer = co_await ask(t, post("/v1/chat/completions", kChat));
    EXPECT_EQ(answer.status, 504);
    EXPECT_EQ(text(error_in(answer.body), "code"), "engine_timeout");
  }(thread));
  // It may only be slow: whether it still answers at all is the control loop's to find out.
  EXPECT_EQ(thread.control.count<Suspect>(), 1u);
}

TEST(Gateway, ABrokenStreamEndsWithAnErrorEvent) {
  Thread thread;
  FakeEngine& engine = thread.engine([](http::Exchange& exchange) -> asio::awaitable<void> {
    co_await begin_events(exchange);
    co_await say(exchange, "data: 1\n\ndata: {\"cut");
    exchange.abort();
  });
  thread.publish_resident(thread.model("llama", Task::chat), engine.endpoint);
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer answer = co_await ask(t, post("/v1/chat/completions", kChatStream));
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body.substr(0, 24), "data: 1\n\ndata: {\"error\":") << answer.body;
    EXPECT_NE(answer.body.find("instance_crashed"), std::string::npos);
    EXPECT_EQ(answer.body.find("cut"), std::string::npos);
    EXPECT_EQ(answer.body.find("[DONE]"), std::string::npos);
  }(thread));
  EXPECT_EQ(thread.control.count<Suspect>(), 1u);
  EXPECT_EQ(thread.control.count<Admit>(), 0u);
}

TEST(Gateway, ABrokenPlainAnswerCutsTheConnection) {
  Thread thread;
  FakeEngine& engine = thread.engine([](http::Exchange& exchange) -> asio::awaitable<void> {
    http::ResponseHead head;
    head.content_length = 100;
    const auto started = co_await exchange.start(std::move(head), true);
    EXPECT_TRUE(started.ok());
    co_await say(exchange, "half");
    exchange.abort();
  });
  thread.publish_resident(thread.model("llama", Task::chat), engine.endpoint);
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer answer = co_await ask(t, post("/v1/chat/completions", kChat));
    EXPECT_EQ(answer.status, 0) << "a short answer must not look whole";
  }(thread));
}

// ---- waiting

TEST(Gateway, ARequestWaitsForItsTicketAndIsServed) {
  Thread thread;
  FakeEngine& engine = thread.engine(answer_json);
  ModelRoute model = thread.model("llama", Task::chat);
  const InstanceRoute instance = thread.instance(model, engine.endpoint);
  thread.publish(model);
  thread.run([](Thread& t, InstanceRoute at) -> asio::awaitable<void> {
    Client client = t.connect();
    co_await client.send(post("/v1/chat/completions", kChat));
    EXPECT_TRUE(co_await eventually(t.loop, [&] { return t.control.count<Admit>() == 1; }));
    t.serve(t.control.last<Admit>().ticket, at);
    Answer answer = co_await client.read();
    EXPECT_EQ(answer.status, 200);
  }(thread, instance));
  EXPECT_EQ(instance.slot->word.in_flight(), 0u);
  EXPECT_EQ(instance.slot->served, 1u);
}

TEST(Gateway, ARefusalKeepsItsStatusAndRetryAfter) {
  Thread thread;
  thread.publish(thread.model("llama", Task::chat));
  thread.control.on_admit = [&](const Admit& admit) {
    asio::post(thread.loop, [&thread, ticket = admit.ticket] {
      thread.admission.refuse({ticket, {ErrorCode::queue_full, "512 requests wait"}, 9});
    });
  };
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer answer = co_await ask(t, post("/v1/chat/completions", kChatStream));
    EXPECT_EQ(answer.status, 503);
    EXPECT_EQ(answer.headers["retry-after"], "9");
    EXPECT_EQ(text(error_in(answer.body), "code"), "queue_full");
    EXPECT_EQ(text(error_in(answer.body), "origin"), "omni");
  }(thread));
}

TEST(Gateway, WaitingEndsAtTheQueuesTimeout) {
  Thread thread;
  thread.config.queue_timeout = 30ms;
  thread.publish(thread.model("llama", Task::chat));
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer answer = co_await ask(t, post("/v1/chat/completions", kChat));
    EXPECT_EQ(answer.status, 503);
    EXPECT_EQ(text(error_in(answer.body), "code"), "queue_timeout");
    EXPECT_EQ(answer.headers["retry-after"], "7");
  }(thread));
  EXPECT_EQ(thread.control.count<Forget>(), 1u);
}

TEST(Gateway, AWaitingStreamGetsCommentsThenItsAnswer) {
  Thread thread;
  thread.shared.waiting_comment_interval = 10ms;
  FakeEngine& engine = thread.engine([](http::Exchange& exchange) -> asio::awaitable<void> {
    co_await begin_events(exchange);
    co_await say(exchange, "data: 1\n\n");
    co_await end(exchange);
  });
  ModelRoute model = thread.model("llama", Task::chat);
  const InstanceRoute instance = thread.instance(model, engine.endpoint);
  thread.publish(model);
  thread.run([](Thread& t, InstanceRoute at) -> asio::awaitable<void> {
    Client client = t.connect();
    co_await client.send(post("/v1/chat/completions", kChatStream));
    const std::string begun = co_await client.read_until(": waiting\n\n");
    EXPECT_NE(begun.find("200 OK"), std::string::npos) << begun;
    EXPECT_NE(begun.find("text/event-stream"), std::string::npos) << begun;
    t.serve(t.control.last<Admit>().ticket, at);
    const std::string rest = co_await client.read_until("data: 1\n\n");
    EXPECT_EQ(rest.find("HTTP/1.1"), std::string::npos) << rest;
  }(thread, instance));
}

TEST(Gateway, ARefusalAfterCommentsIsAnEventWithoutDone) {
  Thread thread;
  thread.shared.waiting_comment_interval = 10ms;
  thread.publish(thread.model("llama", Task::chat));
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Client client = t.connect();
    co_await client.send(post("/v1/chat/completions", kChatStream));
    co_await client.read_until(": waiting\n\n");
    const TicketId ticket = t.control.last<Admit>().ticket;
    t.admission.refuse({ticket, {ErrorCode::load_failed, "it does not start"}, 0});
    const std::string rest = co_await client.read_until("0\r\n\r\n");
    EXPECT_NE(rest.find("data: {\"error\":{\"message\":\"it does not start\""), std::string::npos);
    EXPECT_EQ(rest.find("[DONE]"), std::string::npos);
  }(thread));
}

// ---- the client leaves

TEST(Gateway, AClientThatLeavesTheQueueTakesItsTicketAlong) {
  Thread thread;
  thread.publish(thread.model("llama", Task::chat));
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Client client = t.connect();
    co_await client.send(post("/v1/chat/completions", kChat));
    EXPECT_TRUE(co_await eventually(t.loop, [&] { return t.admission.waiting() == 1; }));
    const TimePoint left = Clock::now();
    client.close();
    EXPECT_TRUE(co_await eventually(t.loop, [&] { return t.admission.waiting() == 0; }));
    EXPECT_LT(Clock::now() - left, kPromptly);
  }(thread));
  EXPECT_EQ(thread.control.count<Forget>(), 1u);
}

TEST(Gateway, AClientThatLeavesClosesItsConnectionToTheEngineAndNoOther) {
  Thread thread;
  std::vector<bool> gone(2, false);
  std::size_t running = 0;
  FakeEngine& engine = thread.engine([&](http::Exchange& exchange) -> asio::awaitable<void> {
    const std::size_t index = running++;
    co_await begin_events(exchange);
    for (int i = 0; i < 2000; ++i) {
      auto sent = co_await exchange.write("data: x\n\n");
      if (exchange.client_gone() || !sent.ok()) {
        gone[index] = true;
        co_return;
      }
      co_await pause(thread.loop, 1ms);
      if (gone[0] && index == 1) break;
    }
    co_await say(exchange, "data: [DONE]\n\n");
    co_await end(exchange);
  });
  const ModelRoute model = thread.model("llama", Task::chat);
  const InstanceRoute instance = thread.instance(model, engine.endpoint);
  ModelRoute resident = model;
  resident.instances.push_back(instance);
  thread.publish(resident);
  thread.run([](Thread& t, std::vector<bool>& left, InstanceRoute at) -> asio::awaitable<void> {
    Client first = t.connect();
    Client second = t.connect();
    co_await first.send(post("/v1/chat/completions", kChatStream));
    co_await first.read_until("data: x\n\n");
    co_await second.send(post("/v1/chat/completions", kChatStream));
    co_await second.read_until("data: x\n\n");
    EXPECT_EQ(at.slot->word.in_flight(), 2u);
    const TimePoint closed = Clock::now();
    first.close();
    EXPECT_TRUE(co_await eventually(t.loop, [&] { return bool(left[0]); }));
    EXPECT_LT(Clock::now() - closed, kPromptly);
    const std::string rest = co_await second.read_until("[DONE]\n\n");
    EXPECT_FALSE(rest.empty());
    EXPECT_FALSE(left[1]);
    EXPECT_TRUE(co_await eventually(t.loop, [&] { return at.slot->word.in_flight() == 0; }));
  }(thread, gone, instance));
  EXPECT_EQ(thread.control.count<Suspect>(), 0u);
}

TEST(Gateway, AClientThatLeavesBeforeTheAnswerClosesTheConnectionToTheEngine) {
  Thread thread;
  bool gone = false;
  FakeEngine& engine = thread.engine([&](http::Exchange& exchange) -> asio::awaitable<void> {
    gone = co_await eventually(thread.loop, [&] { return exchange.client_gone(); });
    exchange.abort();
  });
  thread.publish_resident(thread.model("llama", Task::chat), engine.endpoint);
  thread.run([](Thread& t, FakeEngine& e, bool& seen) -> asio::awaitable<void> {
    Client client = t.connect();
    co_await client.send(post("/v1/chat/completions", kChat));
    EXPECT_TRUE(co_await eventually(t.loop, [&] { return e.active() == 1; }));
    const TimePoint left = Clock::now();
    client.finish_sending();
    EXPECT_TRUE(co_await eventually(t.loop, [&] { return seen; }));
    EXPECT_LT(Clock::now() - left, kPromptly);
  }(thread, engine, gone));
}

// ---- instances that break

TEST(Gateway, ARequestIsSentAgainWhenItsInstanceBreaksBeforeAnswering) {
  Thread thread;
  FakeEngine& broken = thread.engine(die);
  FakeEngine& well = thread.engine(answer_json);
  ModelRoute model = thread.model("llama", Task::chat);
  const InstanceRoute second = thread.instance(model, well.endpoint);
  thread.publish_resident(model, broken.endpoint);
  thread.control.on_admit = [&](const Admit& admit) {
    asio::post(thread.loop, [&, ticket = admit.ticket] { thread.serve(ticket, second); });
  };
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer answer = co_await ask(t, post("/v1/chat/completions", kChat));
    EXPECT_EQ(answer.status, 200);
  }(thread));
  ASSERT_EQ(well.seen.size(), 1u);
  EXPECT_EQ(well.seen[0].body, kChat);
  EXPECT_EQ(thread.control.count<Suspect>(), 1u);
  EXPECT_EQ(thread.counted("replays", "llama"), 1u);
}

TEST(Gateway, ARequestIsSentElsewhereWhenNobodyListens) {
  Thread thread;
  FakeEngine& well = thread.engine(answer_json);
  ModelRoute model = thread.model("llama", Task::chat);
  const InstanceRoute second = thread.instance(model, well.endpoint);
  thread.publish_resident(model, Endpoint::unix_at(thread.socket("nobody.sock").string()));
  thread.control.on_admit = [&](const Admit& admit) {
    asio::post(thread.loop, [&, ticket = admit.ticket] { thread.serve(ticket, second); });
  };
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer answer = co_await ask(t, post("/v1/chat/completions", kChat));
    EXPECT_EQ(answer.status, 200);
  }(thread));
}

TEST(Gateway, ARequestThatBreaksTwoInstancesGetsNoThird) {
  Thread thread;
  FakeEngine& broken = thread.engine(die);
  ModelRoute model = thread.model("llama", Task::chat);
  const InstanceRoute second = thread.instance(model, broken.endpoint);
  thread.publish_resident(model, broken.endpoint);
  thread.control.on_admit = [&](const Admit& admit) {
    asio::post(thread.loop, [&, ticket = admit.ticket] { thread.serve(ticket, second); });
  };
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer answer = co_await ask(t, post("/v1/chat/completions", kChat));
    EXPECT_EQ(answer.status, 502);
    EXPECT_EQ(text(error_in(answer.body), "code"), "instance_crashed");
    EXPECT_NE(text(error_in(answer.body), "message").find("no third try"), std::string::npos);
  }(thread));
  EXPECT_EQ(broken.seen.size(), 2u);
  EXPECT_EQ(thread.control.count<Suspect>(), 2u);
  EXPECT_EQ(second.slot->word.in_flight(), 0u);
}

TEST(Gateway, ABodyThatStreamedThroughIsNotSentAgain) {
  Thread thread;
  FakeEngine& broken = thread.engine(die);
  thread.publish_resident(thread.model("llama", Task::chat), broken.endpoint);
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer answer = co_await ask(t,
                                 "POST /upstream/llama/x HTTP/1.1\r\nHost: localhost\r\n"
                                 "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    EXPECT_EQ(answer.status, 502);
    EXPECT_NE(text(error_in(answer.body), "message").find("streamed through"), std::string::npos);
  }(thread));
  ASSERT_EQ(broken.seen.size(), 1u);
  EXPECT_EQ(broken.seen[0].body, "abc");
}

// ---- forms

std::string form(std::initializer_list<std::string> parts) {
  std::string body;
  for (const std::string& part : parts) {
    body += "--B\r\nContent-Disposition: form-data; " + part + "\r\n";
  }
  return body + "--B--\r\n";
}
const std::string kModelPart = "name=\"model\"\r\n\r\nwhisper";
const std::string kFilePart =
    "name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\nRIFFdata";
const std::string kFormType = "Content-Type: multipart/form-data; boundary=B\r\n";

TEST(Gateway, AFormsModelMayStandBeforeOrAfterItsFile) {
  Thread thread;
  FakeEngine& engine = thread.engine([](http::Exchange& exchange) -> asio::awaitable<void> {
    co_await reply(exchange, 200, "application/json", R"({"text":"hello"})");
  });
  ModelRoute model = thread.model("whisper", Task::speech_to_text);
  model.served_name = "ggml";
  thread.publish_resident(std::move(model), engine.endpoint);
  thread.run([](Thread& t) -> asio::awaitable<void> {
    for (const std::string& body : {form({kModelPart, kFilePart}), form({kFilePart, kModelPart})}) {
      Answer answer = co_await ask(t, post("/v1/audio/transcriptions", body, kFormType));
      EXPECT_EQ(answer.status, 200) << answer.body;
      EXPECT_EQ(answer.body, R"({"text":"hello"})");
    }
    Answer no_file =
        co_await ask(t, post("/v1/audio/transcriptions", form({kModelPart}), kFormType));
    EXPECT_EQ(no_file.status, 400);
    EXPECT_EQ(text(error_in(no_file.body), "param"), "file");
    Answer no_model =
        co_await ask(t, post("/v1/audio/transcriptions", form({kFilePart}), kFormType));
    EXPECT_EQ(text(error_in(no_model.body), "param"), "model");
    Answer twice = co_await ask(
        t, post("/v1/audio/transcriptions", form({kModelPart, kFilePart, kModelPart}), kFormType));
    EXPECT_EQ(twice.status, 400);
  }(thread));
  ASSERT_EQ(engine.seen.size(), 2u);
  for (const FakeEngine::Seen& seen : engine.seen) {
    EXPECT_EQ(seen.head.content_length, seen.body.size());
    EXPECT_NE(seen.body.find("name=\"model\"\r\n\r\nggml\r\n"), std::string::npos) << seen.body;
    EXPECT_NE(seen.body.find("filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\nRIFFdata\r\n--"),
              std::string::npos)
        << seen.body;
  }
  EXPECT_EQ(thread.shared.held_bytes, 0);
}

TEST(Gateway, ALargeFormIsSpooledAndBounded) {
  Thread thread;
  FakeEngine& engine = thread.engine(answer_json);
  thread.publish_resident(thread.model("whisper", Task::speech_to_text), engine.endpoint);
  thread.config.file_body = 256_KiB;
  thread.run([](Thread& t) -> asio::awaitable<void> {
    const std::string file = "name=\"file\"; filename=a\r\n\r\n";
    const std::string fits = form({file + std::string(200 << 10, 'x'), kModelPart});
    Answer answer = co_await ask(t, post("/v1/audio/transcriptions", fits, kFormType));
    EXPECT_EQ(answer.status, 200);
    const std::string over = form({file + std::string(300 << 10, 'x'), kModelPart});
    Answer refused = co_await ask(t, post("/v1/audio/transcriptions", over, kFormType));
    EXPECT_EQ(refused.status, 413);
    EXPECT_NE(refused.body.find("limits.file_body"), std::string::npos);
  }(thread));
  ASSERT_EQ(engine.seen.size(), 1u);
  EXPECT_NE(engine.seen[0].body.find(std::string(200 << 10, 'x')), std::string::npos);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(thread.shared.spool), {}), 1)
      << "nothing but the engine's socket: the spool keeps no file";
}

// ---- raw paths

TEST(Gateway, UpstreamReachesTheEnginesOwnPaths) {
  Thread thread;
  FakeEngine& engine = thread.engine([](http::Exchange& exchange) -> asio::awaitable<void> {
    co_await reply(exchange, 404, "text/html", "<p>mine</p>");
  });
  thread.publish_resident(thread.model("llama", Task::chat), engine.endpoint);
  thread.publish(thread.model("py", Task::other, EngineKind::python));
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer put = co_await ask(
        t,
        "PUT /upstream/llama/a%20b?x=1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi");
    EXPECT_EQ(put.status, 404);
    EXPECT_EQ(put.body, "<p>mine</p>") << "the raw path shows an engine as it is";
    Answer head =
        co_await ask(t, "HEAD /upstream/llama/ HTTP/1.1\r\nHost: localhost\r\n\r\n", true);
    EXPECT_EQ(head.status, 404);
    EXPECT_EQ(head.headers["content-length"], "11");
    Answer python = co_await ask(t, get("/upstream/py/x"));
    EXPECT_EQ(text(error_in(python.body), "code"), "task_mismatch");
  }(thread));
  EXPECT_EQ(engine.seen[0].head.method, "PUT");
  EXPECT_EQ(engine.seen[0].head.target, "/a%20b?x=1");
  EXPECT_EQ(engine.seen[0].body, "hi");
}

TEST(Gateway, UpstreamRelaysAnUpgradedConnectionBothWays) {
  Thread thread;
  FakeEngine& engine = thread.engine([&](http::Exchange& exchange) -> asio::awaitable<void> {
    http::ResponseHead head;
    head.status = 101;
    head.headers.add("upgrade", "echo");
    EXPECT_EQ(exchange.request().headers.get("upgrade"), "echo");
    EXPECT_TRUE(exchange.request().headers.has_token("connection", "upgrade"));
    auto upgraded = co_await exchange.upgrade(std::move(head));
    asio::posix::stream_descriptor socket(thread.loop, upgraded->socket.release());
    for (;;) {
      char piece[64];
      const auto [status, count] = co_await socket.async_read_some(asio::buffer(piece), kTuple);
      if (status) co_return;
      co_await asio::async_write(socket, asio::buffer(piece, count), kTuple);
    }
  });
  const ModelRoute model = thread.model("llama", Task::chat);
  const InstanceRoute instance = thread.instance(model, engine.endpoint);
  ModelRoute resident = model;
  resident.instances.push_back(instance);
  thread.publish(resident);
  thread.run([](Thread& t, InstanceRoute at) -> asio::awaitable<void> {
    Client client = t.connect();
    co_await client.send(get("/upstream/llama/ws", "Connection: Upgrade\r\nUpgrade: echo\r\n") +
                         "early");
    const std::string head = co_await client.read_until("early");
    EXPECT_NE(head.find("101"), std::string::npos) << head;
    co_await client.send("later");
    const std::string echoed = co_await client.read_until("later");
    EXPECT_FALSE(echoed.empty());
    EXPECT_EQ(at.slot->word.in_flight(), 1u);
    client.close();
    EXPECT_TRUE(co_await eventually(t.loop, [&] { return at.slot->word.in_flight() == 0; }));
  }(thread, instance));
}

TEST(Gateway, RunTakesACommandEngineByItsTask) {
  Thread thread;
  FakeEngine& engine = thread.engine([](http::Exchange& exchange) -> asio::awaitable<void> {
    co_await begin_events(exchange);
    co_await say(exchange, "data: [DONE]\n\n");
    co_await end(exchange);
  });
  thread.publish_resident(thread.model("llama", Task::chat), engine.endpoint);
  thread.run([](Thread& t) -> asio::awaitable<void> {
    Answer answer = co_await ask(
        t, post("/ai/run/llama", R"({"messages":[]})", "Accept: text/event-stream\r\n"));
    EXPECT_EQ(answer.body, "data: [DONE]\n\n");
    Answer binary = co_await ask(t, post("/ai/run/llama", "x", "Content-Type: image/png\r\n"));
    EXPECT_EQ(binary.status, 415);
  }(thread));
  EXPECT_EQ(engine.seen[0].head.target, "/v1/chat/completions");
  EXPECT_EQ(
      engine.seen[0].body,
      R"({"model":"llama","stream":true,"stream_options":{"include_usage":true},"messages":[]})");
}

}  // namespace
}  // namespace omni::gateway::test
