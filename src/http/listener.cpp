#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>

#include "http/server.h"
#include "http/socket_address.h"

namespace omni::http {
namespace {

// What the kernel holds for us while a loop turn is long; the system's own maximum is 4096.
constexpr int kBacklog = 4096;

void set_option(int socket, int level, int option, int value) {
  // An option that the kernel refuses costs comfort, never correctness.
  ::setsockopt(socket, level, option, &value, sizeof(value));
}

// Accepted sockets inherit these, which saves the calls for each.
void set_tcp_options(int socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  // A client whose machine vanished sends no FIN: its long wait ends after about two minutes.
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 60);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 20);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

Error listen_error(const Endpoint& endpoint, int error_number) {
  const std::string what = "cannot listen on " + to_string(endpoint);
  if (error_number == EADDRINUSE) {
    return {ErrorCode::already_running,
            what + ": another process listens there; stop it or choose another address"};
  }
  return errno_error(what, error_number);
}

Result<Fd> new_socket(const SocketAddress& address, const Endpoint& endpoint) {
  Fd socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return listen_error(endpoint, errno);
  if (address.family() == AF_INET6) set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  return socket;
}

std::uint16_t bound_port(int socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&storage), &size);
  if (storage.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

Result<Listener> listen_tcp(const Endpoint& endpoint, bool beside) {
  TRY(const SocketAddress address, SocketAddress::of(endpoint));
  TRY(Fd socket, new_socket(address, endpoint));
  set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (beside) set_option(socket.get(), SOL_SOCKET, SO_REUSEPORT, 1);
  if (::bind(socket.get(), address.get(), address.size()) != 0) {
    return listen_error(endpoint, errno);
  }
  // Only now, and before listen(): a second daemon was refused above, and the kernel spreads new
  // connections over the sockets that had the option when they began to listen.
  set_option(socket.get(), SOL_SOCKET, SO_REUSEPORT, 1);
  set_tcp_options(socket.get());
  if (::listen(socket.get(), kBacklog) != 0) return listen_error(endpoint, errno);
  Endpoint bound = endpoint;
  bound.port = bound_port(socket.get());
  return Listener{std::move(socket), std::move(bound)};
}

// A socket file outlives a crashed daemon. Whether somebody still listens is asked, never guessed:
// removing a live daemon's file would cut it off silently.
Result<void> remove_stale(const Endpoint& endpoint, const SocketAddress& address) {
  struct stat file{};
  if (::lstat(endpoint.path.c_str(), &file) == 0 && !S_ISSOCK(file.st_mode)) {
    return Error{ErrorCode::io_error,
                 fmt::format("cannot listen on {}: the file exists and is no socket; remove it",
                             to_string(endpoint))};
  }
  TRY(const Fd probe, new_socket(address, endpoint));
  const int connected = ::connect(probe.get(), address.get(), address.size());
  // EAGAIN: it listens, with a full backlog.
  if (connected == 0 || errno == EAGAIN) return listen_error(endpoint, EADDRINUSE);
  if (errno != ECONNREFUSED && errno != ENOENT) return listen_error(endpoint, errno);
  if (::unlink(endpoint.path.c_str()) != 0 && errno != ENOENT) return listen_error(endpoint, errno);
  return {};
}

Result<Listener> listen_unix(const Endpoint& endpoint, int mode) {
  TRY(const SocketAddress address, SocketAddress::of(endpoint));
  TRY(Fd socket, new_socket(address, endpoint));
  // Before bind() the mode is that of the file to be: at no moment can others connect.
  ::fchmod(socket.get(), static_cast<mode_t>(mode));
  if (::bind(socket.get(), address.get(), address.size()) != 0) {
    if (errno != EADDRINUSE) return listen_error(endpoint, errno);
    CHECK(remove_stale(endpoint, address));
    if (::bind(socket.get(), address.get(), address.size()) != 0) {
      return listen_error(endpoint, errno);
    }
  }
  // bind() applied the umask, which may be narrower than asked.
  if (::chmod(endpoint.path.c_str(), static_cast<mode_t>(mode)) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    return listen_error(endpoint, errno);
  }
  return Listener{std::move(socket), endpoint};
}

}  // namespace

Result<Listener> listen_on(const Endpoint& endpoint, int unix_mode) {
  if (endpoint.kind == Endpoint::Kind::unix_socket) return listen_unix(endpoint, unix_mode);
  return listen_tcp(endpoint, false);
}

Result<Listener> listen_beside(const Listener& first) {
  if (first.endpoint.kind == Endpoint::Kind::tcp) return listen_tcp(first.endpoint, true);
  // A Unix socket has no SO_REUSEPORT: the threads share one queue.
  Fd copy(::fcntl(first.socket.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) return listen_error(first.endpoint, errno);
  return Listener{std::move(copy), first.endpoint};
}

}  // namespace omni::http
