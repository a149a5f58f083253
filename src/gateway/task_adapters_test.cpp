#include <gtest/gtest.h>

#include <cstring>

#include "gateway/base64.h"
#include "gateway/task_chat.h"
#include "gateway/task_embeddings.h"
#include "gateway/task_images.h"
#include "gateway/task_rerank.h"
#include "gateway/task_run.h"
#include "gateway/task_speech.h"
#include "gateway/task_transcription.h"

namespace omni::gateway {
namespace {

using engine::Item;
using engine::ItemKind;

const AnswerIdentity kIdentity{"req_1", "m", 1'700'000'000};

Item text(std::string data) { return {ItemKind::text, std::move(data)}; }
Item dict(std::string data) { return {ItemKind::json, std::move(data)}; }
Item bytes(std::string data) { return {ItemKind::bytes, std::move(data)}; }

struct Shown {
  TaskAdapter::Head head;
  std::string body;
  std::string error;
  ErrorCode code{};
};

Shown show(TaskAdapter& adapter, std::vector<Item> items, engine::ResponseStart start = {},
           const json::object& trailer = {}) {
  Shown shown;
  const auto failed = [&shown](const Error& error) {
    shown.error = error.message;
    shown.code = error.code;
    return shown;
  };
  TaskAdapter::FirstKind first;
  if (!items.empty()) first = items.front().kind;
  auto head = adapter.begin(start, first);
  if (!head.ok()) return failed(head.error());
  shown.head = *head;
  for (Item& item : items) {
    auto piece = adapter.item(std::move(item));
    if (!piece.ok()) return failed(piece.error());
    shown.body += *piece;
  }
  auto last = adapter.end(trailer);
  if (!last.ok()) return failed(last.error());
  shown.body += *last;
  return shown;
}

// The data of each event.
std::vector<std::string> events(const std::string& body) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = body.find("\n\n", at);
    EXPECT_EQ(body.compare(at, 6, "data: "), 0) << body.substr(at, 40);
    out.push_back(body.substr(at + 6, end - at - 6));
    at = end + 2;
  }
  return out;
}

json::object parse(const std::string& body) { return json::parse(body).as_object(); }

// ---- chat

TEST(ChatAdapter, MakesACompletionOfText) {
  auto adapter = chat_adapter(kIdentity, {});
  const Shown shown = show(*adapter, {text("Hel"), text("lo \"you\"")}, {},
                           {{"usage", {{"prompt_tokens", 3}, {"completion_tokens", 2}}}});
  EXPECT_FALSE(shown.head.streams);
  const json::object body = parse(shown.body);
  EXPECT_EQ(body.at("object"), "chat.completion");
  EXPECT_EQ(body.at("id"), "chatcmpl-req_1");
  EXPECT_EQ(body.at("model"), "m");
  const json::value& choice = body.at("choices").at(0);
  EXPECT_EQ(choice.at("message").at("role"), "assistant");
  EXPECT_EQ(choice.at("message").at("content"), "Hello \"you\"");
  EXPECT_EQ(choice.at("finish_reason"), "stop");
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 2);
  ASSERT_TRUE(adapter->usage());
  EXPECT_EQ(adapter->usage()->prompt_tokens, 3u);
}

TEST(ChatAdapter, StreamsChunksWithRoleReasonUsageAndDone) {
  auto adapter = chat_adapter(kIdentity, {false, true, true});
  const Shown shown = show(*adapter, {text("Hel"), text("lo")}, {},
                           {{"usage", {{"prompt_tokens", 3}, {"completion_tokens", 2}}}});
  EXPECT_TRUE(shown.head.events);
  const auto chunks = events(shown.body);
  ASSERT_EQ(chunks.size(), 6u);
  const auto delta = [&](std::size_t i) {
    return parse(chunks[i]).at("choices").at(0).at("delta");
  };
  EXPECT_EQ(parse(chunks[0]).at("object"), "chat.completion.chunk");
  EXPECT_EQ(delta(0).at("role"), "assistant");
  EXPECT_EQ(delta(1).at("content"), "Hel");
  EXPECT_EQ(delta(2).at("content"), "lo");
  EXPECT_EQ(parse(chunks[3]).at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_TRUE(delta(3).as_object().empty());
  EXPECT_EQ(parse(chunks[4]).at("usage").at("prompt_tokens"), 3);
  EXPECT_TRUE(parse(chunks[4]).at("choices").as_array().empty());
  EXPECT_EQ(chunks[5], "[DONE]");
}

TEST(ChatAdapter, StreamsNoUsageUnasked) {
  auto adapter = chat_adapter(kIdentity, {false, true, false});
  const Shown shown = show(*adapter, {text("x")}, {}, {{"usage", {{"prompt_tokens", 3}}}});
  EXPECT_EQ(shown.body.find("usage"), std::string::npos);
}

TEST(ChatAdapter, PassesToolCalls) {
  const std::string given =
      R"({"content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]})";
  const json::object body = parse(show(*chat_adapter(kIdentity, {}), {dict(given)}).body);
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "tool_calls");
  EXPECT_TRUE(body.at("choices").at(0).at("message").at("content").is_null());
  const auto chunks = events(show(*chat_adapter(kIdentity, {false, true}), {dict(given)}).body);
  EXPECT_EQ(parse(chunks[1]).at("choices").at(0).at("delta").at("tool_calls").at(0).at("index"), 0);
}

TEST(ChatAdapter, CompletesAnOpenAiDict) {
  const std::string given =
      R"({"choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":1}})";
  const json::object body = parse(show(*chat_adapter(kIdentity, {}), {dict(given)}).body);
  EXPECT_EQ(body.at("id"), "chatcmpl-req_1");
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "length");
  EXPECT_EQ(body.at("usage").at("prompt_tokens"), 1);
  const auto chunks = events(show(*chat_adapter(kIdentity, {false, true}), {dict(given)}).body);
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_EQ(parse(chunks[0]).at("choices").at(0).at("delta").at("content"), "x");
  EXPECT_EQ(chunks[1], "[DONE]");
}

TEST(ChatAdapter, CompletionHasTextInsteadOfMessages) {
  const json::object body = parse(show(*chat_adapter(kIdentity, {true}), {text("x")}).body);
  EXPECT_EQ(body.at("object"), "text_completion");
  EXPECT_EQ(body.at("choices").at(0).at("text"), "x");
  const auto chunks = events(show(*chat_adapter(kIdentity, {true, true}), {text("x")}).body);
  ASSERT_EQ(chunks.size(), 3u);
  EXPECT_EQ(parse(chunks[0]).at("choices").at(0).at("text"), "x");
  EXPECT_EQ(parse(chunks[1]).at("choices").at(0).at("finish_reason"), "stop");
}

TEST(ChatAdapter, AStreamWithoutTextIsStillComplete) {
  const auto chunks = events(show(*chat_adapter(kIdentity, {false, true}), {}).body);
  ASSERT_EQ(chunks.size(), 3u);
  EXPECT_EQ(chunks[2], "[DONE]");
}

TEST(ChatAdapter, RefusesWhatIsNoChat) {
  for (Item item : {dict("[1]"), dict("{\"x\":1}"), dict("{"), bytes("\xff")}) {
    const Shown shown = show(*chat_adapter(kIdentity, {}), {item});
    EXPECT_EQ(shown.code, ErrorCode::handler_failed) << item.data;
  }
}

TEST(ChatAdapter, PromptBecomesAMessage) {
  json::object parameters{{"prompt", json::array{"hi"}}, {"seed", 1}};
  ASSERT_TRUE(completion_as_chat(parameters).ok());
  EXPECT_EQ(parameters.at("messages").at(0).at("content"), "hi");
  EXPECT_FALSE(parameters.contains("prompt"));
  for (json::value prompt : {json::value(), json::value(1), json::value(json::array{1, 2}),
                             json::value(json::array{"a", "b"})}) {
    json::object wrong{{"prompt", prompt}};
    EXPECT_FALSE(completion_as_chat(wrong).ok());
  }
}

// ---- embeddings

TEST(Embeddings, InputBecomesAListOfStrings) {
  json::object one{{"input", "a"}};
  EXPECT_EQ(normalise_embeddings(one).value(), 1u);
  EXPECT_EQ(one.at("input"), json::value(json::array{"a"}));
  json::object two{{"input", json::array{"a", "b"}}};
  EXPECT_EQ(normalise_embeddings(two).value(), 2u);
  for (json::value input :
       {json::value(json::array{1, 2}), json::value(json::array{json::array{1}})}) {
    json::object tokens{{"input", input}};
    auto outcome = normalise_embeddings(tokens);
    ASSERT_FALSE(outcome.ok());
    EXPECT_NE(outcome.error().message.find("token arrays"), std::string::npos);
  }
  for (json::value input : {json::value(), json::value(json::array()), json::value(1)}) {
    json::object wrong{{"input", input}};
    EXPECT_FALSE(normalise_embeddings(wrong).ok());
  }
}

TEST(Embeddings, GivesOpenAisList) {
  auto adapter = embeddings_adapter(kIdentity, 2, false);
  const json::object body = parse(show(*adapter, {dict(R"({"embeddings":[[1,0.5],[2,-1e-3]]})")},
                                       {}, {{"usage", {{"prompt_tokens", 4}, {"total_tokens", 4}}}})
                                      .body);
  EXPECT_EQ(body.at("object"), "list");
  EXPECT_EQ(body.at("data").at(1).at("index"), 1);
  EXPECT_EQ(body.at("data").at(1).at("embedding").at(0), 2);
  EXPECT_EQ(body.at("usage").at("prompt_tokens"), 4);
  EXPECT_EQ(adapter->usage()->prompt_tokens, 4u);
}

TEST(Embeddings, PacksBase64AsLittleEndianFloats) {
  auto adapter = embeddings_adapter(kIdentity, 1, true);
  const json::object body = parse(show(*adapter, {dict(R"({"embeddings":[[1.0,-2]]})")}).body);
  EXPECT_EQ(body.at("data").at(0).at("embedding"), "AACAPwAAAMA=");
}

TEST(Embeddings, RefusesAnAnswerThatDoesNotFit) {
  for (const char* answer : {R"({"embeddings":[[1]]})", "{}", R"({"embeddings":[1,2]})",
                             R"({"embeddings":[["a"],["b"]]})"}) {
    const Shown shown = show(*embeddings_adapter(kIdentity, 2, true), {dict(answer)});
    EXPECT_EQ(shown.code, ErrorCode::handler_failed) << answer;
  }
}

TEST(Base64, PadsAsTheRfcSays) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("\xff\xfe\xfd\xfc"), "//79/A==");
}

// ---- speech to text

const char* kTranscript =
    R"({"text":" Hello you.","segments":[{"start":0,"end":1.5,"text":" Hello"},{"start":1.5,"end":3661.0427,"text":" you.","x":1}],"language":"en"})";

std::string transcript(TranscriptFormat format, std::vector<Item> items, bool stream = false) {
  const Shown shown = show(*transcription_adapter(kIdentity, format, stream), std::move(items));
  return shown.error.empty() ? shown.body : "error: " + shown.error;
}

TEST(Transcription, RendersEveryFormat) {
  EXPECT_EQ(transcript(TranscriptFormat::json, {dict(kTranscript)}), R"({"text":"Hello you."})");
  EXPECT_EQ(transcript(TranscriptFormat::text, {dict(kTranscript)}), "Hello you.\n");
  EXPECT_EQ(transcript(TranscriptFormat::srt, {dict(kTranscript)}),
            "1\n00:00:00,000 --> 00:00:01,500\nHello\n\n"
            "2\n00:00:01,500 --> 01:01:01,043\nyou.\n\n");
  EXPECT_EQ(transcript(TranscriptFormat::vtt, {dict(kTranscript)}),
            "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHello\n\n"
            "00:00:01.500 --> 01:01:01.043\nyou.\n\n");
  const json::object verbose =
      parse(transcript(TranscriptFormat::verbose_json, {dict(kTranscript)}));
  EXPECT_EQ(verbose.at("language"), "en");
  EXPECT_EQ(verbose.at("duration"), 3661.0427);
  EXPECT_EQ(verbose.at("segments").at(1).at("id"), 1);
  EXPECT_EQ(verbose.at("segments").at(1).at("x"), 1);
}

TEST(Transcription, JoinsYieldedSegments) {
  const std::vector<Item> segments{dict(R"({"start":0,"end":1,"text":"Hello"})"),
                                   dict(R"({"start":1,"end":2,"text":"you."})")};
  EXPECT_EQ(transcript(TranscriptFormat::json, segments), R"({"text":"Hello you."})");
  const auto shown = events(transcript(TranscriptFormat::json, segments, true));
  ASSERT_EQ(shown.size(), 3u);
  EXPECT_EQ(shown[0], R"({"type":"transcript.text.delta","delta":"Hello"})");
  EXPECT_EQ(shown[1], R"({"type":"transcript.text.delta","delta":" you."})");
  EXPECT_EQ(shown[2], R"({"type":"transcript.text.done","text":"Hello you."})");
}

TEST(Transcription, SubtitlesNeedTimes) {
  EXPECT_NE(transcript(TranscriptFormat::srt, {text("Hello")}).find("without times"),
            std::string::npos);
  EXPECT_NE(transcript(TranscriptFormat::json, {dict(R"({"start":-1,"end":1,"text":""})")})
                .find("must be seconds"),
            std::string::npos);
}

TEST(Transcription, ReadsTheForm) {
  auto options = transcription_options({{"model", "m"},
                                        {"response_format", "srt"},
                                        {"stream", "true"},
                                        {"temperature", "0.25"},
                                        {"timestamp_granularities[]", "word"},
                                        {"timestamp_granularities[]", "segment"},
                                        {"language", "en"}});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->format, TranscriptFormat::srt);
  EXPECT_TRUE(options->stream);
  EXPECT_EQ(
      json::serialize(options->parameters),
      R"({"temperature":2.5E-1,"timestamp_granularities":["word","segment"],"language":"en"})");
  EXPECT_FALSE(transcription_options({{"response_format", "mp3"}}).ok());
  EXPECT_FALSE(transcription_options({{"temperature", "warm"}}).ok());
}

// ---- rerank

json::object rerank_request(std::string_view members) {
  return parse("{\"query\":\"food\",\"documents\":[\"stock\",{\"text\":\"bread\"},\"eat\"]" +
               std::string(members) + "}");
}

TEST(Rerank, TakesTextsAndDicts) {
  json::object parameters = rerank_request(R"(,"top_n":9,"return_documents":true)");
  auto options = normalise_rerank(parameters);
  ASSERT_TRUE(options.ok()) << options.error().message;
  EXPECT_EQ(options->top_n, 3u);
  EXPECT_TRUE(options->return_documents);
  EXPECT_EQ(json::serialize(parameters),
            R"({"query":"food","documents":["stock","bread","eat"],"top_n":3})");
  EXPECT_EQ(json::serialize(as_embeddings(parameters)),
            R"({"input":["food","stock","bread","eat"]})");
  for (std::string_view wrong :
       {R"({"documents":["a"]})", R"({"query":1,"documents":["a"]})", R"({"query":"q"})",
        R"({"query":"q","documents":[]})", R"({"query":"q","documents":[1]})",
        R"({"query":"q","documents":[{"txt":"a"}]})", R"({"query":"q","documents":"a"})",
        R"({"query":"q","documents":["a"],"top_n":0})",
        R"({"query":"q","documents":["a"],"top_n":1.5})",
        R"({"query":"q","documents":["a"],"return_documents":"yes"})"}) {
    json::object request = parse(std::string(wrong));
    EXPECT_FALSE(normalise_rerank(request).ok()) << wrong;
  }
}

TEST(Rerank, SortsCutsAndShowsDocuments) {
  json::object parameters = rerank_request(R"(,"top_n":2,"return_documents":true)");
  auto options = normalise_rerank(parameters);
  const Shown shown = show(*rerank_adapter(kIdentity, *options),
                           {dict(R"({"results":[{"index":0,"score":-1},{"index":2,"score":0.5},
                     {"index":1,"score":3}],"usage":{"total_tokens":7}})")});
  const json::object body = parse(shown.body);
  EXPECT_EQ(body.at("model"), "m");
  EXPECT_EQ(body.at("usage").at("total_tokens"), 7);
  EXPECT_EQ(json::serialize(body.at("results")),
            R"([{"index":1,"relevance_score":3E0,"document":{"text":"bread"}},)"
            R"({"index":2,"relevance_score":5E-1,"document":{"text":"eat"}}])");
}

TEST(Rerank, RefusesResultsThatDoNotFit) {
  json::object parameters = rerank_request("");
  auto options = normalise_rerank(parameters);
  for (const char* wrong :
       {R"({"scores":[1,2,3]})", R"({"results":[{"index":3,"score":1}]})",
        R"({"results":[{"index":0,"score":1},{"index":0,"score":1}]})",
        R"({"results":[{"index":0}]})", R"({"results":[{"index":-1,"score":1}]})",
        R"({"results":[{"index":0,"score":"high"}]})", R"({"results":[1]})"}) {
    const Shown shown = show(*rerank_adapter(kIdentity, *options), {dict(wrong)});
    EXPECT_EQ(shown.code, ErrorCode::handler_failed) << wrong;
  }
  EXPECT_EQ(show(*rerank_adapter(kIdentity, *options), {}).code, ErrorCode::handler_failed);
}

TEST(Rerank, ComparesTheVectorsOfAnEmbeddingsModel) {
  json::object parameters = rerank_request("");
  auto options = normalise_rerank(parameters);
  const Shown shown = show(*similarity_adapter(kIdentity, *options),
                           {dict(R"({"embeddings":[[2,0],[0,1],[4,0],[1,1]]})")});
  const json::object body = parse(shown.body);
  const json::array& results = body.at("results").as_array();
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].at("index"), 1);
  EXPECT_DOUBLE_EQ(results[0].at("relevance_score").as_double(), 1);
  EXPECT_EQ(results[1].at("index"), 2);
  EXPECT_NEAR(results[1].at("relevance_score").as_double(), 0.7071, 1e-4);
  EXPECT_DOUBLE_EQ(results[2].at("relevance_score").as_double(), 0);
  for (const char* wrong : {R"({"embeddings":[[1]]})", R"({"embeddings":[[1],[1],[1],[1,2]]})",
                            R"({"embeddings":[[1],[1],[1],["x"]]})", R"({})"}) {
    EXPECT_EQ(show(*similarity_adapter(kIdentity, *options), {dict(wrong)}).code,
              ErrorCode::handler_failed)
        << wrong;
  }
}

// ---- images

TEST(Images, GivesEachImageAsBase64OrDataUrl) {
  const Shown plain = show(*images_adapter(kIdentity, {2, false}), {bytes("one"), bytes("two")});
  EXPECT_EQ(plain.body,
            R"({"created":1700000000,"data":[{"b64_json":"b25l"},{"b64_json":"dHdv"}]})");
  const Shown url = show(*images_adapter(kIdentity, {1, true}), {bytes("one")},
                         {200, "image/webp", false, {}}, {{"usage", {{"total_tokens", 1}}}});
  EXPECT_EQ(url.body, R"({"created":1700000000,"data":[{"url":"data:image/webp;base64,b25l"}],)"
                      R"("usage":{"total_tokens":1}})");
}

TEST(Images, RefusesWhatIsNoImageOrNotEnough) {
  EXPECT_EQ(show(*images_adapter(kIdentity, {2, false}), {bytes("one")}).code,
            ErrorCode::handler_failed);
  EXPECT_EQ(show(*images_adapter(kIdentity, {1, false}), {}).code, ErrorCode::handler_failed);
  EXPECT_EQ(show(*images_adapter(kIdentity, {1, false}), {text("one")}).code,
            ErrorCode::handler_failed);
  EXPECT_EQ(
      show(*images_adapter(kIdentity, {1, false}), {bytes("x")}, {200, "audio/wav", false, {}})
          .code,
      ErrorCode::handler_failed);
}

TEST(Images, ChecksTheRequest) {
  json::object parameters = parse(R"({"prompt":"a hill","size":"64x32","response_format":"url"})");
  auto options = normalise_image_generation(parameters);
  ASSERT_TRUE(options.ok()) << options.error().message;
  EXPECT_TRUE(options->as_url);
  EXPECT_EQ(json::serialize(parameters), R"({"prompt":"a hill","size":"64x32","n":1})");
  for (std::string_view wrong :
       {R"({})", R"({"prompt":1})", R"({"prompt":"a","n":0})", R"({"prompt":"a","n":11})",
        R"({"prompt":"a","n":"two"})", R"({"prompt":"a","size":"64"})",
        R"({"prompt":"a","size":"0x8"})", R"({"prompt":"a","size":"8x-8"})",
        R"({"prompt":"a","size":64})", R"({"prompt":"a","response_format":"gif"})"}) {
    json::object request = parse(std::string(wrong));
    EXPECT_FALSE(normalise_image_generation(request).ok()) << wrong;
  }
}

TEST(Images, ReadsTheFormOfAnEdit) {
  Form form;
  form.fields = {{"model", "m"}, {"prompt", "2"}, {"n", "2"}, {"strength", "0.5"}, {"size", "8x8"}};
  form.files.push_back({"image[]", "a.png", "image/png", nullptr});
  json::object parameters;
  auto options = normalise_image_edit(form, parameters);
  ASSERT_TRUE(options.ok()) << options.error().message;
  EXPECT_EQ(options->count, 2u);
  EXPECT_EQ(form.files[0].name, "image");
  EXPECT_EQ(json::serialize(parameters), R"({"prompt":"2","n":2,"strength":5E-1,"size":"8x8"})");
}

// ---- text to speech

std::string wav(std::string samples) {
  std::string out = std::string("RIFF") + std::string(4, '\0') + "WAVEfmt " +
                    std::string("\x02\0\0\0ab", 6) + "LIST" + std::string("\x01\0\0\0x\0", 6) +
                    "data";
  out += std::string(4, '\xff') + samples;
  return out;
}

TEST(Speech, WavPassesAsItComes) {
  const Shown shown =
      show(*speech_adapter(kIdentity, {"", false}), {bytes("a"), bytes("b")}, {200, "", true, {}});
  EXPECT_EQ(shown.head.content_type, "audio/wav");
  EXPECT_TRUE(shown.head.streams);
  EXPECT_EQ(shown.body, "ab");
}

TEST(Speech, PcmIsWavWithoutItsHead) {
  const std::string file = wav("samples");
  for (std::size_t step = 1; step <= file.size(); ++step) {
    std::vector<Item> items;
    for (std::size_t at = 0; at < file.size(); at += step)
      items.push_back(bytes(file.substr(at, step)));
    const Shown shown = show(*speech_adapter(kIdentity, {"pcm", false}), items);
    EXPECT_EQ(shown.head.content_type, "audio/pcm");
    EXPECT_EQ(shown.body, "samples") << step;
  }
}

TEST(Speech, RefusesAFormatTheHandlerDoesNotMake) {
  const Shown refused = show(*speech_adapter(kIdentity, {"mp3", false}), {bytes("x")});
  EXPECT_EQ(refused.code, ErrorCode::invalid_request);
  const Shown made = show(*speech_adapter(kIdentity, {"mp3", false}), {bytes("x")},
                          {200, "audio/mpeg", false, {}});
  EXPECT_EQ(made.body, "x");
}

TEST(Speech, EventsCarryBase64) {
  const auto shown = events(show(*speech_adapter(kIdentity, {"wav", true}), {bytes("foo")}).body);
  ASSERT_EQ(shown.size(), 2u);
  EXPECT_EQ(shown[0], R"({"type":"speech.audio.delta","audio":"Zm9v"})");
  EXPECT_EQ(shown[1], R"({"type":"speech.audio.done"})");
}

TEST(Speech, ChecksTheBody) {
  json::object good{{"input", "hi"}, {"response_format", "pcm"}, {"stream_format", "sse"}};
  auto options = normalise_speech(good);
  ASSERT_TRUE(options.ok());
  EXPECT_TRUE(options->events);
  EXPECT_EQ(json::serialize(good), R"({"input":"hi","format":"pcm"})");
  for (json::object wrong : {json::object{}, json::object{{"input", ""}},
                             json::object{{"input", "x"}, {"stream_format", "y"}},
                             json::object{{"input", "x"}, {"response_format", 1}}}) {
    EXPECT_FALSE(normalise_speech(wrong).ok());
  }
}

// ---- /ai/run

TEST(Run, PassesPlainAnswersByKind) {
  EXPECT_EQ(show(*run_adapter(false), {dict("{\"a\":1}")}).head.content_type, "application/json");
  EXPECT_EQ(show(*run_adapter(false), {text("x")}).head.content_type, "text/plain; charset=utf-8");
  EXPECT_EQ(show(*run_adapter(false), {bytes("x")}).head.content_type, "application/octet-stream");
  EXPECT_EQ(
      show(*run_adapter(false), {bytes("x")}, {200, "image/png", false, {}}).head.content_type,
      "image/png");
}

TEST(Run, StreamsAnIterator) {
  const engine::ResponseStart streaming{200, "", true, {}};
  EXPECT_EQ(show(*run_adapter(false), {dict("1"), dict("{}")}, streaming).body, "[1,{}]");
  EXPECT_EQ(show(*run_adapter(false), {text("a"), text("b")}, streaming).body, "ab");
  EXPECT_EQ(show(*run_adapter(false), {text("a"), bytes("b")}, streaming).code,
            ErrorCode::handler_failed);
  const auto shown =
      events(show(*run_adapter(true), {dict("{\n}"), text("a"), bytes("f")}, streaming).body);
  EXPECT_EQ(shown, (std::vector<std::string>{"{ }", R"({"response":"a"})", R"({"bytes":"Zg=="})",
                                             "[DONE]"}));
}

}  // namespace
}  // namespace omni::gateway
