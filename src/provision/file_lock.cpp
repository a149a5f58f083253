#include "provision/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>

namespace omni {
namespace {

// The file that was locked is still the one of this name.
bool is_current(const Fd& fd, const std::filesystem::path& file) {
  struct stat held = {};
  struct stat named = {};
  return ::fstat(fd.get(), &held) == 0 && ::stat(file.c_str(), &named) == 0 &&
         held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

}  // namespace

Result<Fd> try_lock_file(const std::filesystem::path& file, LockMode mode) {
  const int operation = mode == LockMode::alone ? LOCK_EX : LOCK_SH;
  for (;;) {
    Fd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!fd) return errno_error("cannot open " + file.string());
    while (::flock(fd.get(), operation | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return Fd();
      if (errno != EINTR) return errno_error("cannot lock " + file.string());
    }
    if (is_current(fd, file)) return fd;  // else its last holder has removed it
  }
}

asio::awaitable<Result<Fd>> lock_file(std::filesystem::path file, Duration limit, LineSink progress,
                                      LockMode mode) {
  constexpr Duration kPoll = std::chrono::milliseconds(100);  // flock has no event to wait for
  const TimePoint deadline = Clock::now() + limit;
  asio::steady_timer timer(co_await asio::this_coro::executor);
  for (bool told = false;; told = true) {
    CO_TRY(Fd fd, try_lock_file(file, mode));
    if (fd) co_return std::move(fd);
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
