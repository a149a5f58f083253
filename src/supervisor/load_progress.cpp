#include "supervisor/load_progress.h"

#include <algorithm>

namespace omni {
namespace {

using namespace std::chrono_literals;

// What one answered probe may cost an engine: a Python server takes 1-2 ms and logs one line.
constexpr Duration kProbeCpu = 5ms;
constexpr std::uint64_t kProbeRead = 4096;
constexpr std::uint64_t kProbeLog = 256;
// A process that only waits wakes up now and then.
constexpr int kIdleCpuPercent = 2;
constexpr std::uint64_t kIdleReadPerSecond = 4096;

bool grew(std::uint64_t before, std::uint64_t now, std::uint64_t allowance) {
  // Less than before: a process or a log file was replaced, which is an event too.
  return now < before || now - before > allowance;
}

}  // namespace

bool progressed(const Work& before, const Work& now, Duration window,
                std::uint32_t answered_probes) {
  const Duration idle_cpu = window * kIdleCpuPercent / 100 + kProbeCpu * answered_probes;
  const auto seconds = std::chrono::duration<double>(window).count();
  const auto idle_read =
      static_cast<std::uint64_t>(seconds * kIdleReadPerSecond) + kProbeRead * answered_probes;
  if (now.log_inode != before.log_inode) return true;
  if (grew(before.log_bytes, now.log_bytes, kProbeLog * answered_probes)) return true;
  if (grew(before.bytes_read, now.bytes_read, idle_read)) return true;
  return now.cpu < before.cpu || now.cpu - before.cpu > idle_cpu;
}

Duration StallWatch::window() const { return std::clamp<Duration>(limit_ / 8, 100ms, 5s); }

void StallWatch::on_sample(Work work, TimePoint now) {
  if (progressed(last_, work, now - sampled_, answered_)) progress_ = now;
  last_ = work;
  sampled_ = now;
  answered_ = 0;
}

}  // namespace omni
