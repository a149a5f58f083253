#include "base/endpoint.h"

#include <fmt/format.h>

namespace omni {

std::string to_string(const Endpoint& endpoint) {
  if (endpoint.kind == Endpoint::Kind::unix_socket) return "unix:" + endpoint.path;
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  return fmt::format(fmt::runtime(v6 ? "[{}]:{}" : "{}:{}"), endpoint.host, endpoint.port);
}

}  // namespace omni
