// A daemon for the tests of commands: the real admin API over a fake node, and scripted answers of
// the public API, on a Unix socket and a thread of its own.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "admin/fake_node.h"
#include "http/server.h"

namespace omni::cli {

namespace asio = boost::asio;

// A folder of one test.
class TestFolder {
 public:
  TestFolder() {
    char pattern[] = "/tmp/omni-cli-XXXXXX";
    path_ = ::mkdtemp(pattern);
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

class FakeDaemon {
 public:
  struct Reply {
    int status = 200;
    std::string content_type = "application/json";
    std::string body;
    bool cut = false;  // the connection breaks before the end of the body
  };
  struct Received {
    std::string target;
    std::string content_type;
    std::string body;
  };

  explicit FakeDaemon(const std::filesystem::path& run_folder)
      : socket_(run_folder / "admin.sock") {
    std::filesystem::create_directories(run_folder);
    fill_node();
  }
  ~FakeDaemon() {
    loop_.stop();
    if (thread_.joinable()) thread_.join();
    server_.reset();
  }

  const std::string& socket() const { return socket_; }
  // Set before start().
  admin::FakeNode& node() { return node_; }
  std::map<std::string, Reply> replies;  // by path

  void start() {
    http::ServerOptions options;
    server_ = std::make_unique<http::Server>(
        loop_, std::move(options), [this](http::Exchange& exchange) { return handle(exchange); });
    Result<http::Listener> listener = http::listen_on(Endpoint::unix_at(socket_));
    ASSERT_TRUE(listener.ok()) << listener.error().message;
    server_->serve(*std::move(listener));
    thread_ = std::thread([this] {
      const auto work = asio::make_work_guard(loop_);
      loop_.run();
    });
  }
  // On the daemon's thread.
  void post(std::function<void()> task) { asio::post(loop_, std::move(task)); }
  std::vector<Received> received() {
    const std::lock_guard lock(mutex_);
    return received_;
  }

 private:
  void fill_node() {
    node_.node = {.version = "0.1.0",
                  .pid = 4711,
                  .uptime_seconds = 5400,
                  .rss_bytes = 21 << 20,
                  .listen = {"127.0.0.1:8484", "[::1]:8484"},
                  .devices = {{"host", 480 << 20, 92 << 20}}};
    node_.model_list = {
        {.name = "minilm",
         .task = "embeddings",
         .engine = "python",
         .state = "resident",
         .aliases = {"text-embedding-3-small"},
         .requests = 1234,
         .memory_bytes = 92 << 20,
         .load_seconds = 1.25,
         .version = "9f2c"},
        {.name = "qwen",
         .task = "chat",
         .engine = "command",
         .state = "stopped",
         .pinned = true,
         .memory_bytes = 700 << 20,
         .load_seconds = 2.5},
        {.name = "whisper",
         .task = "speech-to-text",
         .engine = "python",
         .state = "failed",
         .waiting = 2,
         .last_error = "exit code 1: no module named torch"},
        {.name = "kokoro", .task = "text-to-speech", .engine = "python", .state = "stopped"},
        {.name = "resize", .task = "other", .engine = "python", .state = "stopped"}};
    node_.instance_list = {{.id = "12",
                            .model = "minilm",
                            .state = "resident",
                            .pid = 99,
                            .grant_bytes = 92 << 20,
                            .high_water_bytes = 90 << 20,
                            .pss_bytes = 61 << 20,
                            .served = 1234,
                            .seconds_in_state = 75,
                            .seconds_idle = 3.4},
                           {.id = "13",
                            .model = "qwen",
                            .state = "starting",
                            .pid = 100,
                            .grant_bytes = 700 << 20,
                            .in_flight = 2,
                            .seconds_in_state = 1.2}};
  }

  asio::awaitable<void> handle(http::Exchange& exchange) {
    const std::string path(exchange.request().path());
    if (path.starts_with("/admin")) {
      co_await admin::handle(node_, exchange);
      co_return;
    }
    Result<std::string> body = co_await exchange.read_all(64_MiB);
    if (body.ok()) remember(exchange.request(), *body);
    const Reply reply = replies.contains(path) ? replies.at(path) : Reply{.status = 404};
    http::ResponseHead head{.status = reply.status};
    head.headers.set("Content-Type", reply.content_type);
    [[maybe_unused]] Result<void> sent = co_await exchange.start(std::move(head), true);
    sent = co_await exchange.write(reply.body);
    if (reply.cut) {
      exchange.abort();
    } else {
      sent = co_await exchange.finish();
    }
  }
  void remember(const http::RequestHead& request, std::string body) {
    const std::lock_guard lock(mutex_);
    received_.push_back(
        {request.target, std::string(request.headers.get("Content-Type")), std::move(body)});
  }

  std::string socket_;
  asio::io_context loop_{1};
  admin::FakeNode node_{loop_};
  std::unique_ptr<http::Server> server_;
  std::mutex mutex_;
  std::vector<Received> received_;
  std::thread thread_;
};

}  // namespace omni::cli
