// The pidfd calls by number: glibc 2.36 declares them in <sys/pidfd.h> without C linkage.
#pragma once

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

namespace omni::shim {

inline int open_pidfd(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }
inline void signal_pidfd(int fd, int number) {
  syscall(SYS_pidfd_send_signal, fd, number, nullptr, 0);
}

}  // namespace omni::shim
