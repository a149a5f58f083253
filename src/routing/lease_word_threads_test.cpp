#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "routing/lease_word.h"

namespace omni {
namespace {

constexpr int kThreads = 3;
constexpr std::uint32_t kPlaces = 2;
constexpr int kLives = 200;

// I/O threads lease as fast as they can while the loop closes, waits for the drain and opens. What
// the word guards is a plain variable: TSan sees whether a drained word orders the loop's writes
// after all reads by leases, and an open one before them.
TEST(LeaseWordThreads, TheDrainedWordBelongsToTheLoopAlone) {
  LeaseWord word;
  int guarded = 0;
  std::atomic<std::uint32_t> published{word.open()};
  std::atomic<bool> stop{false};
  std::atomic<int> drains{0};
  std::atomic<std::uint64_t> leases{0};

  std::vector<std::jthread> io;
  for (int i = 0; i < kThreads; ++i) {
    io.emplace_back([&] {
      while (!stop) {
        const std::uint32_t generation = published.load(std::memory_order_acquire);
        if (word.try_acquire(generation, kPlaces) != LeaseWord::Acquire::ok) {
          std::this_thread::yield();
          continue;
        }
        EXPECT_LE(word.in_flight(), kPlaces);
        EXPECT_GE(guarded, 0);
        leases.fetch_add(1, std::memory_order_relaxed);
        if (word.release().drained) drains.fetch_add(1, std::memory_order_acq_rel);
      }
    });
  }
  int waited_for = 0;
  for (int life = 1; life <= kLives; ++life) {
    if (!word.close()) {
      // Told once per close by the last release.
      ++waited_for;
      while (drains.load(std::memory_order_acquire) < waited_for) std::this_thread::yield();
    }
    EXPECT_EQ(word.in_flight(), 0u);
    guarded = life;
    published.store(word.open(), std::memory_order_release);
    if (life % 16 == 0) std::this_thread::yield();
  }
  while (leases.load() == 0) std::this_thread::yield();
  stop = true;
  io.clear();
  EXPECT_EQ(drains.load(), waited_for);
  EXPECT_EQ(word.in_flight(), 0u);
}

// The protocol of the last place: the loop sets the waiters bit, then tries. Either the try
// succeeds or the release of the holder sees the bit; no free place is missed by both.
TEST(LeaseWordThreads, NoFreedPlaceIsMissedByTheLoopAndTheHolder) {
  LeaseWord word;
  const std::uint32_t generation = word.open();
  for (int round = 0; round < 500; ++round) {
    ASSERT_EQ(word.try_acquire(generation, 1), LeaseWord::Acquire::ok);
    std::atomic<bool> go{false};
    bool holder_saw = false;
    std::jthread holder([&] {
      while (!go.load(std::memory_order_acquire)) {
      }
      holder_saw = word.release().waiters;
    });
    go.store(true, std::memory_order_release);
    word.set_waiters(true);
    const bool loop_got = word.try_acquire(generation, 1, true) == LeaseWord::Acquire::ok;
    holder.join();
    EXPECT_TRUE(loop_got || holder_saw);
    if (loop_got) word.release();
    word.set_waiters(false);
  }
}

}  // namespace
}  // namespace omni
