// An advisory lock between processes: two daemons, or a daemon and what a crashed one left running.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <filesystem>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "provision/process.h"

namespace omni {

// Waits until the lock is free, at most `limit`; says so once on `progress`. It is held while the
// descriptor, or a copy that another process inherited, is open. The file stays.
asio::awaitable<Result<Fd>> lock_file(std::filesystem::path file, Duration limit,
                                      LineSink progress);

}  // namespace omni
