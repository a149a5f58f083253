#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "http/http_test_support.h"
#include "http/server.h"

namespace omni::http {
namespace {

using namespace test;

TEST(Listen, RefusesAddressInUseAndSharesItAmongThreads) {
  auto first = listen_on(Endpoint::tcp_at("127.0.0.1", 0));
  ASSERT_TRUE(first.ok()) << first.error().message;
  ASSERT_NE(first->endpoint.port, 0);
  const auto second = listen_on(first->endpoint);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::already_running);
  const auto beside = listen_beside(*first);
  EXPECT_TRUE(beside.ok());
}

TEST(Listen, TakesIpv6BesideIpv4) {
  auto v6 = listen_on(Endpoint::tcp_at("::1", 0));
  if (!v6.ok()) GTEST_SKIP() << "no IPv6 here: " << v6.error().message;
  EXPECT_TRUE(listen_on(Endpoint::tcp_at("127.0.0.1", v6->endpoint.port)).ok());
}

TEST(Listen, ReplacesStaleSocketFileButNoLiveOne) {
  TempFolder folder;
  const Endpoint endpoint = Endpoint::unix_at((folder.path() / "s").string());
  {
    const auto crashed = listen_on(endpoint, 0660);
    ASSERT_TRUE(crashed.ok());
    struct stat file{};
    ::stat(endpoint.path.c_str(), &file);
    EXPECT_EQ(file.st_mode & 0777, 0660u);
    const auto second = listen_on(endpoint);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, ErrorCode::already_running);
    EXPECT_TRUE(listen_beside(*crashed).ok());
  }
  EXPECT_TRUE(listen_on(endpoint).ok());
}

TEST(Listen, RemovesNothingButSockets) {
  TempFolder folder;
  const std::string path = (folder.path() / "precious").string();
  ASSERT_TRUE(std::ofstream(path) << "data");
  const auto listener = listen_on(Endpoint::unix_at(path));
  ASSERT_FALSE(listener.ok());
  EXPECT_NE(listener.error().message.find(path), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(Listen, RefusesWhatIsNoAddress) {
  for (const Endpoint& endpoint : {Endpoint::tcp_at("localhost", 0), Endpoint::unix_at(""),
                                   Endpoint::unix_at("/" + std::string(107, 'x'))}) {
    const auto listener = listen_on(endpoint);
    ASSERT_FALSE(listener.ok());
    EXPECT_EQ(listener.error().code, ErrorCode::invalid_config);
  }
}

}  // namespace
}  // namespace omni::http
