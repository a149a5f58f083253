#include "spawner.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "confine.h"
#include "control.h"
#include "pidfd.h"
#include "processes.h"
#include "shim.h"

namespace omni::shim {
namespace {

constexpr int kSocket = protocol::kSpawnerSocketFd;
constexpr int kMaxShims = 512;  // each holds one descriptor here; the usual limit of those is 1024
constexpr int kKillRoundMs = 10;

// The spawner keeps its copy of a control socket until it has reaped the shim and killed what that
// left behind: the socket's end is the daemon's proof that the instance is gone.
struct Shim {
  pid_t pid = 0;  // 0: a free place; -1: dead, its number may already be another's
  int control = -1;
};
Shim shims[kMaxShims];

Shim* find(pid_t pid) {
  for (Shim& shim : shims) {
    if (shim.pid == pid) return &shim;
  }
  return nullptr;
}

bool is_shim(pid_t pid) { return find(pid) != nullptr; }

std::uint64_t clone_flags(Namespaces namespaces) {
  return (namespaces.pid ? CLONE_NEWPID | CLONE_NEWNS : 0) | (namespaces.user ? CLONE_NEWUSER : 0);
}

// Like fork(). Where there is no clone3 (old seccomp filters) fork() does, without namespaces.
pid_t clone_process(Namespaces namespaces) {
  const std::uint64_t flags = clone_flags(namespaces);
  if (flags == 0) return fork();
  clone_args args{};
  args.flags = flags;
  args.exit_signal = SIGCHLD;
  return static_cast<pid_t>(syscall(SYS_clone3, &args, sizeof args));
}

// Whether this host lets this user have them, found out by having them once.
bool works(Namespaces namespaces) {
  const uid_t uid = geteuid();
  const gid_t gid = getegid();
  const pid_t pid = clone_process(namespaces);
  if (pid < 0) return false;
  if (pid == 0) {
    Failure failure;
    const bool mapped = !namespaces.user || map_own_user(uid, gid, failure);
    _exit(mapped && enter_mount_namespace(failure) ? 0 : 1);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

Namespaces choose_namespaces(bool wanted) {
  const Namespaces best{.user = geteuid() != 0, .pid = true};
  return wanted && works(best) ? best : Namespaces{};
}

class Spawner {
 public:
  explicit Spawner(Namespaces namespaces) : namespaces_(namespaces) {}

  int run() {
    const int signals = watch_children();
    protocol::SpawnerHello hello;
    hello.pid_namespaces = namespaces_.pid ? 1 : 0;
    send(kSocket, &hello, sizeof hello, MSG_NOSIGNAL);
    for (;;) {
      pollfd fds[] = {{kSocket, POLLIN, 0}, {signals, POLLIN, 0}};
      if (poll(fds, 2, dead_ ? kKillRoundMs : -1) < 0) continue;
      if (fds[1].revents) {
        signalfd_siginfo info;
        while (read(signals, &info, sizeof info) > 0) {
        }
      }
      reap();
      if (dead_) finish_dead();
      if (fds[0].revents && !take_request()) return 0;
    }
  }

 private:
  static int watch_children() {
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGCHLD);
    return signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
  }

  void reap() {
    pid_t pid;
    while ((pid = waitpid(-1, nullptr, WNOHANG)) > 0) {
      Shim* shim = find(pid);
      if (!shim) continue;
      shim->pid = -1;
      dead_ = true;
    }
  }

  // Without a pid namespace the children of a killed shim come to the spawner, as the next
  // subreaper.
  void finish_dead() {
    if (!namespaces_.pid && kill_descendants(getpid(), is_shim) > 0) return;
    for (Shim& shim : shims) {
      if (shim.pid != -1) continue;
      close(shim.control);
      shim = {};
    }
    dead_ = false;
  }

  // False when the daemon is gone.
  bool take_request() {
    protocol::SpawnMessage message;
    int fds[2];
    const long size = receive(kSocket, &message, sizeof message, fds);
    if (size == 0) return false;
    if (size < 0) return errno == EAGAIN;
    const bool good = size == sizeof message && message.version == protocol::kShimProtocolVersion;
    if (good && fds[0] >= 0 && fds[1] >= 0) {
      start(fds[0], fds[1]);
    } else if (fds[0] >= 0) {
      Failure failure;
      failure.set("read", "a spawn message of another version", EPROTO);
      send_failure(fds[0], failure);
      close(fds[0]);
    }
    if (fds[1] >= 0) close(fds[1]);
    return true;
  }

  void start(int control, int request) {
    Failure failure;
    Shim* place = find(0);
    const uid_t uid = geteuid();
    const gid_t gid = getegid();
    const pid_t pid = place ? clone_process(namespaces_) : -1;
    if (pid == 0) run_shim(control, request, namespaces_, uid, gid);
    if (pid < 0) {
      failure.set("start", place ? "a shim" : "one more shim", place ? errno : EAGAIN);
      send_failure(control, failure);
      close(control);
      return;
    }
    *place = {pid, control};
    protocol::ShimReport report;
    report.kind = protocol::ShimReportKind::spawned;
    report.value = pid;
    const int handle = open_pidfd(pid);
    send_report(control, report, handle);
    if (handle >= 0) close(handle);
  }

  Namespaces namespaces_;
  bool dead_ = false;  // some shim is
};

}  // namespace

int run_spawner(bool namespaces) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  // Its own session: a terminal's Ctrl-C is the daemon's alone.
  setsid();
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  close_range(kSocket + 1, ~0u, 0);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd <= 2; ++fd) dup2(null, fd);
  close(null);
  fcntl(kSocket, F_SETFD, FD_CLOEXEC);
  return Spawner(choose_namespaces(namespaces)).run();
}

}  // namespace omni::shim
