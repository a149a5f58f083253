// An advisory lock between processes: two daemons, or a daemon and what a crashed one left running.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <filesystem>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "provision/process.h"

namespace omni {

enum class LockMode : std::uint8_t { alone, shared };

// Waits until the lock is free, at most `limit`; says so once on `progress`. It is held while the
// descriptor, or a copy that another process inherited, is open. The file stays, but for those that
// nothing uses any more: `omni gc` removes them, while it holds them.
asio::awaitable<Result<Fd>> lock_file(std::filesystem::path file, Duration limit, LineSink progress,
                                      LockMode mode = LockMode::alone);
// The same without waiting: no descriptor if another process holds it. Blocking only on the disk.
Result<Fd> try_lock_file(const std::filesystem::path& file, LockMode mode = LockMode::alone);

}  // namespace omni
