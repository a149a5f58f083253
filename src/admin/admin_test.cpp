#include "admin/admin.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <fstream>

#include "admin/fake_node.h"
#include "http/client.h"
#include "http/error_body.h"

namespace omni::admin {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
namespace json = boost::json;

constexpr auto kPatience = 30s;  // only a machine that does nothing else would do with less

// A real server and client on one loop, over a Unix socket.
class AdminTest : public testing::Test {
 protected:
  AdminTest() : folder_(make_folder()), endpoint_(Endpoint::unix_at(folder_ / "admin.sock")) {
    node_.node = {.version = "0.1.0", .pid = 7, .listen = {"127.0.0.1:8484"}};
    node_.node.devices = {{.name = "host", .budget_bytes = 480 << 20, .granted_bytes = 92 << 20}};
    node_.model_list = {{.name = "minilm",
                         .task = "embeddings",
                         .engine = "python",
                         .state = "stopped",
                         .aliases = {"text-embedding-3-small", "org/minilm:v2"},
                         .memory_bytes = 92 << 20}};
    node_.instance_list = {
        {.id = "12", .model = "minilm", .state = "resident", .pid = 99, .pss_bytes = 5}};
    node_.log_file = folder_ / "minilm.log";
    Result<http::Listener> listener = http::listen_on(endpoint_);
    EXPECT_TRUE(listener.ok()) << listener.error().message;
    server_.serve(*std::move(listener));
  }
  ~AdminTest() override { fs::remove_all(folder_); }

  static fs::path make_folder() {
    char pattern[] = "/tmp/omni-admin-XXXXXX";
    return ::mkdtemp(pattern);
  }

  template <typename T>
  asio::awaitable<void> keep_result(asio::awaitable<T> task, std::optional<T>& result) {
    T value = co_await std::move(task);
    result.emplace(std::move(value));
    loop_.stop();
  }
  // Runs the loop until the task has its result.
  template <typename T>
  T await(asio::awaitable<T> task) {
    std::optional<T> result;
    asio::co_spawn(loop_, keep_result(std::move(task), result), asio::detached);
    loop_.restart();
    loop_.run_for(kPatience);
    if (!result) throw std::runtime_error("no result in time");
    return *std::move(result);
  }
  void run_until(const std::function<bool()>& done) {
    const TimePoint deadline = Clock::now() + kPatience;
    loop_.restart();
    while (!done() && Clock::now() < deadline) loop_.run_one_for(100ms);
  }

  http::Response request(std::string method, std::string target) {
    http::Headers headers;
    headers.set("Host", "localhost");
    headers.set("Content-Length", "0");
    Result<http::Response> response =
        await(client_.request(endpoint_, method, target, headers, {}, kPatience));
    EXPECT_TRUE(response.ok()) << response.error().message;
    return response.ok() ? *std::move(response) : http::Response{};
  }
  json::object get(std::string target) {
    const http::Response response = request("GET", std::move(target));
    EXPECT_EQ(response.status, 200) << response.body;
    return json::parse(response.body).as_object();
  }
  Error error_of(std::string method, std::string target) {
    const http::Response response = request(std::move(method), std::move(target));
    const Error error = http::parse_error_body(response.status, response.body);
    EXPECT_EQ(response.status, error.info().http_status) << response.body;
    return error;
  }

  // A stream's bytes until they hold `text`.
  asio::awaitable<Result<std::string>> read_until(http::Call& call, std::string text) {
    std::string seen;
    for (std::size_t searched = 0; seen.find(text, searched) == seen.npos;) {
      searched = seen.size() - std::min(seen.size(), text.size());
      CO_TRY(const std::string_view data, co_await call.read_some());
      if (data.empty()) co_return seen + "[end]";
      seen += data;
    }
    co_return seen;
  }
  std::string read(http::Call& call, std::string text) {
    Result<std::string> seen = await(read_until(call, std::move(text)));
    return seen.ok() ? *std::move(seen) : seen.error().message;
  }
  std::unique_ptr<http::Call> open(std::string target, std::string last_event_id = {}) {
    http::Headers headers;
    headers.set("Host", "localhost");
    if (!last_event_id.empty()) headers.set("Last-Event-ID", last_event_id);
    std::unique_ptr<http::Call> call = client_.call(endpoint_, {kPatience});
    const std::string head = http::encode_head("GET", target, headers);
    const Result<void> sent = await(call->send(head, {}));
    EXPECT_TRUE(sent.ok());
    const Result<http::ResponseHead> answer = await(call->read_head());
    EXPECT_TRUE(answer.ok() && answer->status == 200);
    return call;
  }

  fs::path folder_;
  Endpoint endpoint_;
  asio::io_context loop_{1};
  FakeNode node_{loop_};
  http::Server server_{loop_, http::ServerOptions{},
                       [this](http::Exchange& exchange) { return handle(node_, exchange); }};
  http::Client client_{loop_};
};

TEST_F(AdminTest, ShowsNodeModelsAndInstances) {
  EXPECT_EQ(
      json::serialize(get("/admin/status")),
      R"({"version":"0.1.0","pid":7,"uptime_seconds":0E0,"rss_bytes":0,)"
      R"("listen":["127.0.0.1:8484"],)"
      R"("devices":[{"name":"host","budget_bytes":503316480,"granted_bytes":96468992}],"reload_error":""})");
  const json::object models = get("/admin/models");
  EXPECT_EQ(models.at("models").as_array().size(), 1u);
  EXPECT_EQ(json::serialize(models.at("models").as_array()[0]),
            R"({"name":"minilm","task":"embeddings","engine":"python","state":"stopped",)"
            R"("aliases":["text-embedding-3-small","org/minilm:v2"],"pinned":false,"waiting":0,)"
            R"("in_flight":0,"requests":0,"memory_bytes":96468992,"load_seconds":null,)"
            R"("version":"","last_error":""})");
  EXPECT_EQ(get("/admin/instances").at("instances").as_array()[0].at("pid"), 99);
}

TEST_F(AdminTest, MeasuresSharesOfMemoryOnlyWhenAsked) {
  const auto pss = [&](std::string target) {
    return get(std::move(target)).at("instances").as_array()[0].at("pss_bytes").as_int64();
  };
  EXPECT_EQ(pss("/admin/instances"), 0);
  EXPECT_EQ(pss("/admin/instances?pss=1"), 5);
}

TEST_F(AdminTest, FindsAModelByAliasEvenWithASlash) {
  EXPECT_EQ(get("/admin/models/text-embedding-3-small").at("name"), "minilm");
  EXPECT_EQ(get("/admin/models/org%2Fminilm%3Av2").at("name"), "minilm");
}

TEST_F(AdminTest, LoadsAndStopsByNameAndAnswersWithTheNewState) {
  const http::Response loaded = request("POST", "/admin/models/text-embedding-3-small/load");
  EXPECT_EQ(loaded.status, 200);
  EXPECT_EQ(json::parse(loaded.body).at("state"), "resident");
  EXPECT_EQ(request("POST", "/admin/models/minilm/stop").status, 200);
  EXPECT_EQ(request("POST", "/admin/models/minilm/unload").status, 200);
  EXPECT_EQ(node_.history, (std::vector<std::string>{"load minilm", "stop minilm", "stop minilm"}));
}

TEST_F(AdminTest, PassesOnWhyALoadFailed) {
  node_.failure = Error{ErrorCode::load_failed, "exit code 1"};
  const Error error = error_of("POST", "/admin/models/minilm/load");
  EXPECT_EQ(error.code, ErrorCode::load_failed);
  EXPECT_EQ(error.message, "exit code 1");
}

TEST_F(AdminTest, RefusesWhatItDoesNotKnow) {
  const Error model = error_of("POST", "/admin/models/minilmm/load");
  EXPECT_EQ(model.code, ErrorCode::model_not_found);
  EXPECT_EQ(model.message, "there is no model \"minilmm\"; did you mean \"minilm\"?");
  EXPECT_EQ(error_of("GET", "/admin/nothing").code, ErrorCode::not_found);
  EXPECT_EQ(error_of("GET", "/admin/models/a/b/c").code, ErrorCode::not_found);
  EXPECT_EQ(error_of("GET", "/admin/models/%zz").code, ErrorCode::invalid_request);
  EXPECT_EQ(error_of("GET", "/admin/instances?pss=yes").code, ErrorCode::invalid_request);
  EXPECT_EQ(error_of("GET", "/admin/models/minilm/logs?lines=-1").code, ErrorCode::invalid_request);
  const http::Response method = request("GET", "/admin/shutdown");
  EXPECT_EQ(method.status, 405);
  EXPECT_EQ(method.headers.get("Allow"), "POST");
}

TEST_F(AdminTest, ReloadTellsWhatChangedOrWhyNothingDid) {
  node_.reload_report = {.added = {"ocr"}, .changed = {"minilm"}, .unchanged = 3};
  EXPECT_EQ(request("POST", "/admin/reload").body,
            R"({"added":["ocr"],"removed":[],"changed":["minilm"],"unchanged":3,)"
            R"("at_next_start":[]})");
  node_.failure = Error{ErrorCode::invalid_config, "omni.toml:1: lissten: unknown key"};
  EXPECT_EQ(error_of("POST", "/admin/reload").code, ErrorCode::invalid_config);
}

TEST_F(AdminTest, BeginsAShutdownAfterTheAnswer) {
  EXPECT_EQ(request("POST", "/admin/shutdown").status, 202);
  run_until([this] { return node_.stopping(); });
  EXPECT_TRUE(node_.stopping());
}

TEST_F(AdminTest, GivesTheLastLinesOfALog) {
  std::ofstream(node_.log_file) << "one\ntwo\nthree\n";
  const http::Response response = request("GET", "/admin/models/minilm/logs?lines=2");
  EXPECT_EQ(response.body, "two\nthree\n");
  EXPECT_EQ(response.headers.get("Content-Type"), "text/plain; charset=utf-8");
}

TEST_F(AdminTest, FollowsALogOverItsRotationUntilTheNodeStops) {
  std::ofstream(node_.log_file) << "one\ntwo\n";
  std::unique_ptr<http::Call> call = open("/admin/models/minilm/logs?follow=1&lines=1");
  EXPECT_EQ(read(*call, "two\n"), "two\n");
  std::ofstream(node_.log_file, std::ios::app) << "three\n";
  fs::rename(node_.log_file, node_.log_file + ".1");
  std::ofstream(node_.log_file) << "four\n";
  EXPECT_EQ(read(*call, "four\n"), "three\nfour\n");
  node_.shut_down();
  EXPECT_EQ(read(*call, "five\n"), "[end]");
}

TEST_F(AdminTest, EndsAFollowWhenItsClientLeaves) {
  std::ofstream(node_.log_file) << "one\n";
  std::unique_ptr<http::Call> call = open("/admin/models/minilm/logs?follow=1");
  EXPECT_EQ(server_.active_exchanges(), 1u);
  call.reset();
  run_until([this] { return server_.active_exchanges() == 0; });
  EXPECT_EQ(server_.active_exchanges(), 0u);
}

// A log of more bytes than all buffers hold, and a client that reads none of them.
TEST_F(AdminTest, AReaderThatIsSlowDisturbsNobody) {
  std::ofstream(node_.log_file) << std::string(8 << 20, 'x') + '\n';
  std::unique_ptr<http::Call> slow = open("/admin/models/minilm/logs?follow=1");
  EXPECT_EQ(get("/admin/status").at("pid"), 7);
  std::unique_ptr<http::Call> fast = open("/admin/models/minilm/logs");
  EXPECT_EQ(read(*fast, "\n").size(), (8u << 20) + 1);
  EXPECT_EQ(read(*slow, "\n").size(), (8u << 20) + 1);
}

TEST_F(AdminTest, StreamsEventsWithIdsAndResumesAfterTheLastOne) {
  node_.add_event({{"type", "instance_state"}, {"state", "starting"}});
  node_.add_event({{"type", "instance_state"}, {"state", "resident"}});
  std::unique_ptr<http::Call> call = open("/admin/events");
  EXPECT_EQ(read(*call, "resident\",\"id\":2}\n\n"),
            "id: 1\ndata: {\"type\":\"instance_state\",\"state\":\"starting\",\"id\":1}\n\n"
            "id: 2\ndata: {\"type\":\"instance_state\",\"state\":\"resident\",\"id\":2}\n\n");
  node_.add_event({{"type", "model_stopped"}});
  EXPECT_EQ(read(*call, "}\n\n"), "id: 3\ndata: {\"type\":\"model_stopped\",\"id\":3}\n\n");

  std::unique_ptr<http::Call> resumed = open("/admin/events", "2");
  EXPECT_EQ(read(*resumed, "}\n\n"), "id: 3\ndata: {\"type\":\"model_stopped\",\"id\":3}\n\n");
  std::unique_ptr<http::Call> by_query = open("/admin/events?after=2");
  EXPECT_EQ(read(*by_query, "}\n\n"), "id: 3\ndata: {\"type\":\"model_stopped\",\"id\":3}\n\n");
}

TEST_F(AdminTest, EndsEventsWhenTheNodeStops) {
  std::unique_ptr<http::Call> call = open("/admin/events");
  node_.shut_down();
  EXPECT_TRUE(read(*call, "never").ends_with("[end]"));
}

}  // namespace
}  // namespace omni::admin
