// wait_ready(): HTTP engines by their health path, Python runtimes by the protocol's READY.
#include <gmock/gmock.h>

#include <csignal>

#include "supervisor/test_host.h"

namespace omni {
namespace {

using testing::HasSubstr;

class Readiness : public testing::Test {
 protected:
  void expect_ready(LaunchPlan plan, const Endpoint& at) {
    auto instance = host.start(std::move(plan));
    auto ready = host.wait_ready(instance);
    EXPECT_TRUE(ready.ok()) << (ready.ok() ? "" : ready.error().message);
    EXPECT_EQ(instance->plan().endpoint, at);
    EXPECT_TRUE(instance->alive());
    EXPECT_TRUE(host.stop(instance).gone);
  }
  LaunchPlan tcp_engine(const std::string& told, const std::string& host_flag, std::uint16_t port) {
    LaunchPlan plan = host.plan(
        {"python3", OMNI_FAKE_ENGINE, "--host", host_flag, "--port", std::to_string(port)});
    plan.endpoint = Endpoint::tcp_at(told, port);
    return plan;
  }
  TestHost host;
};

TEST_F(Readiness, FindsAnEngineOnAUnixSocket) {
  LaunchPlan plan = host.engine();
  const Endpoint endpoint = plan.endpoint;
  expect_ready(std::move(plan), endpoint);
}

TEST_F(Readiness, FindsAnEngineThatListensOnIpv4Alone) {
  const std::uint16_t port = free_port(AF_INET);
  expect_ready(tcp_engine("127.0.0.1", "127.0.0.1", port), Endpoint::tcp_at("127.0.0.1", port));
}

TEST_F(Readiness, FindsAnEngineThatListensOnIpv6Alone) {
  const std::uint16_t port = free_port(AF_INET6);
  expect_ready(tcp_engine("127.0.0.1", "::1", port), Endpoint::tcp_at("::1", port));
}

TEST_F(Readiness, GarbageHealthAnswersAreNotYetReady) {
  LaunchPlan plan = host.engine({"--garbage-health", "0.2"});
  const Endpoint endpoint = plan.endpoint;
  expect_ready(std::move(plan), endpoint);
}

TEST_F(Readiness, EngineThatAnswersGarbageForEverIsCut) {
  LaunchPlan plan = host.engine({"--garbage-health"});
  plan.load_stall = 400ms;
  auto instance = host.start(std::move(plan));
  auto ready = host.wait_ready(instance);
  ASSERT_FALSE(ready.ok());
  EXPECT_EQ(ready.error().code, ErrorCode::load_stalled);
  host.stop(instance);
}

TEST_F(Readiness, OnlyAStalledLoadIsCut) {
  // Loads for three times as long as a stall may last, but shows progress.
  LaunchPlan slow = host.engine({"--slow-start", "2.5"});
  slow.load_stall = 800ms;
  auto slow_instance = host.start(std::move(slow));
  auto ready = host.wait_ready(slow_instance);
  EXPECT_TRUE(ready.ok()) << ready.error().message;
  host.stop(slow_instance);

  LaunchPlan stalled = host.engine({"--stall"});
  stalled.load_stall = 500ms;
  auto stalled_instance = host.start(std::move(stalled));
  ready = host.wait_ready(stalled_instance);
  ASSERT_FALSE(ready.ok());
  EXPECT_EQ(ready.error().code, ErrorCode::load_stalled);
  EXPECT_THAT(ready.error().message, HasSubstr("model \"fake\" stood still for 500ms"));
  host.stop(stalled_instance);
}

TEST_F(Readiness, EngineThatSaysNotYetForEverIsCutThoughProbesKeepItBusy) {
  LaunchPlan plan = host.engine({"--never-ready"});
  plan.load_stall = 500ms;
  auto instance = host.start(std::move(plan));
  auto ready = host.wait_ready(instance);
  ASSERT_FALSE(ready.ok());
  EXPECT_EQ(ready.error().code, ErrorCode::load_stalled);
  host.stop(instance);
}

TEST_F(Readiness, EngineThatAcceptsButNeverAnswersIsCut) {
  LaunchPlan plan = host.plan({});
  plan.argv = {"python3", "-c",
               "import socket, time, sys\ns = socket.socket(socket.AF_UNIX)\n"
               "s.bind(sys.argv[1])\ns.listen(9)\nkept = []\nwhile True: kept.append(s.accept())",
               plan.endpoint.path};
  plan.load_stall = 400ms;
  auto instance = host.start(std::move(plan));
  auto ready = host.wait_ready(instance);
  ASSERT_FALSE(ready.ok());
  EXPECT_EQ(ready.error().code, ErrorCode::load_stalled);
  host.stop(instance);
}

TEST_F(Readiness, ExitWhileLoadingIsToldAtOnceWithTheLog) {
  LaunchPlan plan = host.engine({"--die-at-start", "9"});
  auto instance = host.start(std::move(plan));
  auto ready = host.wait_ready(instance);
  ASSERT_FALSE(ready.ok());
  EXPECT_EQ(ready.error().code, ErrorCode::load_failed);
  EXPECT_THAT(ready.error().message,
              HasSubstr("model \"fake\" ended while it loaded: exit code 9; its log ends:\n"
                        "dies at start"));
}

TEST_F(Readiness, StopWhileLoadingEndsTheWait) {
  auto instance = host.start(host.engine({"--never-ready"}));
  std::optional<Result<void>> ready;
  asio::co_spawn(host.loop, instance->wait_ready(),
                 [&](std::exception_ptr, Result<void> result) { ready = std::move(result); });
  host.stop(instance);
  ASSERT_TRUE(host.run_until([&] { return ready.has_value(); }));
  ASSERT_FALSE(ready->ok());
  EXPECT_EQ(ready->error().code, ErrorCode::model_stopped);
}

TEST_F(Readiness, EngineThatDiesLaterIsNoticedWithoutBeingAsked) {
  auto instance = host.start(host.engine());
  ASSERT_TRUE(host.wait_ready(instance).ok());
  ::kill(host.main_of(instance), SIGSEGV);
  EXPECT_EQ(host.wait_exit(instance).description, "signal 11 (SIGSEGV)");
}

// ---- Python runtimes

// The least that speaks the model protocol: HELLO, then READY, then what the test appends.
constexpr std::string_view kRuntime = R"(
import socket, struct, sys, time, os
listener = socket.socket(fileno=3)
def send(kind, payload=b''): link.sendall(struct.pack('<IBBHQ', len(payload), kind, 0, 0, 0) + payload)
def receive():
    head = link.recv(16, socket.MSG_WAITALL)
    if len(head) < 16: sys.exit(2)
    length, kind = struct.unpack('<IB', head[:5])
    return kind, link.recv(length, socket.MSG_WAITALL) if length else b''
link, _ = listener.accept()
print(*receive(), flush=True)
send(1, b'{"version":1}')
)";

class PythonReadiness : public Readiness {
 protected:
  LaunchPlan runtime(std::string_view rest) {
    LaunchPlan plan = host.plan({"python3", "-c", std::string(kRuntime) + std::string(rest)});
    plan.python = true;
    plan.endpoint = Endpoint::unix_at((plan.run_dir / "model.sock").string());
    plan.stop_grace = 20s;  // never waited for: DRAIN ends it
    return plan;
  }
};

TEST_F(PythonReadiness, IsReadyByTheProtocolAndDrainedAtTheEnd) {
  auto instance = host.start(runtime(R"(
time.sleep(0.05)
send(2, b'{"concurrency":1}')
print(*receive(), flush=True)
)"));
  auto ready = host.wait_ready(instance);
  EXPECT_TRUE(ready.ok()) << ready.error().message;
  EXPECT_EQ(fs::status(instance->plan().endpoint.path).permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
  const ExitReport report = host.stop(instance);
  EXPECT_EQ(report.description, "exit code 0");
  EXPECT_THAT(report.last_log_lines,
              testing::ElementsAre(R"(1 b'{"version":1,"role":"control"}')", "11 b''"));
}

TEST_F(PythonReadiness, PingIsAnswered) {
  auto instance = host.start(runtime(R"(
send(12, b'abc')
print(*receive(), flush=True)
send(2, b'{"concurrency":1}')
receive()
)"));
  EXPECT_TRUE(host.wait_ready(instance).ok());
  EXPECT_THAT(host.stop(instance).last_log_lines, testing::Contains("13 b'abc'"));
}

TEST_F(PythonReadiness, RuntimeThatIgnoresDrainGetsTermAtHalfTheGrace) {
  LaunchPlan plan = runtime("send(2, b'{}')\ntime.sleep(600)");
  plan.stop_grace = 400ms;
  auto instance = host.start(std::move(plan));
  ASSERT_TRUE(host.wait_ready(instance).ok());
  EXPECT_EQ(host.stop(instance).description, "signal 15 (SIGTERM)");
}

TEST_F(PythonReadiness, HandlerThatCannotBeLoadedIsToldWithItsTraceback) {
  auto instance = host.start(runtime("raise ValueError('no weights')"));
  auto ready = host.wait_ready(instance);
  ASSERT_FALSE(ready.ok());
  EXPECT_EQ(ready.error().code, ErrorCode::load_failed);
  EXPECT_THAT(ready.error().message, HasSubstr("ValueError: no weights"));
}

TEST_F(PythonReadiness, OtherVersionAndOtherProtocolAreFailures) {
  for (const char* rest :
       {"send(1, b'{\"version\":99}')\ntime.sleep(600)",
        "link.sendall(b'HTTP/1.1 400 Bad Request\\r\\n\\r\\n')\ntime.sleep(600)"}) {
    LaunchPlan plan = runtime(rest);
    plan.stop_grace = 100ms;
    auto instance = host.start(std::move(plan));
    auto ready = host.wait_ready(instance);
    ASSERT_FALSE(ready.ok());
    EXPECT_EQ(ready.error().code, ErrorCode::load_failed);
    EXPECT_THAT(ready.error().message, HasSubstr("protocol"));
    host.stop(instance);
  }
}

TEST_F(PythonReadiness, StalledLoadIsCut) {
  LaunchPlan plan = runtime("time.sleep(600)");
  plan.load_stall = 400ms;
  plan.stop_grace = 100ms;
  auto instance = host.start(std::move(plan));
  auto ready = host.wait_ready(instance);
  ASSERT_FALSE(ready.ok());
  EXPECT_EQ(ready.error().code, ErrorCode::load_stalled);
  host.stop(instance);
}

TEST_F(PythonReadiness, ModelSocketIsTheUsersAlone) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a model a user of its own";
  LaunchPlan plan = runtime("send(2, b'{}')\nreceive()");
  plan.uid = 700'124;
  auto instance = host.start(std::move(plan));
  ASSERT_TRUE(host.wait_ready(instance).ok());
  struct stat info{};
  ASSERT_EQ(::stat(instance->plan().endpoint.path.c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 700'124u);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(host.stop(instance).description, "exit code 0");
}

}  // namespace
}  // namespace omni
