#include "base/sha256.h"

#include <gtest/gtest.h>

#include <set>

namespace omni {
namespace {

TEST(Sha256, IsTheStandardsDigest) {
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Sha256, FieldsAreNotTheirConcatenation) {
  const auto hash = [](std::string_view a, std::string_view b) {
    Sha256 sha;
    sha.field(a);
    sha.field(b);
    return sha.finish();
  };
  EXPECT_NE(hash("ab", "c"), hash("a", "bc"));
}

TEST(Secrets, AreComparedWhole) {
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_in_constant_time("abc", "ab"));
}

TEST(Secrets, AreNeverTheSame) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(seen.insert(random_hex(16)).second);
  EXPECT_EQ(seen.begin()->size(), 32u);
}

}  // namespace
}  // namespace omni
