#include "supervisor/instance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <csignal>
#include <cstring>

#include "http/client.h"
#include "supervisor/control_channel.h"
#include "supervisor/launch.h"
#include "supervisor/load_progress.h"
#include "supervisor/process_tree.h"
#include "supervisor/shim_link.h"
#include "supervisor/workers.h"

namespace omni {
namespace {

using namespace std::chrono_literals;

constexpr Duration kStartTimeout = 10s;  // clone, mounts and exec, on a machine that swaps
constexpr Duration kSpawnerRetry = 5ms;
constexpr Duration kKillPatience = 1s;  // for the shim to kill its tree, before it is killed itself
constexpr Duration kGonePatience = 10s;  // for the kernel, before stop() returns without
constexpr std::size_t kTailLines = 20;

constexpr Duration kProbeInterval = 15ms;
constexpr Duration kEagerProbing = 2s;
constexpr Duration kMaxProbeInterval = 250ms;
constexpr Duration kMaxProbeTime = 2s;
constexpr Duration kSettleTime = 20ms;  // after an answered probe
constexpr Bytes kMaxHealthBody = 64_KiB;

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name ? fmt::format("signal {} (SIG{})", number, name) : fmt::format("signal {}", number);
}

ExitReport describe(std::optional<int> wait_status) {
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

std::string with_log(std::string message, const std::vector<std::string>& lines) {
  if (lines.empty()) return message + "; its log is empty";
  return fmt::format("{}; its log ends:\n{}", message, fmt::join(lines, "\n"));
}

// Where an engine may really listen: "localhost" is ::1 to some and 127.0.0.1 to others.
std::vector<Endpoint> candidates(const Endpoint& endpoint) {
  if (endpoint.kind == Endpoint::Kind::unix_socket) return {endpoint};
  if (endpoint.host == "127.0.0.1") return {endpoint, Endpoint::tcp_at("::1", endpoint.port)};
  if (endpoint.host == "::1") return {endpoint, Endpoint::tcp_at("127.0.0.1", endpoint.port)};
  return {endpoint};
}

// After the eager time: finding out late costs a twentieth of the load at most.
Duration probe_interval(Duration waited) {
  return std::clamp<Duration>(waited / 20, kProbeInterval, kMaxProbeInterval);
}

// Shared by the Instance and the coroutine that watches over its end.
struct State {
  State(asio::io_context& on_loop, asio::thread_pool& on_workers, LaunchPlan launch_plan,
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

// Ends when the tree is gone, or when the Instance closes the link.
asio::awaitable<void> watch(std::shared_ptr<State> state) {
  co_await state->link.run();
  if (!state->link.gone) co_return;
  if (state->channel) state->channel->close();
  ExitReport report = describe(state->link.wait_status);
  auto clear_away = [state] {
    remove_run_dir(state->plan);
    return tail_lines(state->plan.log_file, kTailLines, state->log_offset);
  };
  report.last_log_lines = co_await run_on(state->workers, clear_away);
  state->exit = std::move(report);
  state->link.events.notify();
}

asio::awaitable<void> talk(std::shared_ptr<State> state, std::shared_ptr<ControlChannel> channel) {
  co_await channel->run();
  // `state` holds the events that the channel notifies.
  static_cast<void>(state);
}

class RunningInstance final : public Instance {
 public:
  explicit RunningInstance(std::shared_ptr<State> state) : state_(std::move(state)) {}
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
  std::shared_ptr<State> state_;
};

// ---- Ready

asio::awaitable<Error> ended_while_loading(std::shared_ptr<State> state) {
  const TimePoint deadline = Clock::now() + kGonePatience;
  while (!state->exit && Clock::now() < deadline) co_await state->link.events.wait(deadline);
  if (state->stopping) {
    co_return Error{ErrorCode::model_stopped, state->name() + " was stopped while it loaded"};
  }
  const ExitReport report = state->exit.value_or(describe(state->link.wait_status));
  co_return Error{ErrorCode::load_failed, with_log(fmt::format("{} ended while it loaded: {}",
                                                               state->name(), report.description),
                                                   report.last_log_lines)};
}

enum class Probe { silent, not_yet, ready };

// One GET on each family. After `ready` the plan's endpoint is the one that answered.
asio::awaitable<Probe> probe_http(std::shared_ptr<State> state, http::Client& client) {
  const Duration timeout = std::clamp<Duration>(state->plan.load_stall / 4, 50ms, kMaxProbeTime);
  Probe result = Probe::silent;
  for (const Endpoint& endpoint : candidates(state->plan.endpoint)) {
    http::Headers headers;
    headers.add("Host", "localhost");
    headers.add("Connection", "close");
    auto answer = co_await client.request(endpoint, "GET", state->plan.ready_path, headers, "",
                                          timeout, kMaxHealthBody);
    if (answer.ok() && answer->status == 200) {
      state->plan.endpoint = endpoint;
      co_return Probe::ready;
    }
    // Whatever else it sent, be it HTTP or not, means "not yet".
    if (answer.ok() || answer.error().code == ErrorCode::engine_protocol) result = Probe::not_yet;
  }
  co_return result;
}

asio::awaitable<Error> stalled(std::shared_ptr<State> state) {
  auto tail = [state] { return tail_lines(state->plan.log_file, kTailLines, state->log_offset); };
  const std::vector<std::string> lines = co_await run_on(state->workers, tail);
  co_return Error{ErrorCode::load_stalled,
                  with_log(fmt::format("{} stood still for {} while it loaded: no log output, CPU "
                                       "time or reads",
                                       state->name(), to_string(state->plan.load_stall)),
                           lines)};
}

asio::awaitable<Result<void>> wait_until_ready(std::shared_ptr<State> state) {
  const LaunchPlan& plan = state->plan;
  http::ClientOptions options;
  options.idle_per_endpoint = 0;
  http::Client client(state->loop, options);
  auto sample = [pid = state->link.shim_pid, log = plan.log_file] { return read_work(pid, log); };
  const TimePoint begin = Clock::now();
  const Duration eager = std::min<Duration>(kEagerProbing, plan.load_stall / 4);
  StallWatch stall(plan.load_stall, begin + eager);
  std::optional<Work> before;  // at the begin of the quiet time

  for (;;) {
    Probe probe = Probe::silent;
    if (!plan.python) {
      probe = co_await probe_http(state, client);
    } else if (state->channel->ready()) {
      probe = Probe::ready;
    } else if (!state->channel->failure().empty()) {
      co_return Error{ErrorCode::load_failed,
                      fmt::format("{} cannot serve: {}", state->name(), state->channel->failure())};
    }
    if (state->link.main_ended() || state->stopping) {
      Error error = co_await ended_while_loading(state);
      co_return error;
    }
    if (probe == Probe::ready) co_return Result<void>();

    const Duration waited = Clock::now() - begin;
    const Duration pause = waited < eager ? kProbeInterval : probe_interval(waited);
    if (waited < eager) {
      const TimePoint next = Clock::now() + pause;
      co_await state->link.events.wait(next);
      continue;
    }
    if (probe == Probe::not_yet) {
      // Its answer, and what it does after it (an access log), is not progress.
      before.reset();
      const TimePoint settled = Clock::now() + kSettleTime;
      co_await state->link.events.wait(settled);
    }
    const TimePoint quiet_begin = Clock::now();
    if (!before) before = co_await run_on(state->workers, sample);
    const TimePoint quiet_end = quiet_begin + pause;
    co_await state->link.events.wait(quiet_end);
    const Work after = co_await run_on(state->workers, sample);
    const TimePoint now = Clock::now();
    stall.on_quiet(*before, after, now - quiet_begin, now);
    before = after;
    if (stall.stalled(now) && !state->link.main_ended()) {
      Error error = co_await stalled(state);
      co_return error;
    }
  }
}

// ---- Stop

asio::awaitable<void> wait_gone(std::shared_ptr<State> state, TimePoint deadline) {
  while (!state->exit && Clock::now() < deadline) co_await state->link.events.wait(deadline);
}

asio::awaitable<void> end_tree(std::shared_ptr<State> state) {
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

asio::awaitable<ExitReport> stop_and_report(std::shared_ptr<State> state) {
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
  ExitReport report = describe(state->link.wait_status);
  report.gone = false;
  report.description += ", but some process of it does not end";
  co_return report;
}

asio::awaitable<ExitReport> wait_for_exit(std::shared_ptr<State> state) {
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
  const std::shared_ptr<State> state = state_;
  const pid_t main = state->link.main_ended() ? 0 : state->link.main_pid;
  if (main == 0) co_return InstanceUsage{};
  auto read = [pid = state->link.shim_pid, with_pss] { return read_usage(pid, with_pss); };
  InstanceUsage usage = co_await run_on(state->workers, read);
  usage.main_pid = main;
  co_return usage;
}

}  // namespace

asio::awaitable<Result<std::shared_ptr<Instance>>> Instance::start(asio::io_context& loop,
                                                                   asio::thread_pool& workers,
                                                                   Spawner& spawner,
                                                                   LaunchPlan plan) {
  const TimePoint deadline = Clock::now() + kStartTimeout;
  auto prepare = [plan] { return prepare_launch(plan); };
  auto prepared = co_await run_on(workers, prepare);
  if (!prepared.ok()) co_return prepared.error();

  auto control = send_launch(spawner.socket(), prepared->request);
  while (!control.ok() && control.error().code == ErrorCode::overloaded &&
         Clock::now() < deadline) {
    asio::steady_timer pause(loop, kSpawnerRetry);
    auto token = asio::use_awaitable;
    co_await pause.async_wait(token);
    control = send_launch(spawner.socket(), prepared->request);
  }
  if (!control.ok()) co_return control.error();

  auto state = std::make_shared<State>(loop, workers, std::move(plan), *std::move(control));
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
