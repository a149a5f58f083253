#include "shim.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "confine.h"
#include "control.h"
#include "log_file.h"
#include "pidfd.h"
#include "processes.h"
#include "protocol/model_protocol.h"
#include "start_request.h"

namespace omni::shim {
namespace {

using protocol::ShimCommand;
using protocol::ShimCommandKind;
using protocol::ShimReport;
using protocol::ShimReportKind;

constexpr int kControlFd = 3;
constexpr int kRequestFd = 4;
constexpr int kKillRoundMs = 10;  // between two rounds of SIGKILL while processes remain
constexpr int kLogPipeBytes =
    1 << 20;  // what a model may write while a slow disk holds the shim up

Start start;
LogFile logs;
char buffer[64 * 1024];

// What the child could not do, told through a pipe that a successful exec closes.
struct ChildFailure {
  enum Step { none, become_user, enter_folder, execute } step = none;
  int error = 0;
};

[[noreturn]] void give_up(const Failure& failure) {
  send_failure(kControlFd, failure);
  _exit(1);
}

// The shim holds nothing of the spawner's and of the daemon's: no terminal, no other control
// socket.
void keep_only(int control, int request) {
  const int high_control = fcntl(control, F_DUPFD_CLOEXEC, 16);
  const int high_request = fcntl(request, F_DUPFD_CLOEXEC, 16);
  dup3(high_control, kControlFd, O_CLOEXEC);
  dup3(high_request, kRequestFd, O_CLOEXEC);
  close_range(kRequestFd + 1, ~0u, 0);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd <= 2; ++fd) dup2(null, fd);
  close(null);
}

void become_supervisor() {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  setsid();
  umask(022);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  // Under memory pressure the kernel takes a model before the daemon and the rest of the host.
  const int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (score >= 0) {
    [[maybe_unused]] const ssize_t ignored = write(score, "500", 3);
    close(score);
  }
}

// The socket that the runtime will find as descriptor 3.
int make_model_socket(Failure& failure) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const int length =
      std::snprintf(address.sun_path, sizeof address.sun_path, "%s/model.sock", start.run_dir);
  if (length >= static_cast<int>(sizeof address.sun_path)) {
    return failure.set("bind", start.run_dir, ENAMETOOLONG), -1;
  }
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  unlink(address.sun_path);
  const mode_t mask = umask(0177);
  const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  umask(mask);
  if (!bound || listen(fd, 128) != 0) return failure.set("bind", address.sun_path), -1;
  const uid_t uid = start.header.uid;
  if (start.header.has_uid && lchown(address.sun_path, uid, uid) != 0) {
    return failure.set("give to the model's user", address.sun_path), -1;
  }
  return fd;
}

// All to their default, by the system call: the library keeps two numbers to itself, and a daemon
// that was started with them ignored hands that down.
void reset_signals() {
  struct {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)();
    unsigned long mask;
  } action{SIG_DFL, 0, nullptr, 0};
  for (int number = 1; number <= 64; ++number) {
    syscall(SYS_rt_sigaction, number, &action, nullptr, sizeof action.mask);
  }
}

[[noreturn]] void run_child(int log, int model_socket, int failures) {
  ChildFailure failure;
  const auto stop_at = [&](ChildFailure::Step step) {
    failure = {step, errno};
    [[maybe_unused]] const ssize_t ignored = write(failures, &failure, sizeof failure);
    _exit(127);
  };
  reset_signals();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);

  dup2(log, 1);
  dup2(log, 2);
  // Out of the way of descriptor 3, which the model socket gets.
  const int high_failures = fcntl(failures, F_DUPFD_CLOEXEC, 16);
  if (model_socket >= 0) dup2(model_socket, protocol::kModelSocketFd);
  failures = high_failures;
  close_range(model_socket >= 0 ? 4 : 3, static_cast<unsigned>(failures - 1), 0);
  close_range(static_cast<unsigned>(failures + 1), ~0u, 0);

  if (start.header.has_uid && !become(start.header.uid)) stop_at(ChildFailure::become_user);
  // Behind the change of user, which clears it: a killed shim takes the command with it.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (chdir(start.working_directory) != 0) stop_at(ChildFailure::enter_folder);
  environ = start.envp;  // execvp looks a bare name up in the PATH that the command will see
  execvp(start.argv[0], start.argv);
  stop_at(ChildFailure::execute);
  _exit(127);
}

bool await_exec(int failures, Failure& failure) {
  ChildFailure report;
  ssize_t size;
  do {
    size = read(failures, &report, sizeof report);
  } while (size < 0 && errno == EINTR);
  close(failures);
  if (size != sizeof report) return true;
  switch (report.step) {
    case ChildFailure::become_user:
      return failure.set("become", "the model's user", report.error);
    case ChildFailure::enter_folder:
      return failure.set("enter", start.working_directory, report.error);
    default:
      return failure.set("run", start.argv[0], report.error);
  }
}

// The loop that stays: signals, commands, log, reaping.
class Supervision {
 public:
  Supervision(pid_t main, int log, int signals, bool own_namespace)
      : main_(main), log_(log), signals_(signals), own_namespace_(own_namespace) {}

  void run() {
    while (reap()) {
      if (killing_) kill_all();
      pollfd fds[] = {{signals_, POLLIN, 0}, {control_, POLLIN, 0}, {log_, POLLIN, 0}};
      if (poll(fds, 3, killing_ ? kKillRoundMs : -1) < 0) continue;
      if (fds[0].revents) read_signals();
      if (fds[1].revents) read_command();
      if (fds[2].revents) copy_log();
    }
    while (copy_log()) {
    }
    write_record();
    report(ShimReportKind::empty);
  }

  void report(ShimReportKind kind, int value = 0, int fd = -1) const {
    ShimReport message;
    message.kind = kind;
    message.value = value;
    message.log_bytes = logs.bytes();
    message.dropped_bytes = logs.dropped();
    if (control_ >= 0) send_report(control_, message, fd);
  }

 private:
  // False when no child is left, and with a reaper of orphans that means: no descendant.
  bool reap() {
    for (;;) {
      int status = 0;
      const pid_t pid = waitpid(-1, &status, WNOHANG | __WALL);
      if (pid == 0) return true;
      if (pid < 0) return errno == EINTR;
      if (pid != main_) continue;
      // The instance ends with its main process; what that left behind is not kept.
      main_ = 0;
      status_ = status;
      killing_ = true;
      report(ShimReportKind::exited, status);
    }
  }

  void kill_all() {
    if (own_namespace_) {
      // Everything but the caller, which is pid 1 of the namespace.
      kill(-1, SIGKILL);
    } else {
      kill_descendants(getpid(), nullptr);
    }
  }

  void read_signals() {
    signalfd_siginfo info;
    while (read(signals_, &info, sizeof info) == sizeof info) {
      const int number = static_cast<int>(info.ssi_signo);
      if (number != SIGCHLD && main_ > 0) kill(main_, number);
    }
  }

  void read_command() {
    ShimCommand command;
    int fds[2];
    const long size = receive(control_, &command, sizeof command, fds);
    for (const int fd : fds) {
      if (fd >= 0) close(fd);
    }
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) {
      // The daemon is gone, and nobody is left who could use or stop this instance.
      close(control_);
      control_ = -1;
      killing_ = true;
      return;
    }
    if (size != sizeof command || command.version != protocol::kShimProtocolVersion) return;
    switch (command.kind) {
      case ShimCommandKind::signal:
        if (main_ > 0) kill(main_, command.signal);
        break;
      case ShimCommandKind::kill_tree:
        killing_ = true;
        break;
      case ShimCommandKind::status:
        report(ShimReportKind::status);
        break;
    }
  }

  // One buffer a call, so that a flood does not keep signals and commands waiting. False when there
  // is nothing more now.
  bool copy_log() {
    if (log_ < 0) return false;
    const ssize_t size = read(log_, buffer, sizeof buffer);
    if (size > 0) logs.write(buffer, static_cast<std::size_t>(size));
    if (size == 0) {
      close(log_);
      log_ = -1;
    }
    return size > 0;
  }

  // <run_dir>/exit.json, for a daemon that was not there. Written as a new file and renamed: the
  // folder is the model's, and a link that it left there is not followed.
  void write_record() const {
    const int folder = open(start.run_dir, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    unlinkat(folder, ".exit.json", 0);
    const int file =
        openat(folder, ".exit.json", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (file < 0) return;
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const bool by_signal = WIFSIGNALED(status_);
    const int length = std::snprintf(
        buffer, sizeof buffer,
        "{\"version\":1,\"%s\":%d,\"log_bytes\":%llu,\"dropped_bytes\":%llu,\"ended_at\":%lld}\n",
        by_signal ? "signal" : "exit_code", by_signal ? WTERMSIG(status_) : WEXITSTATUS(status_),
        static_cast<unsigned long long>(logs.bytes()),
        static_cast<unsigned long long>(logs.dropped()), static_cast<long long>(now.tv_sec));
    const bool written = write(file, buffer, static_cast<std::size_t>(length)) == length;
    close(file);
    if (written) renameat(folder, ".exit.json", folder, "exit.json");
  }

  pid_t main_;
  int control_ = kControlFd;
  int log_;
  int signals_;
  bool own_namespace_;
  bool killing_ = false;
  int status_ = 0;
};

int make_signal_fd() {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT}) sigaddset(&wanted, number);
  return signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
}

bool confine(Namespaces namespaces, uid_t uid, gid_t gid, Failure& failure) {
  if (namespaces.user && !map_own_user(uid, gid, failure)) return false;
  // From here on nobody of the same user looks into the shim's memory or descriptors.
  prctl(PR_SET_DUMPABLE, 0);
  // Before the mounts: they can hide the log's folder.
  if (!logs.open(start.log_file, failure)) return false;
  if (namespaces.pid && !enter_mount_namespace(failure)) return false;
  if (!start.header.has_uid) return true;
  return namespaces.pid ? bind_reach(start, failure) : check_reach(start, failure);
}

}  // namespace

void run_shim(int control, int request, Namespaces namespaces, uid_t uid, gid_t gid) {
  keep_only(control, request);
  become_supervisor();
  Failure failure;
  if (!read_start(kRequestFd, start, failure)) give_up(failure);
  close(kRequestFd);
  if (!confine(namespaces, uid, gid, failure)) give_up(failure);
  const int model_socket = start.header.python ? make_model_socket(failure) : -1;
  if (start.header.python && model_socket < 0) give_up(failure);

  int log[2];
  int failures[2];
  if (pipe2(log, O_CLOEXEC) != 0 || pipe2(failures, O_CLOEXEC) != 0) {
    failure.set("make", "a pipe");
    give_up(failure);
  }
  fcntl(log[1], F_SETPIPE_SZ, kLogPipeBytes);  // refused to users over their limit: then 64 KiB
  fcntl(log[0], F_SETFL, O_NONBLOCK);
  const int signals = make_signal_fd();

  const pid_t main = fork();
  if (main < 0) {
    failure.set("fork", start.argv[0]);
    give_up(failure);
  }
  if (main == 0) run_child(log[1], model_socket, failures[1]);
  close(log[1]);
  close(failures[1]);
  if (model_socket >= 0) close(model_socket);
  drop_capabilities();
  if (!await_exec(failures[0], failure)) give_up(failure);

  Supervision supervision(main, log[0], signals, namespaces.pid);
  const int handle = open_pidfd(main);
  supervision.report(ShimReportKind::started, 0, handle);
  if (handle >= 0) close(handle);
  supervision.run();
  _exit(0);
}

}  // namespace omni::shim
