#include "supervisor/shim_link.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstring>
#include <string>
#include <system_error>

#include "base/files.h"

namespace omni {
namespace {

using protocol::ShimCommand;
using protocol::ShimCommandKind;
using protocol::ShimReport;
using protocol::ShimReportKind;

// Between two looks at a shim whose socket has ended: most are gone at the first.
constexpr Duration kMaxEndPoll = std::chrono::milliseconds(100);

// The pid behind a pidfd as this process sees it, 0 when it has ended.
pid_t pid_of(const Fd& handle) {
  auto info = read_file(fmt::format("/proc/self/fdinfo/{}", handle.get()));
  if (!info.ok()) return 0;
  const std::size_t at = info->find("Pid:\t");
  if (at == std::string::npos) return 0;
  pid_t pid = 0;
  std::from_chars(info->data() + at + 5, info->data() + info->size(), pid);
  return pid > 0 ? pid : 0;
}

}  // namespace

boost::asio::awaitable<void> ShimLink::run() {
  boost::system::error_code status;
  auto token = boost::asio::redirect_error(boost::asio::use_awaitable, status);
  while (!status) {
    if (!read_report()) break;
    co_await control_.async_wait(boost::asio::posix::stream_descriptor::wait_read, token);
  }
  if (!control_.is_open()) co_return;
  for (Duration pause = std::chrono::milliseconds(1); !shim_has_ended();) {
    const TimePoint next = Clock::now() + pause;
    co_await events.wait(next);
    pause = std::min(2 * pause, kMaxEndPoll);
  }
  gone = true;
  events.notify();
}

// Takes every report that has come. False at the end of the socket.
bool ShimLink::read_report() {
  for (;;) {
    ShimReport report;
    int fd = -1;
    iovec part{&report, sizeof report};
    alignas(cmsghdr) char space[CMSG_SPACE(sizeof fd)];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = space;
    message.msg_controllen = sizeof space;
    const ssize_t size =
        ::recvmsg(control_.native_handle(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return errno == EAGAIN;
    if (size == 0) return false;
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS) std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    Fd handle(fd);
    if (size == sizeof report && report.version == protocol::kShimProtocolVersion) {
      report.text[sizeof report.text - 1] = '\0';
      take(report, std::move(handle));
    }
  }
}

void ShimLink::take(const ShimReport& report, Fd handle) {
  switch (report.kind) {
    case ShimReportKind::spawned:
      shim_pid = report.value;
      shim_handle_ = std::move(handle);
      break;
    case ShimReportKind::started:
      started = true;
      main_pid = pid_of(handle);
      break;
    case ShimReportKind::failed:
      start_error = Error{
          ErrorCode::load_failed,
          fmt::format("cannot {}: {}", report.text, std::generic_category().message(report.value))};
      break;
    case ShimReportKind::exited:
      wait_status = report.value;
      break;
    case ShimReportKind::empty:
    case ShimReportKind::status:
      break;
  }
  events.notify();
}

bool ShimLink::shim_has_ended() const {
  if (!shim_handle_) return true;  // it never ran
  pollfd entry{shim_handle_.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

void ShimLink::close() {
  boost::system::error_code ignored;
  control_.close(ignored);
}

void ShimLink::send(const ShimCommand& command) {
  if (!control_.is_open()) return;
  // A full socket means that dozens of commands wait already; the end of stop() is kill_shim().
  ::send(control_.native_handle(), &command, sizeof command, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void ShimLink::signal(int number) {
  ShimCommand command;
  command.kind = ShimCommandKind::signal;
  command.signal = number;
  send(command);
}

void ShimLink::kill_tree() {
  ShimCommand command;
  command.kind = ShimCommandKind::kill_tree;
  send(command);
}

void ShimLink::kill_shim() {
  if (shim_handle_) ::syscall(SYS_pidfd_send_signal, shim_handle_.get(), SIGKILL, nullptr, 0);
}

}  // namespace omni
