// The control loop's instances, each from its start to its exit.
#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/files.h"
#include "engine/model_channel.h"
#include "http/client.h"
#include "node/control_state.h"

namespace omni::node {

using namespace std::chrono_literals;

namespace {

// A process that died is reported by its shim within milliseconds; a connection can break for other
// reasons.
constexpr Duration kSuspectGrace = 250ms;
// For the health of an instance that is in doubt.
constexpr Duration kProbeTimeout = 3s;

}  // namespace

asio::awaitable<void> ControlLoop::run(std::shared_ptr<Live> live) {
  const TimePoint began = Clock::now();
  auto up = co_await bring_up(live);
  Model& model = *live->model;
  if (!up.ok()) {
    const bool killed = co_await was_killed(live, up.error());
    // Once more, for the requests that wait: what was killed from outside, such as by the kernel
    // for want of memory, says nothing about the model. The second time it does.
    const bool again = killed && !std::exchange(model.start_was_killed, true);
    if (live->process && live->process->alive()) co_await live->process->stop();
    set_state(*live, live->stopping || again ? InstanceState::stopped : InstanceState::failed,
              up.error().message);
    std::erase(model.instances, live->id);
    live_.erase(live->id);
    touch(model.id);
    if (live->stopping || again) {
      if (again) spdlog::warn("{}; it is started once more", up.error().message);
      apply(scheduler_.on_stopped(live->id, Clock::now()));
    } else {
      model.error = up.error().message;
      model.error_code = up.error().code;
      spdlog::error("model {}: {}", model.spec.name, up.error().message);
      apply(scheduler_.on_failed(live->id, up.error(), false, Clock::now()));
    }
    changed_.notify();
    co_return;
  }
  const Duration took = Clock::now() - began;
  model.loads->add();
  model.load_time->observe(took);
  model.error.clear();
  model.start_was_killed = false;
  spdlog::info("model {} is resident: instance {}, {}", model.spec.name, live->id.value,
               to_string(took));
  open(*live);
  set_state(*live, InstanceState::resident);
  apply(scheduler_.on_resident(live->id, Clock::now()));
  sync_waiters(model.id);
  tasks_.spawn(measure(live));
  const ExitReport report = co_await live->process->wait_exit();
  died(live, report);
}

asio::awaitable<bool> ControlLoop::was_killed(std::shared_ptr<Live> live, Error failure) {
  const bool ended = failure.code == ErrorCode::load_failed && live->process &&
                     !live->process->alive() && !live->stopping;
  if (!ended) co_return false;
  const ExitReport report = co_await live->process->wait_exit();
  co_return report.by_signal&& report.status == SIGKILL && !live->stopping;
}

asio::awaitable<Result<void>> ControlLoop::bring_up(std::shared_ptr<Live> live) {
  const Model& model = *live->model;
  const Error aborted{ErrorCode::model_stopped, "the start was called off"};
  std::optional<uid_t> uid;
  if (options_.uids) {
    CO_TRY(uid, options_.uids->of(model.spec.name));
  }
  LaunchContext context{.paths = options_.paths,
                        .python_path = options_.python_path,
                        .uid = uid,
                        .log_number = live->log_number};
  if (model.spec.gpu_memory) {
    context.visible_gpus = std::to_string(gpu_number(model.device));
  } else if (!configs_.front().gpu_memory.empty()) {
    context.visible_gpus = "";
  }
  CO_TRY(LaunchPlan plan, make_launch_plan(context, model.spec, model.provisioned, live->id));
  const auto cache = cache_dir(options_.paths, model.spec, model.provisioned);
  CO_CHECK(make_directories(cache, 0700));
  if (uid && ::chown(cache.c_str(), *uid, *uid) != 0)
    co_return errno_error("cannot give " + cache.string() + " to its model");
  if (live->stopping) co_return aborted;

  if (!spawner_.alive()) {
    spdlog::error("the spawner has ended; starting another");
    CO_CHECK(spawner_.restart());
  }
  auto started = co_await Instance::start(loop_, workers_, spawner_, std::move(plan));
  if (!started.ok()) co_return std::move(started).error();
  live->process = std::move(started).value();
  if (live->stopping) co_return aborted;
  auto ready = co_await live->process->wait_ready();
  if (!ready.ok()) co_return std::move(ready).error();
  if (live->stopping) co_return aborted;
  // The supervisor may have found the engine on another address of this host.
  live->slot->endpoint = live->process->plan().endpoint;
  co_return Result<void>();
}

// Ends the processes; run() sees it and tells the scheduler.
asio::awaitable<void> ControlLoop::stop_process(std::shared_ptr<Live> live, std::string reason) {
  if (live->stopping) co_return;
  live->stopping = true;
  live->open = false;
  live->slot->word.close();
  touch(live->model->id);
  set_state(*live, InstanceState::stopping, reason);
  publish();
  spdlog::info("model {}: stopping instance {}: {}", live->model->spec.name, live->id.value,
               reason);
  // An engine that is asked to stop while a connection is open may wait for its client: close ours
  // first.
  if (!live->slot->endpoint.path.empty() || live->slot->endpoint.port != 0) {
    co_await links_.close_idle(live->slot->endpoint);
  }
  if (live->process) co_await live->process->stop();
}

void ControlLoop::open(Live& live) {
  live.generation = live.slot->word.open();
  live.slot->word.set_waiters(scheduler_.has_waiters(live.model->id));
  live.open = true;
  touch(live.model->id);
}

void ControlLoop::died(std::shared_ptr<Live> live, const ExitReport& report) {
  Model& model = *live->model;
  live->open = false;
  live->slot->word.close();
  std::erase(model.instances, live->id);
  live_.erase(live->id);
  touch(model.id);
  if (live->stopping) {
    model.stops->add();
    set_state(*live, InstanceState::stopped);
    apply(scheduler_.on_stopped(live->id, Clock::now()));
  } else {
    // A death under requests is theirs to answer for (two such deaths poison a request); one
    // without is the model's.
    const bool under_requests = live->slot->word.in_flight() > 0 || live->slot->suspect.load();
    Error error{
        ErrorCode::instance_crashed,
        live->replaced.empty()
            ? fmt::format("model \"{}\" died: {}", model.spec.name, report.description)
            : fmt::format("model \"{}\" was replaced: {}", model.spec.name, live->replaced)};
    for (const std::string& line : report.last_log_lines) error.message += "\n  " + line;
    model.error = error.message;
    model.error_code = error.code;
    spdlog::error("{}", error.message);
    set_state(*live, InstanceState::failed, report.description);
    apply(scheduler_.on_failed(live->id, std::move(error), under_requests, Clock::now()));
  }
  sync_waiters(model.id);
  publish();
  changed_.notify();
}

void ControlLoop::set_state(Live& live, InstanceState state, std::string_view detail) {
  live.state = state;
  live.since = Clock::now();
  touch(live.model->id);
  changed_.notify();
  admin::Event event{{"type", "instance_state"},
                     {"model", live.model->spec.name},
                     {"instance", to_string(live.id)},
                     {"state", to_string(state)}};
  if (!detail.empty()) event["detail"] = detail;
  events_.add(std::move(event));
}

asio::awaitable<void> ControlLoop::measure(std::shared_ptr<Live> live) {
  if (live->measuring || !live->process) co_return;
  live->measuring = true;
  const InstanceUsage usage = co_await live->process->usage(false);
  live->measuring = false;
  if (usage.processes == 0 || !live_.contains(live->id)) co_return;
  const bool grew = usage.high_water > live->usage.high_water;
  live->usage = usage;
  // A GPU's bytes cannot be measured from here: what is declared counts.
  if (grew && !live->stopping && live->model->device == kHostDevice)
    apply(scheduler_.on_usage(live->id, usage.high_water, Clock::now()));
}

// A broken connection that was not a death: the instance serves on if it still answers.
asio::awaitable<void> ControlLoop::examine(std::shared_ptr<Live> live) {
  asio::steady_timer grace(loop_, kSuspectGrace);
  boost::system::error_code status;
  auto token = asio::redirect_error(asio::use_awaitable, status);
  co_await grace.async_wait(token);
  auto gone = [&] {
    const bool dead = !live_.contains(live->id) || !live->process || !live->process->alive();
    return dead || live->closing || live->stopping;
  };
  if (gone()) co_return;
  const bool answers = co_await responds(*live);
  if (gone()) co_return;
  if (!answers) {
    co_await replace(live, "it does not answer any more");
    co_return;
  }
  spdlog::warn("model {}: instance {} broke a connection and lives on", live->model->spec.name,
               live->id.value);
  live->slot->suspect.store(false);
  open(*live);
  apply(scheduler_.on_freed(live->id, Clock::now()));
  sync_waiters(live->model->id);
}

// What a start waits for, once more.
asio::awaitable<bool> ControlLoop::responds(const Live& live) {
  const Endpoint endpoint = live.slot->endpoint;
  if (live.model->spec.python) {
    auto channel = co_await engine::ModelChannel::connect(loop_, endpoint, kProbeTimeout);
    co_return channel.ok();
  }
  http::Client client(loop_, http::ClientOptions{.idle_per_endpoint = 0});
  http::Headers headers;
  headers.add("Host", "localhost");
  headers.add("Connection", "close");
  const std::string path = live.process->plan().ready_path;
  auto answer = co_await client.request(endpoint, "GET", path, headers, "", kProbeTimeout);
  co_return answer.ok() && answer->status == 200;
}

// Ends the processes as a crash would: run() sees the death, and the model starts anew on demand.
asio::awaitable<void> ControlLoop::replace(std::shared_ptr<Live> live, std::string reason) {
  if (!live->process || live->stopping) co_return;
  live->replaced = reason;
  spdlog::warn("model {}: instance {} is replaced: {}", live->model->spec.name, live->id.value,
               reason);
  co_await live->process->stop();
}

}  // namespace omni::node
