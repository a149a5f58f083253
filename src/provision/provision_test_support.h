// A temporary folder, a loop to run coroutines on, and a fake uv.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "base/files.h"
#include "base/result.h"
#include "base/task_group.h"

namespace omni {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = std::filesystem::temp_directory_path() / "omni-test-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  std::filesystem::path write(const std::filesystem::path& name, std::string_view content,
                              int mode = 0644) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    auto written = write_file_atomic(file, content, mode);
    EXPECT_TRUE(written.ok()) << written.error().message;
    return file;
  }

 private:
  std::filesystem::path path_;
};

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
