// What the parts of one Instance share. Used on its loop alone.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "supervisor/control_channel.h"
#include "supervisor/instance.h"
#include "supervisor/shim_link.h"

namespace omni {

inline constexpr std::size_t kTailLines = 20;  // of the log, in reports and errors
// For the kernel to end what was killed, before a caller goes on without.
inline constexpr Duration kGonePatience = std::chrono::seconds(10);

// Shared by the Instance, by the coroutines that wait in it and by the one that watches over its
// end: the last of them lets it go.
struct InstanceState {
  InstanceState(asio::io_context& on_loop, asio::thread_pool& on_workers, LaunchPlan launch_plan,
                Fd control)
      : loop(on_loop),
        workers(on_workers),
        plan(std::move(launch_plan)),
        link(on_loop, std::move(control)) {}

  asio::io_context& loop;
  asio::thread_pool& workers;
  LaunchPlan plan;
  ShimLink link;
  std::shared_ptr<ControlChannel> channel;  // python; shared with its own coroutine
  std::uint64_t log_offset = 0;
  bool stopping = false;
  std::optional<ExitReport> exit;  // set once everything is gone and cleared away

  std::string name() const { return fmt::format("model \"{}\"", plan.model); }
};

// The report as far as the main process's wait status tells; without one its shim was killed.
ExitReport describe_exit(std::optional<int> wait_status);

// Until everything is gone and cleared away, or the deadline.
asio::awaitable<void> wait_gone(std::shared_ptr<InstanceState> state, TimePoint deadline);

// Instance::wait_ready().
asio::awaitable<Result<void>> wait_until_ready(std::shared_ptr<InstanceState> state);

}  // namespace omni
