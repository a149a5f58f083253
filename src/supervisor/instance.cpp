#include "supervisor/instance.h"

#include <sys/wait.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <csignal>
#include <cstring>

#include "supervisor/instance_state.h"
#include "supervisor/launch.h"
#include "supervisor/process_tree.h"
#include "supervisor/workers.h"

namespace omni {
namespace {

using namespace std::chrono_literals;

constexpr Duration kStartTimeout = 10s;  // clone, mounts and exec, on a machine that swaps
constexpr Duration kSpawnerRetry = 5ms;
constexpr Duration kKillPatience = 1s;  // for the shim to kill its tree, before it is killed itself

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name ? fmt::format("signal {} (SIG{})", number, name) : fmt::format("signal {}", number);
}

// Ends when the tree is gone, or when the Instance closes the link.
asio::awaitable<void> watch(std::shared_ptr<InstanceState> state) {
  co_await state->link.run();
  if (!state->link.gone) co_return;
  if (state->channel) state->channel->close();
  ExitReport report = describe_exit(state->link.wait_status);
  // By value: the loop may still be changing the plan's endpoint.
  auto clear_away = [plan = state->plan, from = state->log_offset] {
    remove_run_dir(plan);
    return tail_lines(plan.log_file, kTailLines, from);
  };
  report.last_log_lines = co_await run_on(state->workers, clear_away);
  state->exit = std::move(report);
  state->link.events.notify();
}

asio::awaitable<void> talk(std::shared_ptr<InstanceState> state,
                           std::shared_ptr<ControlChannel> channel) {
  co_await channel->run();
  // `state` holds the events that the channel notifies.
  static_cast<void>(state);
}

class RunningInstance final : public Instance {
 public:
  explicit RunningInstance(std::shared_ptr<InstanceState> state) : state_(std::move(state)) {}
  ~RunningInstance() override {
    if (state_->channel) state_->channel->close();
    state_->link.close();
  }

  const LaunchPlan& plan() const override { return state_->plan; }
  bool alive() const override { return !state_->link.main_ended(); }

  asio::awaitable<Result<void>> wait_ready() override;
  asio::awaitable<ExitReport> stop() override;
  asio::awaitable<ExitReport> wait_exit() override;
  asio::awaitable<InstanceUsage> usage(bool with_pss) override;

 private:
  std::shared_ptr<InstanceState> state_;
};

// ---- Stop

asio::awaitable<void> end_tree(std::shared_ptr<InstanceState> state) {
  const TimePoint begin = Clock::now();
  const TimePoint half = begin + state->plan.stop_grace / 2;
  const TimePoint end = begin + state->plan.stop_grace;
  const TimePoint shim_killed = end + kKillPatience;
  const TimePoint given_up = shim_killed + kGonePatience;
  const bool draining = state->channel && state->channel->drain();
  if (!draining) state->link.signal(SIGTERM);
  co_await wait_gone(state, half);
  if (!state->exit) state->link.signal(SIGTERM);
  co_await wait_gone(state, end);
  if (!state->exit) state->link.kill_tree();
  co_await wait_gone(state, shim_killed);
  if (!state->exit) state->link.kill_shim();
  co_await wait_gone(state, given_up);
}

asio::awaitable<ExitReport> stop_and_report(std::shared_ptr<InstanceState> state) {
  auto off = asio::disable_cancellation();
  co_await asio::this_coro::reset_cancellation_state(off);
  if (!std::exchange(state->stopping, true)) {
    state->link.events.notify();
    co_await end_tree(state);
  } else {
    const Duration patience = state->plan.stop_grace + kKillPatience + kGonePatience;
    const TimePoint deadline = Clock::now() + patience;
    co_await wait_gone(state, deadline);
  }
  if (state->exit) co_return *state->exit;
  ExitReport report = describe_exit(state->link.wait_status);
  report.gone = false;
  report.description += ", but some process of it does not end";
  co_return report;
}

asio::awaitable<ExitReport> wait_for_exit(std::shared_ptr<InstanceState> state) {
  while (!state->exit) {
    // No deadline: a model may live for ever, and its end, crash or kill always wakes this.
    const TimePoint never = TimePoint::max();
    co_await state->link.events.wait(never);
  }
  co_return *state->exit;
}

// The coroutines take the state, not `this`: an instance may be dropped while they wait.
asio::awaitable<Result<void>> RunningInstance::wait_ready() { return wait_until_ready(state_); }
asio::awaitable<ExitReport> RunningInstance::stop() { return stop_and_report(state_); }
asio::awaitable<ExitReport> RunningInstance::wait_exit() { return wait_for_exit(state_); }

asio::awaitable<InstanceUsage> RunningInstance::usage(bool with_pss) {
  const std::shared_ptr<InstanceState> state = state_;
  const pid_t main = state->link.main_ended() ? 0 : state->link.main_pid;
  if (main == 0) co_return InstanceUsage{};
  auto read = [pid = state->link.shim_pid, with_pss] { return read_usage(pid, with_pss); };
  InstanceUsage usage = co_await run_on(state->workers, read);
  usage.main_pid = main;
  co_return usage;
}

Error of_model(const LaunchPlan& plan, Error error) {
  error.message = fmt::format("model \"{}\": {}", plan.model, error.message);
  return error;
}

}  // namespace

ExitReport describe_exit(std::optional<int> wait_status) {
  ExitReport report;
  if (!wait_status) {
    report.by_signal = true;
    report.status = SIGKILL;
    report.description = "signal 9 (SIGKILL) together with its shim";
  } else if (WIFSIGNALED(*wait_status)) {
    report.by_signal = true;
    report.status = WTERMSIG(*wait_status);
    report.description = signal_name(report.status);
  } else {
    report.status = WEXITSTATUS(*wait_status);
    report.description = fmt::format("exit code {}", report.status);
  }
  return report;
}

asio::awaitable<void> wait_gone(std::shared_ptr<InstanceState> state, TimePoint deadline) {
  while (!state->exit && Clock::now() < deadline) co_await state->link.events.wait(deadline);
}

asio::awaitable<Result<std::shared_ptr<Instance>>> Instance::start(asio::io_context& loop,
                                                                   asio::thread_pool& workers,
                                                                   Spawner& spawner,
                                                                   LaunchPlan plan) {
  const TimePoint deadline = Clock::now() + kStartTimeout;
  auto prepare = [plan] { return prepare_launch(plan); };
  auto prepared = co_await run_on(workers, prepare);
  if (!prepared.ok()) co_return of_model(plan, prepared.error());

  auto control = send_launch(spawner.socket(), prepared->request);
  while (!control.ok() && control.error().code == ErrorCode::overloaded &&
         Clock::now() < deadline) {
    asio::steady_timer pause(loop, kSpawnerRetry);
    auto token = asio::use_awaitable;
    co_await pause.async_wait(token);
    control = send_launch(spawner.socket(), prepared->request);
  }
  if (!control.ok()) co_return of_model(plan, control.error());

  auto state = std::make_shared<InstanceState>(loop, workers, std::move(plan), *std::move(control));
  state->log_offset = prepared->log_offset;
  // From here on the instance's end is the tree's end, also when this coroutine is cancelled.
  auto instance = std::make_shared<RunningInstance>(state);
  asio::co_spawn(loop, watch(state), asio::detached);

  ShimLink& link = state->link;
  const auto decided = [&link] {
    return link.gone || link.start_error || (link.started && link.shim_pid != 0);
  };
  while (!decided() && Clock::now() < deadline) co_await link.events.wait(deadline);
  if (link.start_error) {
    Error error = *link.start_error;
    error.message = fmt::format("{}: {}", state->name(), error.message);
    const TimePoint cleared = Clock::now() + kGonePatience;
    co_await wait_gone(state, cleared);
    co_return error;
  }
  if (!link.started || link.shim_pid == 0) {
    co_return Error{ErrorCode::load_failed,
                    fmt::format("{} did not start: its shim {}", state->name(),
                                link.gone ? "ended" : "does not answer")};
  }
  if (state->plan.python) {
    const std::string path = (state->plan.run_dir / "model.sock").string();
    state->channel = std::make_shared<ControlChannel>(loop, path, link.events);
    asio::co_spawn(loop, talk(state, state->channel), asio::detached);
  }
  co_return std::shared_ptr<Instance>(std::move(instance));
}

}  // namespace omni
