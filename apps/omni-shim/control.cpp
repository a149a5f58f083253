#include "control.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace omni::shim {

void send_report(int control, const protocol::ShimReport& report, int fd) {
  iovec part{const_cast<protocol::ShimReport*>(&report), sizeof report};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = space;
    message.msg_controllen = sizeof space;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  while (sendmsg(control, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EINTR) {
  }
}

void send_failure(int control, const Failure& failure) {
  protocol::ShimReport report;
  report.kind = protocol::ShimReportKind::failed;
  report.value = failure.error;
  std::memcpy(report.text, failure.text, sizeof report.text);
  send_report(control, report);
}

long receive(int socket, void* message, std::size_t size, int (&fds)[2]) {
  fds[0] = fds[1] = -1;
  iovec part{message, size};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof fds)];
  msghdr head{};
  head.msg_iov = &part;
  head.msg_iovlen = 1;
  head.msg_control = space;
  head.msg_controllen = sizeof space;
  long received;
  do {
    received = recvmsg(socket, &head, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return received;
  for (cmsghdr* header = CMSG_FIRSTHDR(&head); header; header = CMSG_NXTHDR(&head, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t bytes = header->cmsg_len - CMSG_LEN(0);
    std::memcpy(fds, CMSG_DATA(header), bytes < sizeof fds ? bytes : sizeof fds);
  }
  return received;
}

}  // namespace omni::shim
