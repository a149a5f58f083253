// Instance::wait_ready(): probing an engine, or waiting for a runtime's READY, while watching that
// the load gets on.
#include <fmt/ranges.h>

#include <algorithm>

#include "http/client.h"
#include "supervisor/instance_state.h"
#include "supervisor/load_progress.h"
#include "supervisor/process_tree.h"
#include "supervisor/workers.h"

namespace omni {
namespace {

using namespace std::chrono_literals;

constexpr Duration kProbeInterval = 15ms;
constexpr Duration kEagerProbing = 2s;
constexpr Duration kMaxProbeInterval = 250ms;
constexpr Duration kMaxProbeTime = 2s;
constexpr Duration kSettleTime = 20ms;  // after an answered probe
constexpr Bytes kMaxHealthBody = 64_KiB;

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

asio::awaitable<Error> ended_while_loading(std::shared_ptr<InstanceState> state) {
  const TimePoint deadline = Clock::now() + kGonePatience;
  while (!state->exit && Clock::now() < deadline) co_await state->link.events.wait(deadline);
  if (state->stopping) {
    co_return Error{ErrorCode::model_stopped, state->name() + " was stopped while it loaded"};
  }
  const ExitReport report = state->exit.value_or(describe_exit(state->link.wait_status));
  co_return Error{ErrorCode::load_failed, with_log(fmt::format("{} ended while it loaded: {}",
                                                               state->name(), report.description),
                                                   report.last_log_lines)};
}

enum class Probe { silent, not_yet, ready };

// One GET on each family. After `ready` the plan's endpoint is the one that answered.
asio::awaitable<Probe> probe_http(std::shared_ptr<InstanceState> state, http::Client& client) {
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

asio::awaitable<Error> stalled(std::shared_ptr<InstanceState> state) {
  auto tail = [state] { return tail_lines(state->plan.log_file, kTailLines, state->log_offset); };
  const std::vector<std::string> lines = co_await run_on(state->workers, tail);
  co_return Error{ErrorCode::load_stalled,
                  with_log(fmt::format("{} stood still for {} while it loaded: no log output, CPU "
                                       "time or reads (engine.load_stall)",
                                       state->name(), to_string(state->plan.load_stall)),
                           lines)};
}

}  // namespace

asio::awaitable<Result<void>> wait_until_ready(std::shared_ptr<InstanceState> state) {
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

}  // namespace omni
