// The channel against the real runtime in a process of its own.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <boost/json.hpp>

#include "base/files.h"
#include "engine/test_support.h"

namespace omni::engine {
namespace {

using namespace std::chrono_literals;
namespace json = boost::json;

class PythonRuntime : public testing::Test {
 protected:
  ~PythonRuntime() override { kill_runtime(); }

  // Starts the runtime on this handler; returns at once.
  void start(std::string_view handler, int concurrency = 1) {
    ASSERT_TRUE(write_file_atomic(folder_.path() / "handler.py", handler).ok());
    const std::string socket_path = (folder_.path() / "model.sock").string();
    Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    ASSERT_LT(socket_path.size(), sizeof(address.sun_path));
    socket_path.copy(address.sun_path, socket_path.size());
    ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(::listen(listener.get(), 16), 0);
    endpoint_ = Endpoint::unix_at(socket_path);

    const std::string settings = json::serialize(json::object{
        {"model", "tested"}, {"model_dir", folder_.path().string()}, {"concurrency", concurrency}});
    const std::string log = (folder_.path() / "log").string();
    std::vector<std::string> words{"/usr/bin/env", "python3", "-m", "omni_runtime", settings};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    std::string path = "PYTHONPATH=" OMNI_PYTHON_DIR;
    std::string programs = "PATH=/usr/bin:/usr/local/bin:/bin";
    std::string bytecode = "PYTHONDONTWRITEBYTECODE=1";
    std::array<char*, 4> env{path.data(), programs.data(), bytecode.data(), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), O_WRONLY | O_CREAT, 0600);
    posix_spawn_file_actions_adddup2(&actions, 2, 1);
    posix_spawn_file_actions_adddup2(&actions, listener.get(), 3);
    const int status = ::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), env.data());
    posix_spawn_file_actions_destroy(&actions);
    ASSERT_EQ(status, 0);
  }

  void kill_runtime() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

  // Runs `test` with a channel to the runtime.
  void with_channel(
      std::function<asio::awaitable<void>(std::shared_ptr<ModelChannel> channel)> test) {
    const auto body = [&]() -> asio::awaitable<void> {
      auto channel = co_await ModelChannel::connect(loop_, endpoint_, 20s);
      EXPECT_TRUE(channel.ok()) << channel.error().message
                                << read_file(folder_.path() / "log").value();
      if (!channel) co_return;
      co_await test(*channel);
    };
    run(loop_, body());
  }

  asio::io_context loop_;
  TempFolder folder_;
  Endpoint endpoint_;
  pid_t pid_ = 0;
};

Fd make_file(std::string_view content) {
  Fd file(::memfd_create("part", MFD_CLOEXEC));
  EXPECT_EQ(::pwrite(file.get(), content.data(), content.size(), 0),
            static_cast<ssize_t>(content.size()));
  return file;
}

TEST_F(PythonRuntime, AnswersJsonWithUsage) {
  start(R"(
from omni import Response
def handle_request(request, context):
    return Response({"echo": request["text"], "task": request.task, "id": request.id, "stream": request.stream},
                    usage={"total_tokens": 5}, headers={"X-A": "b"}, status=201)
)");
  with_channel([](std::shared_ptr<ModelChannel> channel) -> asio::awaitable<void> {
    ModelRequest request = make_request({{"text", "grüße \U0001F600"}});
    request.task = Task::chat;
    auto call = channel->call(std::move(request), 20s);
    EXPECT_FALSE(call->answered());
    const Answer answer = co_await read_all(*call);
    EXPECT_FALSE(answer.error) << answer.error->message;
    EXPECT_TRUE(call->answered());
    EXPECT_EQ(answer.start.status, 201);
    EXPECT_FALSE(answer.start.streaming);
    EXPECT_EQ(answer.start.headers.at(0), (std::pair<std::string, std::string>("X-A", "b")));
    EXPECT_EQ(
        answer.text(),
        "{\"echo\":\"grüße \U0001F600\",\"task\":\"chat\",\"id\":\"req-1\",\"stream\":false}");
    EXPECT_EQ(json::serialize(call->trailer()), R"({"usage":{"total_tokens":5}})");
  });
}

TEST_F(PythonRuntime, StreamsItemsOfEveryKind) {
  start(R"(
def handle_request(request, context):
    yield "text"
    yield {"n": 1}
    yield b"\x00\x01"
)");
  with_channel([](std::shared_ptr<ModelChannel> channel) -> asio::awaitable<void> {
    auto call = channel->call(make_request(), 20s);
    const Answer answer = co_await read_all(*call);
    EXPECT_TRUE(answer.start.streaming);
    EXPECT_EQ(answer.items.size(), 3u);
    if (answer.items.size() != 3) co_return;
    EXPECT_EQ(answer.items[0].kind, ItemKind::text);
    EXPECT_EQ(answer.items[1].kind, ItemKind::json);
    EXPECT_EQ(answer.items[1].data, R"({"n":1})");
    EXPECT_EQ(answer.items[2].kind, ItemKind::bytes);
    EXPECT_EQ(answer.items[2].data, std::string("\0\1", 2));
  });
}

TEST_F(PythonRuntime, GetsFilesWithTheirOwnOffset) {
  start(R"(
def handle_request(request, context):
    file = request.file("file")
    return {"data": file.read().decode(), "again": file.seek(0) or file.read().decode(),
            "filename": file.filename, "size": file.size, "files": len(request.files)}
)");
  with_channel([](std::shared_ptr<ModelChannel> channel) -> asio::awaitable<void> {
    Fd original = make_file("RIFF");
    ModelRequest request = make_request();
    for (const char* name : {"other", "file"}) {
      request.files.push_back({.name = name,
                               .filename = "a.wav",
                               .content_type = "audio/wav",
                               .size = 4,
                               .content = Fd(::dup(original.get()))});
    }
    auto call = channel->call(std::move(request), 20s);
    const Answer answer = co_await read_all(*call);
    EXPECT_EQ(answer.text(),
              R"({"data":"RIFF","again":"RIFF","filename":"a.wav","size":4,"files":2})");
    EXPECT_EQ(::lseek(original.get(), 0, SEEK_CUR), 0) << "a replay begins at the beginning";
  });
}

TEST_F(PythonRuntime, GetsLargeRequestsAndBodiesAndGivesLargeAnswers) {
  start(R"(
def handle_request(request, context):
    if request.content_type: return request.body[::-1]
    return {"n": len(request["input"])}
)");
  with_channel([](std::shared_ptr<ModelChannel> channel) -> asio::awaitable<void> {
    json::array input;
    for (int i = 0; i < 40'000; ++i) input.push_back("sentence");
    auto large = channel->call(make_request({{"input", std::move(input)}}), 20s);

    ModelRequest raw = make_request();
    raw.raw = true;
    raw.content_type = "application/octet-stream";
    for (int i = 0; i < 3'000'000; ++i) raw.body.push_back(static_cast<char>(i % 251));
    std::string expected(raw.body.rbegin(), raw.body.rend());
    auto bytes = channel->call(std::move(raw), 20s);

    const Answer first = co_await read_all(*large);
    EXPECT_EQ(first.text(), R"({"n":40000})");
    const Answer second = co_await read_all(*bytes);
    EXPECT_EQ(second.items.size(), 1u);
    EXPECT_TRUE(second.text() == expected);
  });
}

TEST_F(PythonRuntime, TellsTheHandlersErrorsApart) {
  start(R"(
from omni import InvalidRequest
def handle_request(request, context):
    if request["kind"] == "client": raise InvalidRequest("voice is unknown", param="voice")
    if request["kind"] == "half": raise ValueError("half a character: \ud800")
    raise RuntimeError("boom")
)");
  with_channel([](std::shared_ptr<ModelChannel> channel) -> asio::awaitable<void> {
    auto client = channel->call(make_request({{"kind", "client"}}), 20s);
    const Answer first = co_await read_all(*client);
    EXPECT_EQ(first.error->code, ErrorCode::invalid_request);
    EXPECT_EQ(first.error->message, "voice is unknown");
    EXPECT_EQ(client->error_param(), "voice");
    EXPECT_FALSE(client->answered());
    auto handler = channel->call(make_request({{"kind", "handler"}}), 20s);
    const Answer second = co_await read_all(*handler);
    EXPECT_EQ(second.error->code, ErrorCode::handler_failed);
    EXPECT_EQ(second.error->message, "RuntimeError: boom");
    auto half = channel->call(make_request({{"kind", "half"}}), 20s);
    const Answer third = co_await read_all(*half);
    EXPECT_EQ(third.error->code, ErrorCode::handler_failed);
    EXPECT_TRUE(channel->alive());
  });
}

TEST_F(PythonRuntime, DeathInMidCallFailsEveryCall) {
  start(R"(
import os
def handle_request(request, context):
    yield "begun"
    os._exit(1)
)");
  with_channel([](std::shared_ptr<ModelChannel> channel) -> asio::awaitable<void> {
    auto running = channel->call(make_request(), 20s);
    auto waiting = channel->call(make_request(), 20s);
    const Answer first = co_await read_all(*running);
    EXPECT_EQ(first.text(), "begun");
    EXPECT_EQ(first.error->code, ErrorCode::instance_crashed);
    EXPECT_TRUE(running->answered());
    const Answer second = co_await read_all(*waiting);
    EXPECT_EQ(second.error->code, ErrorCode::instance_crashed);
    EXPECT_FALSE(waiting->answered());
    EXPECT_FALSE(channel->alive());
    auto late = channel->call(make_request(), 20s);
    const Answer third = co_await read_all(*late);
    EXPECT_EQ(third.error->code, ErrorCode::instance_crashed);
  });
}

TEST_F(PythonRuntime, DestroyedCallClosesTheGenerator) {
  start(R"(
import threading
closed = threading.Event()
def handle_request(request, context):
    if request.get("ask"): return {"closed": closed.wait(10)}
    def parts():
        try:
            while True: yield "x"
        finally:
            closed.set()
    return parts()
)",
        2);
  with_channel([](std::shared_ptr<ModelChannel> channel) -> asio::awaitable<void> {
    auto call = channel->call(make_request(), 20s);
    auto first = co_await call->start();
    EXPECT_TRUE(first.ok());
    call.reset();
    EXPECT_TRUE(channel->oldest_cancel(Clock::now()));
    auto ask = channel->call(make_request({{"ask", true}}), 20s);
    const Answer answer = co_await read_all(*ask);
    EXPECT_EQ(answer.text(), R"({"closed":true})");
    EXPECT_FALSE(channel->oldest_cancel(Clock::now())) << "END of the cancelled one came before";
  });
}

TEST_F(PythonRuntime, SlowHandlerTimesOutAndIsCancelled) {
  start(R"(
import asyncio
async def handle_request(request, context):
    if request.get("quick"): return "quick"
    await asyncio.sleep(3600)
)",
        2);
  with_channel([](std::shared_ptr<ModelChannel> channel) -> asio::awaitable<void> {
    auto slow = channel->call(make_request(), 50ms);
    const Answer answer = co_await read_all(*slow);
    EXPECT_EQ(answer.error->code, ErrorCode::engine_timeout);
    auto quick = channel->call(make_request({{"quick", true}}), 20s);
    const Answer next = co_await read_all(*quick);
    EXPECT_EQ(next.text(), "quick");
  });
}

TEST_F(PythonRuntime, LargeAnswerNobodyReadsHoldsUpNoOther) {
  start(R"(
async def handle_request(request, context):
    return bytes(request["size"])
)",
        2);
  with_channel([](std::shared_ptr<ModelChannel> channel) -> asio::awaitable<void> {
    auto large = channel->call(make_request({{"size", 10'000'000}}), 20s);
    auto start = co_await large->start();
    EXPECT_TRUE(start.ok());
    for (int i = 0; i < 20; ++i) {
      auto small = channel->call(make_request({{"size", 3}}), 20s);
      const Answer answer = co_await read_all(*small);
      EXPECT_EQ(answer.text().size(), 3u);
    }
    const Answer whole = co_await read_all(*large);
    EXPECT_EQ(whole.text().size(), 10'000'000u);
  });
}

TEST_F(PythonRuntime, ExitBeforeReadyFailsTheConnect) {
  start("raise RuntimeError('no weights')\n");
  const auto body = [&]() -> asio::awaitable<void> {
    auto channel = co_await ModelChannel::connect(loop_, endpoint_, 20s);
    EXPECT_FALSE(channel.ok());
    EXPECT_EQ(channel.error().code, ErrorCode::instance_crashed);
  };
  run(loop_, body());
}

TEST_F(PythonRuntime, ManyCallsAtOnceOverTwoChannels) {
  start(R"(
import asyncio
async def handle_request(request, context):
    for n in range(request["n"] % 5):
        await asyncio.sleep(0)
        yield "x" * 1000
)",
        8);
  with_channel([this](std::shared_ptr<ModelChannel> channel) -> asio::awaitable<void> {
    auto second = co_await ModelChannel::connect(loop_, endpoint_, 20s);
    EXPECT_TRUE(second.ok());
    std::vector<std::unique_ptr<ModelCall>> calls;
    for (int n = 0; n < 100; ++n) {
      auto& use = n % 2 == 0 ? channel : *second;
      calls.push_back(use->call(make_request({{"n", n}}), 20s));
    }
    for (std::size_t n = 0; n < calls.size(); ++n) {
      const Answer answer = co_await read_all(*calls[n]);
      EXPECT_EQ(answer.text().size(), n % 5 * 1000);
    }
  });
}

}  // namespace
}  // namespace omni::engine
