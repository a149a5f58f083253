#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>

#include "protocol/shim_protocol.h"
#include "supervisor/instance.h"

namespace omni {
namespace {

constexpr int kHelloTimeoutMs = 5'000;  // exec and one probe of namespaces, on a loaded machine
constexpr int kEndTimeoutMs = 1'000;    // it only has to leave its loop

bool readable(int fd, int timeout_ms) {
  pollfd entry{fd, POLLIN, 0};
  int ready;
  do {
    ready = ::poll(&entry, 1, timeout_ms);
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

Result<pid_t> spawn(const std::filesystem::path& program, int socket, bool namespaces) {
  std::string name = program.string();
  std::string mode = "--spawner";
  std::string option = "--no-namespaces";
  char* argv[] = {name.data(), mode.data(), namespaces ? nullptr : option.data(), nullptr};
  char* env[] = {nullptr};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, socket, protocol::kSpawnerSocketFd);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, name.c_str(), &actions, nullptr, argv, env);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return errno_error("cannot run " + name, error);
  return pid;
}

}  // namespace

struct Spawner::Impl {
  std::filesystem::path program;
  Options options;
  Fd socket;
  pid_t pid = 0;
  bool pid_namespaces = false;

  ~Impl() {
    socket.reset();
    if (pid <= 0) return;
    const Fd handle(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!handle || !readable(handle.get(), kEndTimeoutMs)) ::kill(pid, SIGKILL);
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
};

Result<std::unique_ptr<Spawner>> Spawner::start(const std::filesystem::path& omni_shim) {
  return start(omni_shim, Options{});
}

Result<std::unique_ptr<Spawner>> Spawner::start(const std::filesystem::path& omni_shim,
                                                Options options) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return errno_error("cannot make the spawner's socket");
  }
  auto impl = std::make_unique<Impl>();
  impl->program = omni_shim;
  impl->options = options;
  impl->socket = Fd(pair[0]);
  Fd far_end(pair[1]);
  TRY(impl->pid, spawn(omni_shim, far_end.get(), options.namespaces));
  far_end.reset();

  protocol::SpawnerHello hello;
  const bool told = readable(impl->socket.get(), kHelloTimeoutMs) &&
                    ::recv(impl->socket.get(), &hello, sizeof hello, 0) == sizeof hello;
  if (!told) {
    return Error{ErrorCode::internal, omni_shim.string() + " --spawner does not answer"};
  }
  if (hello.version != protocol::kShimProtocolVersion) {
    return Error{ErrorCode::internal,
                 omni_shim.string() + " is of another version of omni: install both together"};
  }
  impl->pid_namespaces = hello.pid_namespaces != 0;
  return std::unique_ptr<Spawner>(new Spawner(std::move(impl)));
}

Spawner::Spawner(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Spawner::~Spawner() = default;
bool Spawner::pid_namespaces() const { return impl_->pid_namespaces; }
pid_t Spawner::pid() const { return impl_->pid; }

bool Spawner::alive() const {
  siginfo_t info{};
  const auto id = static_cast<id_t>(impl_->pid);
  return ::waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

Result<void> Spawner::restart() {
  TRY(std::unique_ptr<Spawner> fresh, start(impl_->program, impl_->options));
  impl_ = std::move(fresh->impl_);
  return {};
}
int Spawner::socket() const { return impl_->socket.get(); }

}  // namespace omni
