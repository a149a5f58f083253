// One 64-bit word that counts the requests an instance is serving. I/O threads take and return
// leases with a CAS; the control loop closes the word before it evicts or stops the instance and
// acts when the count has reached 0.
//
//   bit 63      closed: no new lease
//   bit 62      waiters: tickets wait for this instance's model, so a release must look for one
//   bits 32-61  generation: raised whenever the word is opened again; a stale route cannot lease a
//   later life bits 0-31   count of leases
#pragma once

#include <atomic>
#include <cassert>
#include <cstdint>

namespace omni {

class LeaseWord {
 public:
  enum class Acquire { ok, closed, full, waiters, stale };

  // Waiters go first: the fast path fails while tickets wait (`waiters`). The control loop and a
  // releasing I/O thread, which serve those tickets, pass `for_ticket`.
  Acquire try_acquire(std::uint32_t generation, std::uint32_t capacity, bool for_ticket = false) {
    std::uint64_t seen = word_.load(std::memory_order_relaxed);
    for (;;) {
      if (seen & kClosed) return Acquire::closed;
      if (generation_of(seen) != generation) return Acquire::stale;
      if (count_of(seen) >= capacity) return Acquire::full;
      if ((seen & kWaiters) && !for_ticket) return Acquire::waiters;
      if (word_.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
        return Acquire::ok;
      }
    }
  }

  struct Released {
    bool drained;  // closed, and this was the last lease
    bool waiters;  // tickets may be waiting for the place that became free
  };
  Released release() {
    const std::uint64_t before = word_.fetch_sub(1, std::memory_order_acq_rel);
    assert(count_of(before) > 0);
    return {(before & kClosed) && count_of(before) == 1, (before & kWaiters) != 0};
  }

  // True when there is nothing to wait for: the word is drained already.
  bool close() { return count_of(word_.fetch_or(kClosed, std::memory_order_acq_rel)) == 0; }

  // A new life begins: returns its generation. Leases still held from before keep counting.
  std::uint32_t open() {
    std::uint64_t seen = word_.load(std::memory_order_relaxed);
    for (;;) {
      const std::uint32_t generation = (generation_of(seen) + 1) & kGenerationMask;
      const std::uint64_t next = (std::uint64_t{generation} << 32) | count_of(seen);
      if (word_.compare_exchange_weak(seen, next, std::memory_order_acq_rel)) return generation;
    }
  }

  // Set before the loop tries to serve a queued ticket: then either its try succeeds, or the holder
  // of the last place sees the bit when it releases.
  void set_waiters(bool waiting) {
    if (waiting) {
      word_.fetch_or(kWaiters, std::memory_order_acq_rel);
    } else {
      word_.fetch_and(~kWaiters, std::memory_order_acq_rel);
    }
  }

  std::uint32_t in_flight() const { return count_of(word_.load(std::memory_order_acquire)); }
  std::uint32_t generation() const { return generation_of(word_.load(std::memory_order_acquire)); }
  bool closed() const { return (word_.load(std::memory_order_acquire) & kClosed) != 0; }

 private:
  static constexpr std::uint64_t kClosed = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kWaiters = std::uint64_t{1} << 62;
  static constexpr std::uint32_t kGenerationMask = (1u << 30) - 1;

  static std::uint32_t count_of(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
  static std::uint32_t generation_of(std::uint64_t word) {
    return static_cast<std::uint32_t>(word >> 32) & kGenerationMask;
  }

  // Closed until the instance is resident for the first time.
  std::atomic<std::uint64_t> word_{kClosed};
};

}  // namespace omni
