#include "provision/shared_jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/redirect_error.hpp>

#include "provision/provision_test_support.h"

namespace omni {
namespace {

using ::testing::ElementsAre;

// A job that waits until the test lets it end.
class SharedJob : public LoopTest {
 protected:
  SharedJobs::Job job() {
    return [this](LineSink progress) { return work(std::move(progress)); };
  }
  asio::awaitable<SharedJobs::Product> work(LineSink progress) {
    ++runs_;
    ++running_;
    const auto leave = std::shared_ptr<void>(nullptr, [this](void*) { --running_; });
    progress("started");
    co_await gate_.async_wait(asio::redirect_error(asio::use_awaitable, gate_status_));
    const auto state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) {
      co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
      co_await ending_.async_wait(asio::redirect_error(asio::use_awaitable, gate_status_));
      throw boost::system::system_error(asio::error::operation_aborted);
    }
    co_return std::filesystem::path("/product");
  }
  LineSink into(std::vector<std::string>& lines) {
    return [&lines](std::string_view line) { lines.emplace_back(line); };
  }

  int runs_ = 0;
  int running_ = 0;
  boost::system::error_code gate_status_;
  asio::steady_timer gate_{loop_, TimePoint::max()};    // cancel() lets jobs end
  asio::steady_timer ending_{loop_, TimePoint::max()};  // cancel() lets aborted jobs end
  SharedJobs jobs_{loop_};
  TaskGroup other_{loop_.get_executor()};
};

TEST_F(SharedJob, RunsOnceForAllWhoWait) {
  std::vector<std::string> lines[2];
  std::optional<SharedJobs::Product> results[2];
  start(jobs_.run("k", into(lines[0]), job()), results[0]);
  start(jobs_.run("k", into(lines[1]), job()), results[1]);
  loop_.poll();
  gate_.cancel();
  run_until_idle();
  EXPECT_EQ(runs_, 1);
  EXPECT_EQ(results[0]->value(), "/product");
  EXPECT_EQ(results[1]->value(), "/product");
  EXPECT_THAT(lines[0], ElementsAre("started"));
}

TEST_F(SharedJob, RunsAgainForALaterCaller) {
  std::optional<SharedJobs::Product> results[2];
  for (auto& result : results) {
    start(jobs_.run("k", [](std::string_view) {}, job()), result);
    loop_.restart();
    loop_.poll();
    gate_.cancel();
    run_until_idle();
    EXPECT_TRUE(result.has_value());
  }
  EXPECT_EQ(runs_, 2);
}

TEST_F(SharedJob, GoesOnWhileOneStillWaits) {
  std::optional<SharedJobs::Product> results[2];
  start(jobs_.run("k", [](std::string_view) {}, job()), results[0]);
  start_in(other_, jobs_.run("k", [](std::string_view) {}, job()), results[1]);
  loop_.poll();
  tasks_.cancel();  // the one that started it leaves
  loop_.poll();
  EXPECT_EQ(tasks_.size(), 0U);
  EXPECT_EQ(running_, 1);
  gate_.cancel();
  run_until_idle();
  EXPECT_FALSE(results[0].has_value());
  ASSERT_TRUE(results[1].has_value());
  EXPECT_EQ(results[1]->value(), "/product");
}

TEST_F(SharedJob, EndsWithItsLastCallerWhoSeesItGone) {
  std::optional<SharedJobs::Product> result;
  start(jobs_.run("k", [](std::string_view) {}, job()), result);
  loop_.poll();
  tasks_.cancel();
  loop_.poll();
  EXPECT_EQ(tasks_.size(), 1U) << "the caller waits until the job has ended";
  ending_.cancel();
  run_until_idle();
  EXPECT_EQ(tasks_.size(), 0U);
  EXPECT_EQ(running_, 0);
  EXPECT_FALSE(result.has_value());
}

TEST_F(SharedJob, ACallerDoesNotJoinOneThatIsBeingAborted) {
  std::optional<SharedJobs::Product> results[2];
  start(jobs_.run("k", [](std::string_view) {}, job()), results[0]);
  loop_.poll();
  tasks_.cancel();
  loop_.poll();
  start_in(other_, jobs_.run("k", [](std::string_view) {}, job()), results[1]);
  loop_.poll();
  EXPECT_EQ(runs_, 1);
  ending_.cancel();
  loop_.poll();
  EXPECT_EQ(runs_, 2);
  gate_.cancel();
  run_until_idle();
  ASSERT_TRUE(results[1].has_value());
  EXPECT_EQ(results[1]->value(), "/product");
}

}  // namespace
}  // namespace omni
