// An Endpoint as the kernel wants it.
#pragma once

#include <sys/socket.h>

#include "base/endpoint.h"
#include "base/result.h"

namespace omni::http {

class SocketAddress {
 public:
  // Errors: invalid_config for a host that is no numeric address, or a socket path over 107 bytes.
  static Result<SocketAddress> of(const Endpoint& endpoint);

  int family() const { return storage_.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return size_; }

 private:
  sockaddr_storage storage_{};
  socklen_t size_ = 0;
};

}  // namespace omni::http
