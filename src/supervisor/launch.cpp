#include "supervisor/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/files.h"
#include "protocol/shim_protocol.h"

namespace omni {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxSocketPath = sizeof(sockaddr_un::sun_path) - 1;

Result<void> check_socket_path(const std::string& path) {
  if (path.size() <= kMaxSocketPath) return {};
  return Error{ErrorCode::invalid_config,
               fmt::format("socket path {} has {} bytes, the most is {}: choose a shorter --root",
                           path, path.size(), kMaxSocketPath)};
}

Result<void> check_plan(const LaunchPlan& plan) {
  if (!plan.run_dir.is_absolute() || !plan.run_dir.has_filename() || !plan.log_file.is_absolute()) {
    return Error{ErrorCode::internal, "run folder and log file are absolute paths"};
  }
  if (plan.python) CHECK(check_socket_path((plan.run_dir / "model.sock").string()));
  if (plan.endpoint.kind == Endpoint::Kind::unix_socket) {
    CHECK(check_socket_path(plan.endpoint.path));
  }
  return {};
}

// A fresh, empty folder: sockets of an earlier instance stop some engines from starting.
Result<void> make_run_dir(const LaunchPlan& plan) {
  CHECK(make_directories(plan.run_dir.parent_path(), 0711));
  std::error_code status;
  fs::remove_all(plan.run_dir, status);
  if (status) return errno_error("cannot clear " + plan.run_dir.string(), status.value());
  if (::mkdir(plan.run_dir.c_str(), 0700) != 0) {
    return errno_error("cannot make folder " + plan.run_dir.string());
  }
  if (plan.uid && ::lchown(plan.run_dir.c_str(), *plan.uid, *plan.uid) != 0) {
    return errno_error("cannot give " + plan.run_dir.string() + " to the model's user");
  }
  if (plan.endpoint.kind == Endpoint::Kind::unix_socket) {
    const fs::path socket = plan.endpoint.path;
    if (fs::is_socket(socket, status)) fs::remove(socket, status);
  }
  return {};
}

// In the order in which the shim can bind them: an outer path before what lies in it, and a path
// that goes through links after the one that it leads to, because the model uses either name.
std::vector<protocol::StartRequest::Reach> reach_of(const LaunchPlan& plan) {
  std::vector<LaunchPlan::Reach> real = plan.reach;
  real.push_back({.path = plan.run_dir, .writable = true});
  std::vector<LaunchPlan::Reach> linked;
  for (LaunchPlan::Reach& reach : real) {
    const fs::path given = reach.path.lexically_normal();
    std::error_code status;
    reach.path = fs::weakly_canonical(given, status);
    if (status) reach.path = given;
    if (reach.path != given) linked.push_back({.path = given, .writable = reach.writable});
  }
  std::vector<protocol::StartRequest::Reach> out;
  for (std::vector<LaunchPlan::Reach>* list : {&real, &linked}) {
    std::ranges::sort(*list, {}, [](const LaunchPlan::Reach& reach) {
      return std::pair(std::distance(reach.path.begin(), reach.path.end()), reach.writable);
    });
    for (const auto& reach : *list) out.push_back({reach.path.string(), reach.writable});
  }
  return out;
}

protocol::StartRequest request_of(const LaunchPlan& plan) {
  protocol::StartRequest request;
  request.argv = plan.argv;
  for (const auto& [name, value] : plan.env) request.env.push_back(name + "=" + value);
  request.working_directory = plan.working_directory.string();
  request.run_dir = plan.run_dir.string();
  request.log_file = plan.log_file.string();
  request.python = plan.python;
  if (plan.uid) {
    request.has_uid = true;
    request.uid = *plan.uid;
    request.reach = reach_of(plan);
  }
  return request;
}

Result<Fd> sealed_file(std::string_view content) {
  Fd file(::memfd_create("omni-start", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return errno_error("cannot make a start request");
  while (!content.empty()) {
    const ssize_t n = ::write(file.get(), content.data(), content.size());
    if (n < 0) return errno_error("cannot write a start request");
    content.remove_prefix(static_cast<std::size_t>(n));
  }
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
  if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    return errno_error("cannot seal a start request");
  }
  return file;
}

}  // namespace

Result<Prepared> prepare_launch(const LaunchPlan& plan) {
  CHECK(check_plan(plan));
  TRY(std::string encoded, encode(request_of(plan)));
  CHECK(make_run_dir(plan));
  std::error_code status;
  fs::create_directories(plan.log_file.parent_path(), status);
  if (status) {
    return errno_error("cannot make folder " + plan.log_file.parent_path().string(),
                       status.value());
  }
  Prepared prepared;
  const std::uintmax_t size = fs::file_size(plan.log_file, status);
  prepared.log_offset = status ? 0 : size;
  TRY(prepared.request, sealed_file(encoded));
  return prepared;
}

Result<Fd> send_launch(int spawner, const Fd& request) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
    return errno_error("cannot make a control socket");
  }
  Fd near_end(pair[0]);
  const Fd far_end(pair[1]);

  protocol::SpawnMessage body;
  const int fds[] = {far_end.get(), request.get()};
  iovec part{&body, sizeof body};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof fds)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fds);
  std::memcpy(CMSG_DATA(header), fds, sizeof fds);

  ssize_t sent;
  do {
    sent = ::sendmsg(spawner, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return near_end;
  if (errno == EAGAIN || errno == ETOOMANYREFS) {
    return Error{ErrorCode::overloaded, "the spawner's queue is full"};
  }
  return errno_error("the spawner has ended, restart omni");
}

void remove_run_dir(const LaunchPlan& plan) {
  std::error_code ignored;
  fs::remove_all(plan.run_dir, ignored);
  if (plan.endpoint.kind == Endpoint::Kind::unix_socket) {
    if (fs::is_socket(plan.endpoint.path, ignored)) fs::remove(plan.endpoint.path, ignored);
  }
}

}  // namespace omni
