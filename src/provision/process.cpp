#include "provision/process.h"

// glibc 2.36's header lacks it.
extern "C" {
#include <sys/pidfd.h>
}

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/fd.h"

namespace omni {
namespace {

constexpr std::size_t kLongestLine = 4096;  // a longer one is handed on in pieces

// A running child and its process group. Ends with it: what is left is killed and reaped.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  // Only without a loop to wait on (the daemon is going down): a killed process ends at once.
  ~Child() {
    kill_group();
    reap();
  }

  void kill_group() {
    if (pid_ > 0) ::kill(-pid_, SIGKILL);
  }

  // Blocks until the child has ended. Its zombie keeps the group's number from being used again
  // until here, so that kill_group() cannot hit a stranger.
  ExitStatus reap() {
    siginfo_t info = {};
    int result = 0;
    if (pid_ > 0) {
      do {
        result = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED);
      } while (result != 0 && errno == EINTR);
    }
    pid_ = 0;
    return {.by_signal = info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED,
            .value = info.si_status};
  }

 private:
  pid_t pid_;
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// A file in memory that holds the text: it has no name on any disk, and needs no writer.
Result<Fd> input_of(std::string_view text) {
  Fd file(::memfd_create("input", MFD_CLOEXEC));
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::lseek(file.get(), 0, SEEK_SET) != 0) {
    return errno_error("cannot hand over a program's input");
  }
  return file;
}

Result<pid_t> spawn(const ProcessSpec& spec, int output) {
  TRY(const Fd input, input_of(spec.input));
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, input.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  ::posix_spawn_file_actions_addchdir_np(&actions, "/");
  // To its own number, dup2 clears close-on-exec: right too.
  if (spec.inherited_fd >= 0) ::posix_spawn_file_actions_adddup2(&actions, spec.inherited_fd, 3);

  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  sigset_t all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(
      &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = 0;
  const int failed = ::posix_spawn(&pid, spec.argv[0].c_str(), &actions, &attributes,
                                   pointers(spec.argv).data(), pointers(spec.env).data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return errno_error("cannot run " + spec.argv[0], failed);
  return pid;
}

// Hands on whole lines until the last writer has closed the pipe, or the wait is cancelled.
asio::awaitable<void> read_lines(asio::posix::stream_descriptor& output, const LineSink& on_line) {
  std::string pending;
  std::array<char, 4096> buffer;
  boost::system::error_code status;
  while (!status) {
    auto token = asio::redirect_error(asio::use_awaitable, status);
    const std::size_t n = co_await output.async_read_some(asio::buffer(buffer), token);
    for (const char c : std::string_view(buffer.data(), n)) {
      if (c == '\n' || pending.size() == kLongestLine) {
        on_line(pending);
        pending.clear();
      }
      if (c != '\n' && c != '\r') pending += c;
    }
  }
  if (!pending.empty()) on_line(pending);
}

// Ends when the process has, and takes what it left of its group with it: grandchildren that keep
// the pipe open would keep the reader waiting.
asio::awaitable<void> wait_exit(asio::posix::stream_descriptor& pidfd, Child& child) {
  boost::system::error_code status;
  auto token = asio::redirect_error(asio::use_awaitable, status);
  co_await pidfd.async_wait(asio::posix::stream_descriptor::wait_read, token);
  if (!status) child.kill_group();
}

}  // namespace

std::string to_string(ExitStatus status) {
  return fmt::format(fmt::runtime(status.by_signal ? "signal {}" : "exit code {}"), status.value);
}

asio::awaitable<Result<ExitStatus>> run_process(ProcessSpec spec, Duration limit,
                                                LineSink on_line) {
  using asio::experimental::awaitable_operators::operator&&;
  const auto executor = co_await asio::this_coro::executor;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) co_return errno_error("cannot create a pipe");
  asio::posix::stream_descriptor output(executor, ends[0]);
  Fd write_end(ends[1]);
  CO_TRY(pid_t pid, spawn(spec, write_end.get()));
  write_end.reset();
  // Shared with the deadline's handler, which may already be queued when this coroutine ends.
  auto child = std::make_shared<Child>(pid);
  Fd descriptor(::pidfd_open(pid, 0));
  if (!descriptor) co_return errno_error("cannot watch " + spec.argv[0]);
  asio::posix::stream_descriptor pidfd(executor, descriptor.release());

  auto expired = std::make_shared<bool>(false);  // with the timer's handler, like the child
  asio::steady_timer deadline(executor, limit);
  deadline.async_wait([child, expired](boost::system::error_code status) {
    if (status) return;
    *expired = true;
    child->kill_group();
  });

  auto both = read_lines(output, on_line) && wait_exit(pidfd, *child);
  co_await std::move(both);
  const auto cancellation = co_await asio::this_coro::cancellation_state;
  const bool cancelled = cancellation.cancelled() != asio::cancellation_type::none;
  if (cancelled) {
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    child->kill_group();
    co_await wait_exit(pidfd, *child);
  }
  const ExitStatus exit = child->reap();
  if (cancelled) throw boost::system::system_error(asio::error::operation_aborted);
  if (*expired) {
    co_return Error{
        ErrorCode::provision_failed,
        fmt::format("{} did not end within {} and was killed", spec.argv[0], to_string(limit))};
  }
  co_return exit;
}

}  // namespace omni
