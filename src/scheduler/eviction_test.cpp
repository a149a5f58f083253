#include "scheduler/eviction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace omni::scheduling {
namespace {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

std::vector<std::size_t> chosen(std::vector<Candidate> candidates, std::int64_t needed) {
  std::vector<std::size_t> indexes;
  for (const Candidate& victim : choose_victims(std::move(candidates), Bytes(needed))) {
    indexes.push_back(victim.index);
  }
  return indexes;
}

TEST(Victims, TheLowestLossPerByteGoesFirst) {
  EXPECT_THAT(chosen({{0, Bytes(10), 5}, {1, Bytes(10), 1}, {2, Bytes(10), 3}}, 20),
              UnorderedElementsAre(1, 2));
}

TEST(Victims, NoneWhenAllTogetherDoNotSuffice) {
  EXPECT_THAT(chosen({{0, Bytes(10), 1}, {1, Bytes(10), 1}}, 21), IsEmpty());
}

TEST(Victims, WhatALargerOneMakesUnnecessaryIsSpared) {
  EXPECT_THAT(chosen({{0, Bytes(2), 0.1}, {1, Bytes(20), 5}}, 15), UnorderedElementsAre(1));
}

TEST(Victims, OneLargerInsteadOfSeveralWhenThatLosesLess) {
  EXPECT_THAT(chosen({{0, Bytes(10), 1}, {1, Bytes(10), 1}, {2, Bytes(15), 1.6}}, 15),
              UnorderedElementsAre(2));
}

TEST(Victims, ABusyOneOnlyWhenIdleOnesDoNotSuffice) {
  EXPECT_THAT(chosen({{0, Bytes(20), 0.1, Drain::soon}, {1, Bytes(10), 9}, {2, Bytes(10), 9}}, 20),
              UnorderedElementsAre(1, 2));
  EXPECT_THAT(chosen({{0, Bytes(20), 0.1, Drain::soon}, {1, Bytes(10), 9}}, 20),
              UnorderedElementsAre(0));
}

TEST(Victims, OneThatAnswersForLongOnlyWhenNothingElseSuffices) {
  const Candidate late{0, Bytes(20), 0.1, Drain::late};
  const Candidate soon{1, Bytes(20), 9, Drain::soon};
  EXPECT_THAT(chosen({late, soon}, 20), UnorderedElementsAre(1));
  EXPECT_THAT(chosen({late, soon}, 40), UnorderedElementsAre(0, 1));
}

}  // namespace
}  // namespace omni::scheduling
