#include "cli/host_facts.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>

#include "base/endpoint.h"
#include "base/fd.h"
#include "base/files.h"
#include "cli/daemon.h"

namespace omni::cli {
namespace {

namespace fs = std::filesystem;

std::optional<fs::path> find_in_path(std::string_view program) {
  const char* variable = std::getenv("PATH");
  std::string_view rest = variable == nullptr ? "" : variable;
  while (!rest.empty()) {
    const std::size_t colon = rest.find(':');
    const fs::path candidate = fs::path(rest.substr(0, colon)) / program;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    rest = colon == rest.npos ? std::string_view() : rest.substr(colon + 1);
  }
  return std::nullopt;
}

// Installed, and in a build tree, as ../lib/omni/omni-shim beside bin/omni.
std::optional<fs::path> find_shim() {
  std::error_code status;
  const fs::path program = fs::read_symlink("/proc/self/exe", status);
  const fs::path shim = program.parent_path().parent_path() / "lib/omni/omni-shim";
  if (status || ::access(shim.c_str(), X_OK) != 0) return std::nullopt;
  return shim;
}

// Tries what an instance's start does, in a child: a flag in /proc says less than an attempt.
int try_namespaces() {
  const int flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
                    (::geteuid() == 0 ? 0 : CLONE_NEWUSER);
  const pid_t child = ::fork();
  if (child < 0) return errno;
  if (child == 0) ::_exit(::unshare(flags) == 0 ? 0 : errno);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return errno;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : EINVAL;
}

// The own group of the unified hierarchy, from "0::/path".
fs::path own_cgroup() {
  const Result<std::string> groups = read_file("/proc/self/cgroup");
  const std::size_t at = groups.ok() ? groups->find("0::/") : std::string::npos;
  if (at == std::string::npos) return "/sys/fs/cgroup";
  const std::size_t begin = at + 4;
  return fs::path("/sys/fs/cgroup") / groups->substr(begin, groups->find('\n', begin) - begin);
}

void gather_cgroup(HostFacts& facts) {
  std::error_code status;
  if (fs::exists("/sys/fs/cgroup/cgroup.controllers", status)) {
    facts.cgroup = CgroupVersion::v2;
    facts.cgroup_writable = ::access(own_cgroup().c_str(), W_OK) == 0;
  } else if (fs::exists("/sys/fs/cgroup/memory", status)) {
    facts.cgroup = CgroupVersion::v1;
    facts.cgroup_writable = ::access("/sys/fs/cgroup/memory", W_OK) == 0;
  }
}

Bytes meminfo(std::string_view text, std::string_view name) {
  const std::size_t at = text.find(name);
  if (at == text.npos) return {};
  text.remove_prefix(at + name.size());
  text.remove_prefix(std::min(text.find_first_of("0123456789"), text.size()));
  std::int64_t kibibytes = 0;
  std::from_chars(text.data(), text.data() + text.size(), kibibytes);
  return Bytes(kibibytes << 10);
}

int try_bind(const Listen& listen) {
  sockaddr_storage storage{};
  socklen_t length = 0;
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  if (::inet_pton(AF_INET6, listen.host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(listen.port);
    length = sizeof *v6;
  } else if (::inet_pton(AF_INET, listen.host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(listen.port);
    length = sizeof *v4;
  } else {
    return EINVAL;
  }
  Fd socket(::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return errno;
  // As the daemon does: connections that are closing do not hold the port.
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (storage.ss_family == AF_INET6) {
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  }
  return ::bind(socket.get(), reinterpret_cast<sockaddr*>(&storage), length) == 0 ? 0 : errno;
}

void gather_run_folder(const NodePaths& paths, HostFacts& facts) {
  facts.run_folder = paths.run;
  facts.socket_path_length = paths.admin_socket().native().size();
  struct stat status{};
  facts.run_folder_exists = ::stat(paths.run.c_str(), &status) == 0;
  if (facts.run_folder_exists) {
    facts.run_folder_own = S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
                           ::access(paths.run.c_str(), R_OK | W_OK | X_OK) == 0;
    facts.run_folder_private = (status.st_mode & 0022) == 0;
    return;
  }
  facts.run_folder_private = true;
  fs::path parent = paths.run;
  std::error_code missing;
  while (parent.has_relative_path() && !fs::exists(parent, missing)) parent = parent.parent_path();
  facts.run_folder_own = ::access(parent.c_str(), W_OK | X_OK) == 0;
}

void gather_config(const NodePaths& paths, HostFacts& facts) {
  const Result<NodeConfig> config = load_node_config(paths.config / "omni.toml", false);
  if (!config.ok()) {
    facts.config_error = config.error();
    return;
  }
  facts.host_budget = config->host_memory;
  for (const Listen& listen : config->listen) {
    facts.listen.push_back(
        {to_string(Endpoint::tcp_at(listen.host, listen.port)), try_bind(listen)});
  }
}

}  // namespace

HostFacts gather_host_facts(const NodePaths& paths, const std::string& socket,
                            const std::string& root) {
  HostFacts facts;
  facts.root_user = ::geteuid() == 0;
  facts.uv = find_in_path("uv");
  facts.curl = find_in_path("curl");
  facts.python3 = find_in_path("python3");
  facts.shim = find_shim();
  facts.namespaces_error = try_namespaces();
  gather_cgroup(facts);
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) facts.open_files = files.rlim_max;
  if (const Result<std::string> text = read_file("/proc/meminfo"); text.ok()) {
    facts.memory_total = meminfo(*text, "MemTotal:");
    facts.memory_available = meminfo(*text, "MemAvailable:");
  }
  gather_config(paths, facts);
  gather_run_folder(paths, facts);
  Result<std::string> daemon = find_daemon(socket, root);
  if (daemon.ok()) {
    facts.daemon_socket = *std::move(daemon);
  } else {
    facts.daemon_error = std::move(daemon).error();
  }
  return facts;
}

}  // namespace omni::cli
