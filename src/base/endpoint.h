// Where an instance or a daemon listens.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace omni {

struct Endpoint {
  enum class Kind : std::uint8_t { unix_socket, tcp };

  Kind kind = Kind::unix_socket;
  std::string path;  // unix_socket: the socket file
  std::string host;  // tcp: a numeric address, "127.0.0.1" or "::1"
  std::uint16_t port = 0;

  static Endpoint unix_at(std::string path) { return {Kind::unix_socket, std::move(path), {}, 0}; }
  static Endpoint tcp_at(std::string host, std::uint16_t port) {
    return {Kind::tcp, {}, std::move(host), port};
  }
  bool operator==(const Endpoint&) const = default;
};

std::string to_string(
    const Endpoint& endpoint);  // "unix:/run/x.sock", "127.0.0.1:8080", "[::1]:8080"

}  // namespace omni
