// tests/fakes/hub.py as a process of the test: a hub, and a server that it sends downloads to.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <boost/json.hpp>
#include <cstdio>
#include <string>

#include "base/fd.h"
#include "provision/digest.h"

namespace omni {

inline std::string sha256_of(std::string_view content) {
  Sha256 hash;
  hash.update(content);
  return hash.finish();
}

// A file's content that no other seed has, and that does not look the same at any two offsets.
inline std::string content_of(std::size_t size, unsigned seed = 1) {
  std::string content;
  content.reserve(size + 16);
  for (std::uint32_t state = seed; content.size() < size;) {
    state = state * 1664525 + 1013904223;
    content.append(reinterpret_cast<const char*>(&state), sizeof state);
  }
  content.resize(size);
  return content;
}

// One request as the server saw it.
struct Seen {
  std::string method;
  std::string at;  // "hub" or "cdn"
  std::string path;
  std::string token;
  std::string range;
  std::string if_range;
  std::int64_t sent = 0;  // bytes of the body
};

class FakeHub {
 public:
  // With a certificate there is a third server, behind TLS.
  explicit FakeHub(std::string certificate = "") {
    std::array<int, 2> to{};
    std::array<int, 2> from{};
    EXPECT_EQ(::pipe2(to.data(), O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(from.data(), O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    ::posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    std::string script = OMNI_SOURCE_DIR "/tests/fakes/hub.py";
    // Its whole path: by its name alone Python would look for its library beside another of PATH.
    std::string python = "/usr/bin/python3";
    std::array<char*, 5> argv{python.data(), const_cast<char*>("-I"), script.data(),
                              certificate.empty() ? nullptr : certificate.data(), nullptr};
    EXPECT_EQ(::posix_spawn(&pid_, python.c_str(), &actions, nullptr, argv.data(), environ), 0);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(to[0]);
    ::close(from[1]);
    input_.reset(to[1]);
    const Fd output(from[0]);
    std::array<char, 64> line{};
    const ssize_t n = ::read(output.get(), line.data(), line.size() - 1);
    EXPECT_GT(n, 0);
    EXPECT_EQ(std::sscanf(line.data(), "%d %d %d", &port_, &cdn_port_, &tls_port_), 3);
  }
  ~FakeHub() { stop(); }
  void stop() {      // no server answers there any more
    input_.reset();  // it ends with its input
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  FakeHub(const FakeHub&) = delete;
  FakeHub& operator=(const FakeHub&) = delete;

  std::string endpoint() const { return fmt::format("http://127.0.0.1:{}", port_); }
  std::string plain(const std::string& name) const {
    return fmt::format("http://127.0.0.1:{}/plain/{}", cdn_port_, name);
  }

  std::string encrypted(const std::string& name) const {
    return fmt::format("https://127.0.0.1:{}/plain/{}", tls_port_, name);
  }

  void put(const std::string& name, const std::string& content, const std::string& flags = "") {
    exchange("PUT", "/files/" + name + "?" + flags, content);
  }
  void open_gate(const std::string& name) { exchange("GET", "/open/" + name, ""); }
  std::vector<Seen> log() {
    auto text = [](const boost::json::value& value) {
      return value.is_string() ? std::string(value.get_string()) : std::string();
    };
    std::vector<Seen> seen;
    const boost::json::value list = boost::json::parse(exchange("GET", "/log", ""));
    for (const auto& value : list.get_array()) {
      const auto& entry = value.get_object();
      seen.push_back({text(entry.at("method")), text(entry.at("at")), text(entry.at("path")),
                      text(entry.at("token")), text(entry.at("range")), text(entry.at("if_range")),
                      entry.at("sent").to_number<std::int64_t>()});
    }
    return seen;
  }
  // Those that a file's content was asked with.
  std::vector<Seen> downloads() {
    std::vector<Seen> seen;
    for (Seen& entry : log()) {
      if (entry.method == "GET" && entry.at == "cdn") seen.push_back(std::move(entry));
    }
    return seen;
  }

 private:
  std::string exchange(const std::string& method, const std::string& target,
                       const std::string& body) {
    namespace ip = boost::asio::ip;
    boost::asio::io_context loop;
    ip::tcp::socket socket(loop);
    socket.connect({ip::make_address("127.0.0.1"), static_cast<unsigned short>(port_)});
    const std::string request = fmt::format(
        "{} {} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}", method,
        target, body.size(), body);
    boost::asio::write(socket, boost::asio::buffer(request));
    std::string answer;
    boost::system::error_code status;
    boost::asio::read(socket, boost::asio::dynamic_buffer(answer), status);
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200")) << answer;
    return answer.substr(answer.find("\r\n\r\n") + 4);
  }

  pid_t pid_ = 0;
  Fd input_;
  int port_ = 0;
  int cdn_port_ = 0;
  int tls_port_ = 0;
};

}  // namespace omni
