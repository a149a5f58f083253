#include "supervisor/load_progress.h"

namespace omni {
namespace {

using namespace std::chrono_literals;

// What a process that only waits does all the same. The kernel counts CPU time in steps of 10 ms.
constexpr Duration kCpuStep = 10ms;
constexpr int kIdleCpuPercent = 3;
constexpr std::uint64_t kIdleRead = 64 << 10;
constexpr std::uint64_t kIdleReadPerSecond = 16 << 10;

// Less than before: a process or the log file was replaced, which is an event too.
bool replaced(const Work& before, const Work& after) {
  return after.log_inode != before.log_inode || after.log_bytes < before.log_bytes ||
         after.bytes_read < before.bytes_read || after.cpu < before.cpu;
}

}  // namespace

void StallWatch::on_quiet(const Work& before, const Work& after, Duration quiet, TimePoint now) {
  bool progress = replaced(before, after) || after.log_bytes > before.log_bytes;
  if (!progress) {
    quiet_ += quiet;
    cpu_ += after.cpu - before.cpu;
    bytes_read_ += after.bytes_read - before.bytes_read;
    const double seconds = std::chrono::duration<double>(quiet_).count();
    const auto idle_read = static_cast<std::uint64_t>(seconds * kIdleReadPerSecond) + kIdleRead;
    progress = cpu_ > kCpuStep + quiet_ * kIdleCpuPercent / 100 || bytes_read_ > idle_read;
  }
  if (!progress) return;
  progress_ = now;
  quiet_ = cpu_ = {};
  bytes_read_ = 0;
}

}  // namespace omni
