#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>
#include <thread>

#include "supervisor/workers.h"

namespace omni {
namespace {

namespace asio = boost::asio;

TEST(Workers, WorkRunsThereAndItsResultComesBackToTheLoop) {
  asio::io_context loop;
  asio::thread_pool workers(4);
  int done = 0;  // unguarded: only the loop's thread writes it
  const auto task = [&](int i) -> asio::awaitable<void> {
    auto work = [i, loop_thread = std::this_thread::get_id()] {
      EXPECT_NE(std::this_thread::get_id(), loop_thread);
      return std::make_unique<std::string>(std::to_string(i));
    };
    const auto result = co_await run_on(workers, work);
    EXPECT_EQ(*result, std::to_string(i));
    ++done;
  };
  for (int i = 0; i < 200; ++i) asio::co_spawn(loop, task(i), asio::detached);
  loop.run();  // does not return while work is under way
  EXPECT_EQ(done, 200);
}

}  // namespace
}  // namespace omni
