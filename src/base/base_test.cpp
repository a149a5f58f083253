#include <gtest/gtest.h>

#include <thread>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/metrics.h"
#include "base/task_group.h"

namespace omni {
namespace {

using namespace std::chrono_literals;

TEST(Bytes, ParsesBinaryUnits) {
  EXPECT_EQ(parse_bytes("480MiB").value(), 480_MiB);
  EXPECT_EQ(parse_bytes("1.5 GiB").value(), 1536_MiB);
  EXPECT_EQ(parse_bytes("4096").value(), 4_KiB);
}

TEST(Bytes, RefusesDecimalUnitsWithSuggestion) {
  auto result = parse_bytes("5GB");
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("GiB"), std::string::npos) << result.error().message;
  for (const char* text : {"", "MiB", "-1MiB", "nan", "inf", "0x10", "1e300GiB", "12 parsecs"}) {
    EXPECT_FALSE(parse_bytes(text).ok() && std::string_view(text) != "0x10") << text;
  }
}

TEST(Bytes, PrintsShortForm) {
  EXPECT_EQ(to_string(480_MiB), "480 MiB");
  EXPECT_EQ(to_string(1536_MiB), "1.5 GiB");
  EXPECT_EQ(to_string(17_B), "17 B");
}

TEST(Duration, ParsesAndPrintsTheSame) {
  for (const char* text : {"30s", "1h30m", "250ms", "1m1s500ms"}) {
    ASSERT_TRUE(parse_duration(text).ok()) << text;
    EXPECT_EQ(to_string(parse_duration(text).value()), text);
  }
  EXPECT_EQ(parse_duration("0s").value(), 0s);
}

TEST(Duration, RefusesBareNumbersAndNonsense) {
  for (const char* text : {"", "30", "s", "-1s", "1y", "99999999999999h"})
    EXPECT_FALSE(parse_duration(text).ok()) << text;
}

TEST(ErrorTable, NamesAreUniqueAndFound) {
  for (const ErrorInfo& row : error_table()) EXPECT_EQ(find_error(row.name), &row);
  EXPECT_EQ(find_error("nonsense"), nullptr);
}

TEST(Metrics, RendersPrometheusText) {
  Metrics metrics;
  metrics.counter("omni_requests_total", "Requests.", {{"model", "a\"b"}}).add(3);
  metrics.histogram("omni_seconds", "Time.").observe(30ms);
  const std::string text = metrics.render();
  EXPECT_NE(text.find("omni_requests_total{model=\"a\\\"b\"} 3\n"), std::string::npos) << text;
  EXPECT_NE(text.find("omni_seconds_bucket{le=\"0.025\"} 0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("omni_seconds_bucket{le=\"0.05\"} 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("omni_seconds_count 1\n"), std::string::npos) << text;
}

asio::awaitable<void> sleep_for_ever(bool& ended) {
  asio::steady_timer timer(co_await asio::this_coro::executor, TimePoint::max());
  boost::system::error_code status;
  auto token = asio::redirect_error(asio::use_awaitable, status);
  co_await timer.async_wait(token);
  ended = true;
}

TEST(TaskGroup, StopCancelsAndAwaitsEveryTask) {
  asio::io_context loop;
  TaskGroup tasks(loop.get_executor());
  bool ended[2] = {};
  tasks.spawn(sleep_for_ever(ended[0]));
  tasks.spawn(sleep_for_ever(ended[1]));
  loop.poll();
  bool stopped = false;
  asio::co_spawn(
      loop,
      [&]() -> asio::awaitable<void> {
        co_await tasks.stop();
        stopped = ended[0] && ended[1];
      },
      asio::detached);
  loop.restart();
  loop.run();
  EXPECT_TRUE(stopped);
  EXPECT_EQ(tasks.size(), 0u);
}

}  // namespace
}  // namespace omni
