// What the channel's tests share: a loop with a deadline, a folder for sockets, whole answers.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "engine/model_channel.h"

namespace omni::engine {

class TempFolder {
 public:
  TempFolder() {
    std::string path = (std::filesystem::temp_directory_path() / "omni-test-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr) std::abort();
    path_ = path;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Runs the coroutine to its end; a test that hangs fails instead.
inline void run(asio::io_context& loop, asio::awaitable<void> test) {
  bool done = false;
  asio::co_spawn(loop, std::move(test), [&](std::exception_ptr failure) {
    done = true;
    if (failure) std::rethrow_exception(failure);
  });
  loop.restart();
  const TimePoint deadline = Clock::now() + std::chrono::seconds(30);
  while (!done && Clock::now() < deadline) loop.run_one_for(std::chrono::seconds(1));
  ASSERT_TRUE(done) << "the test hangs";
}

struct Answer {
  ResponseStart start;
  std::vector<Item> items;
  std::optional<Error> error;

  std::string text() const {
    std::string all;
    for (const Item& item : items) all += item.data;
    return all;
  }
};

inline asio::awaitable<Answer> read_all(ModelCall& call) {
  Answer answer;
  auto start = co_await call.start();
  if (!start) {
    answer.error = start.error();
    co_return answer;
  }
  answer.start = *start;
  for (;;) {
    auto item = co_await call.next();
    if (!item) answer.error = item.error();
    if (!item || !*item) co_return answer;
    answer.items.push_back(std::move(**item));
  }
}

inline ModelRequest make_request(boost::json::object parameters = {}) {
  ModelRequest request;
  request.id = "req-1";
  request.parameters = std::move(parameters);
  return request;
}

}  // namespace omni::engine
