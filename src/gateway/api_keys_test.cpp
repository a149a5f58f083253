#include "gateway/api_keys.h"

#include <gtest/gtest.h>

#include "base/sha256.h"

namespace omni::gateway {
namespace {

NodeConfig with_keys() {
  NodeConfig config;
  config.keys = {{"alice", sha256_hex("k-alice")}, {"bob", sha256_hex("k-bob")}};
  return config;
}

// The key's name, or why not.
std::string outcome(std::string_view header, std::string_view value, const NodeConfig& config) {
  http::RequestHead head;
  if (!header.empty()) head.headers.add(std::string(header), std::string(value));
  auto name = check_key(head, config);
  return name.ok() ? std::string(*name) : std::string(name.error().info().name);
}

TEST(ApiKeys, EachHasItsName) {
  const NodeConfig config = with_keys();
  EXPECT_EQ(outcome("Authorization", "Bearer k-alice", config), "alice");
  EXPECT_EQ(outcome("authorization", "bearer   k-bob", config), "bob");
  EXPECT_EQ(outcome("X-API-Key", "k-bob", config), "bob");
}

TEST(ApiKeys, WhatIsNoneIsRefused) {
  const NodeConfig config = with_keys();
  for (const char* value : {"Bearer", "Bearer ", "Bearer k-alic", "Bearer k-alicee",
                            "Basic k-alice", "k-alice", "Bearer k-alice k-bob", ""}) {
    EXPECT_EQ(outcome("Authorization", value, config), "invalid_api_key") << value;
  }
  EXPECT_EQ(outcome("", "", config), "invalid_api_key");
  EXPECT_EQ(outcome("X-API-Key", sha256_hex("k-bob"), config), "invalid_api_key")
      << "the digest in the file is no key";
}

TEST(ApiKeys, WithoutAnyNoneIsNeeded) {
  EXPECT_EQ(outcome("", "", NodeConfig()), "");
  EXPECT_EQ(outcome("Authorization", "Bearer whatever", NodeConfig()), "");
}

}  // namespace
}  // namespace omni::gateway
