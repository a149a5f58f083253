// A loop to run coroutines on.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/task_group.h"
#include "config/config_test_support.h"

namespace omni {

// Runs the loop until the coroutine has ended; fails the test if that takes a minute.
class LoopTest : public ::testing::Test {
 protected:
  template <typename T>
  T await(asio::awaitable<T> task) {
    std::optional<T> result;
    start(std::move(task), result);
    run_until_idle();
    EXPECT_TRUE(result.has_value()) << "the coroutine did not end";
    return *std::move(result);
  }
  // Spawns it in tasks_; its result comes into `result` while the loop runs.
  template <typename T>
  void start(asio::awaitable<T> task, std::optional<T>& result) {
    start_in(tasks_, std::move(task), result);
  }
  template <typename T>
  static void start_in(TaskGroup& tasks, asio::awaitable<T> task, std::optional<T>& result) {
    tasks.spawn(keep(std::move(task), result));
  }
  void run_until_idle() {
    loop_.restart();
    loop_.run_for(std::chrono::minutes(1));
  }

  asio::io_context loop_;
  asio::thread_pool workers_{2};
  TaskGroup tasks_{loop_.get_executor()};

 private:
  template <typename T>
  static asio::awaitable<void> keep(asio::awaitable<T> task, std::optional<T>& result) {
    result.emplace(co_await std::move(task));
  }
};

}  // namespace omni
