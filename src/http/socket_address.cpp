#include "http/socket_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <cstring>

namespace omni::http {

Result<SocketAddress> SocketAddress::of(const Endpoint& endpoint) {
  SocketAddress address;
  if (endpoint.kind == Endpoint::Kind::unix_socket) {
    auto& un = reinterpret_cast<sockaddr_un&>(address.storage_);
    if (endpoint.path.empty() || endpoint.path.size() >= sizeof(un.sun_path)) {
      return Error{ErrorCode::invalid_config,
                   fmt::format("socket path \"{}\" has {} bytes, the system allows 1 to {}",
                               endpoint.path, endpoint.path.size(), sizeof(un.sun_path) - 1)};
    }
    un.sun_family = AF_UNIX;
    std::memcpy(un.sun_path, endpoint.path.c_str(), endpoint.path.size() + 1);
    address.size_ = sizeof(sockaddr_un);
    return address;
  }
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage_);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage_);
  if (::inet_pton(AF_INET, endpoint.host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(endpoint.port);
    address.size_ = sizeof(sockaddr_in);
  } else if (::inet_pton(AF_INET6, endpoint.host.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(endpoint.port);
    address.size_ = sizeof(sockaddr_in6);
  } else {
    return Error{ErrorCode::invalid_config,
                 fmt::format("\"{}\" is no numeric IPv4 or IPv6 address", endpoint.host)};
  }
  return address;
}

}  // namespace omni::http
