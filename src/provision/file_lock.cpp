#include "provision/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>

namespace omni {

asio::awaitable<Result<Fd>> lock_file(std::filesystem::path file, Duration limit,
                                      LineSink progress) {
  constexpr Duration kPoll = std::chrono::milliseconds(100);  // flock has no event to wait for
  const TimePoint deadline = Clock::now() + limit;
  Fd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd) co_return errno_error("cannot open " + file.string());
  asio::steady_timer timer(co_await asio::this_coro::executor);
  for (bool told = false;; told = true) {
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) co_return std::move(fd);
    if (errno != EWOULDBLOCK && errno != EINTR) {
      co_return errno_error("cannot lock " + file.string());
    }
    if (Clock::now() >= deadline) {
      co_return Error{ErrorCode::provision_failed,
                      fmt::format("{} was not free within {}: another process holds it",
                                  file.string(), to_string(limit))};
    }
    if (!told) progress("waiting for another process that builds the same");
    timer.expires_after(kPoll);
    auto token = asio::use_awaitable;
    co_await timer.async_wait(token);
  }
}

}  // namespace omni
