#include "node/control_loop.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/files.h"
#include "engine/model_channel.h"
#include "http/client.h"
#include "node/control_state.h"

namespace omni::node {

using namespace std::chrono_literals;

namespace {

constexpr Duration kTick = 50ms;
constexpr std::uint64_t kTicksPerMeasure = 20;  // usage of every instance about once a second
// A process that died is reported by its shim within milliseconds; a connection can break for other
// reasons.
constexpr Duration kSuspectGrace = 250ms;
// For the health of an instance that is in doubt.
constexpr Duration kProbeTimeout = 3s;
// A model that could not be provisioned is tried again for a request that comes so long after.
constexpr Duration kProvisionRetry = 30s;

}  // namespace

ControlLoop::ControlLoop(asio::io_context& loop, asio::thread_pool& workers, Spawner& spawner,
                         Metrics& metrics, ControlOptions options)
    : loop_(loop),
      workers_(workers),
      spawner_(spawner),
      metrics_(metrics),
      options_(std::move(options)),
      scheduler_(SchedulerLimits{.queue_per_model = options_.config.queue_per_model,
                                 .queue_total = options_.config.queue_total}),
      provisioner_(loop, workers, options_.paths),
      events_(loop),
      tasks_(loop.get_executor()),
      changed_(loop, TimePoint::max()) {
  scheduler_.add_device(kHostDevice, "host", options_.config.host_memory);
}

ControlLoop::~ControlLoop() = default;

void ControlLoop::start(ThreadLinks links, std::vector<ModelFolder> folders,
                        std::function<void()> on_tick, std::function<void()> on_shut_down) {
  links_ = std::move(links);
  on_tick_ = std::move(on_tick);
  on_shut_down_ = std::move(on_shut_down);
  for (ModelFolder& folder : folders) add_model(std::move(folder));
  publish();
  tasks_.spawn(tick());
}

void ControlLoop::begin_shutdown() {
  shutdown_began_.store(true);
  events_.close();
}

void ControlLoop::refuse_waiting() {
  stopping_ = true;
  const Error refusal{ErrorCode::shutting_down, "the daemon is shutting down"};
  for (auto& [id, model] : models_) refuse_held(*model, refusal);
  apply(scheduler_.shut_down(Clock::now()));
}

asio::awaitable<void> ControlLoop::stop() {
  std::vector<std::shared_ptr<Live>> left;
  left.reserve(live_.size());
  for (auto& [id, live] : live_) left.push_back(live);
  for (auto& live : left) {
    if (!live->stopping) tasks_.spawn(stop_process(live, "shutdown"));
  }
  // Each stop ends within its model's stop_grace; the bound is for a process that the kernel cannot
  // kill.
  const TimePoint deadline = Clock::now() + 2min;
  while (!live_.empty() && Clock::now() < deadline) co_await wait_for_change(deadline);
  co_await tasks_.stop();
}

// ---- messages of I/O threads

void ControlLoop::post(ControlMessage message) {
  asio::post(loop_, [this, message = std::move(message)]() mutable {
    std::visit([this](auto& content) { on(content); }, message);
  });
}

void ControlLoop::on(Admit& message) {
  auto found = models_.find(message.model);
  if (found == models_.end() || stopping_) {
    Error error{ErrorCode::shutting_down, "the daemon is shutting down"};
    links_.refuse(message.thread, Refuse{message.ticket, std::move(error), 0});
    return;
  }
  Model& model = *found->second;
  if (model.phase == Model::Phase::failed && model.spec_ok &&
      Clock::now() - model.failed_at > kProvisionRetry) {
    begin_provisioning(found->second);
  }
  if (model.phase == Model::Phase::failed) {
    Error error{ErrorCode::provision_failed, model.error};
    links_.refuse(message.thread, Refuse{message.ticket, std::move(error), 0});
    return;
  }
  if (model.phase == Model::Phase::provisioning) {
    if (model.held.size() >= options_.config.queue_per_model) {
      Error error{ErrorCode::queue_full,
                  fmt::format("model \"{}\" is being provisioned and {} requests wait already",
                              model.spec.name, model.held.size())};
      links_.refuse(message.thread, Refuse{message.ticket, std::move(error), 5});
      return;
    }
    model.held.push_back(message);
    return;
  }
  tickets_[message.ticket] = {message.thread, message.model};
  // Before the scheduler offers an instance: see LeaseWord::set_waiters.
  for (InstanceId id : model.instances) {
    Live& live = *live_.at(id);
    if (live.open) live.slot->word.set_waiters(true);
  }
  apply(scheduler_.on_request(message.ticket, message.model, message.deadline, message.priority,
                              Clock::now()));
  sync_waiters(message.model);
}

void ControlLoop::on(Forget& message) {
  auto found = tickets_.find(message.ticket);
  if (found != tickets_.end()) {
    const ModelId model = found->second.model;
    tickets_.erase(found);
    apply(scheduler_.on_forget(message.ticket, message.served, Clock::now()));
    sync_waiters(model);
    return;
  }
  for (auto& [id, model] : models_) {
    std::erase_if(model->held, [&](const Admit& held) { return held.ticket == message.ticket; });
  }
}

void ControlLoop::on(Freed& message) {
  auto found = live_.find(message.instance);
  if (found == live_.end()) return;
  const ModelId model = found->second->model->id;
  apply(scheduler_.on_freed(message.instance, Clock::now()));
  sync_waiters(model);
}

void ControlLoop::on(Drained& message) {
  auto found = live_.find(message.instance);
  if (found == live_.end() || !found->second->closing) return;
  // Opened and closed again while this message was under way: only a word that is empty now is
  // drained.
  if (found->second->slot->word.in_flight() > 0) return;
  apply(scheduler_.on_drained(message.instance, Clock::now()));
}

void ControlLoop::on(Suspect& message) {
  auto found = live_.find(message.instance);
  if (found == live_.end() || !found->second->open) return;
  Live& live = *found->second;
  live.open = false;
  live.slot->word.close();
  touch(live.model->id);
  publish();
  tasks_.spawn(message.hung ? replace(found->second, "it does not answer CANCEL")
                            : examine(found->second));
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

// ---- the scheduler's actions

// The scheduler takes an offer (ServeTicket) that is not answered with on_full before its next
// event as taken: what carrying out an action makes known, such as a word that was empty when it
// was closed, waits until all are out.
void ControlLoop::apply(Actions actions) {
  for (Action& action : actions) actions_.push_back(std::move(action));
  if (applying_) return;  // the outer call goes on with them
  applying_ = true;
  while (!actions_.empty() || !drained_.empty()) {
    if (actions_.empty()) {
      const InstanceId instance = drained_.front();
      drained_.pop_front();
      apply(scheduler_.on_drained(instance, Clock::now()));
      continue;
    }
    Action action = std::move(actions_.front());
    actions_.pop_front();
    std::visit([this](auto& content) { carry_out(content); }, action);
  }
  applying_ = false;
  publish();
}

void ControlLoop::carry_out(StartInstance& action) {
  auto live = std::make_shared<Live>();
  live->id = action.instance;
  live->model = models_.at(action.model);
  live->grant = action.grant;
  live->slot = std::make_shared<InstanceSlot>();
  live->slot->id = live->id;
  live->slot->model = live->model->id;
  live->slot->capacity = live->model->spec.concurrency;
  live->log_number = free_log_number(*live->model);
  live->model->instances.push_back(live->id);
  live_.emplace(live->id, live);
  set_state(*live, InstanceState::starting, to_string(action.grant));
  tasks_.spawn(run(live));
}

std::uint32_t ControlLoop::free_log_number(const Model& model) const {
  std::set<std::uint32_t> used;
  for (InstanceId id : model.instances) used.insert(live_.at(id)->log_number);
  std::uint32_t number = 0;
  while (used.contains(number)) ++number;
  return number;
}

void ControlLoop::carry_out(AbortStart& action) {
  auto found = live_.find(action.instance);
  if (found != live_.end()) tasks_.spawn(stop_process(found->second, "nobody waits for it"));
}

void ControlLoop::carry_out(CloseInstance& action) {
  auto found = live_.find(action.instance);
  if (found == live_.end()) return;
  Live& live = *found->second;
  live.open = false;
  live.closing = true;
  touch(live.model->id);
  set_state(live, InstanceState::draining);
  if (live.slot->word.close()) drained_.push_back(live.id);
}

void ControlLoop::carry_out(OpenInstance& action) {
  auto found = live_.find(action.instance);
  if (found == live_.end() || found->second->stopping) return;
  found->second->closing = false;
  open(*found->second);
  set_state(*found->second, InstanceState::resident);
}

void ControlLoop::carry_out(StopInstance& action) {
  auto found = live_.find(action.instance);
  if (found != live_.end()) tasks_.spawn(stop_process(found->second, action.reason));
}

// No device of this node has a mechanism to evict: the policy orders what ModelPolicy::mechanism
// allows.
void ControlLoop::carry_out(EvictInstance&) { std::abort(); }
void ControlLoop::carry_out(RestoreInstance&) { std::abort(); }

void ControlLoop::carry_out(ServeTicket& action) {
  auto ticket = tickets_.find(action.ticket);
  auto found = live_.find(action.instance);
  if (ticket == tickets_.end()) return;
  const bool taken =
      found != live_.end() && found->second->open &&
      found->second->slot->word.try_acquire(
          found->second->generation, found->second->slot->capacity, true) == LeaseWord::Acquire::ok;
  if (!taken) {
    apply(scheduler_.on_full(action.ticket, action.instance, Clock::now()));
    return;
  }
  const Waiting waiting = ticket->second;
  tickets_.erase(ticket);
  const Live& live = *found->second;
  links_.serve(waiting.thread, Serve{action.ticket, InstanceRoute{live.slot, live.generation}});
  sync_waiters(waiting.model);
}

void ControlLoop::carry_out(RefuseTicket& action) {
  auto ticket = tickets_.find(action.ticket);
  if (ticket == tickets_.end()) return;
  const Waiting waiting = ticket->second;
  tickets_.erase(ticket);
  links_.refuse(waiting.thread,
                Refuse{action.ticket, std::move(action.error), action.retry_after_seconds});
  sync_waiters(waiting.model);
}

// ---- one instance's life

asio::awaitable<void> ControlLoop::run(std::shared_ptr<Live> live) {
  const TimePoint began = Clock::now();
  auto up = co_await bring_up(live);
  Model& model = *live->model;
  if (!up.ok()) {
    if (live->process && live->process->alive()) co_await live->process->stop();
    set_state(*live, live->stopping ? InstanceState::stopped : InstanceState::failed,
              up.error().message);
    std::erase(model.instances, live->id);
    live_.erase(live->id);
    touch(model.id);
    if (live->stopping) {
      apply(scheduler_.on_stopped(live->id, Clock::now()));
    } else {
      model.error = up.error().message;
      spdlog::error("model {}: {}", model.spec.name, up.error().message);
      apply(scheduler_.on_failed(live->id, up.error(), false, Clock::now()));
    }
    changed_.cancel();
    co_return;
  }
  const Duration took = Clock::now() - began;
  model.loads->add();
  model.load_time->observe(took);
  model.error.clear();
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

asio::awaitable<Result<void>> ControlLoop::bring_up(std::shared_ptr<Live> live) {
  const Model& model = *live->model;
  const Error aborted{ErrorCode::model_stopped, "the start was called off"};
  std::optional<uid_t> uid;
  if (options_.uids) {
    CO_TRY(uid, options_.uids->of(model.spec.name));
  }
  const LaunchContext context{options_.paths, options_.python_path, uid, live->log_number};
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
    spdlog::error("{}", error.message);
    set_state(*live, InstanceState::failed, report.description);
    apply(scheduler_.on_failed(live->id, std::move(error), under_requests, Clock::now()));
  }
  sync_waiters(model.id);
  publish();
  changed_.cancel();
}

void ControlLoop::set_state(Live& live, InstanceState state, std::string_view detail) {
  live.state = state;
  live.since = Clock::now();
  touch(live.model->id);
  changed_.cancel();
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
  if (grew && !live->stopping) apply(scheduler_.on_usage(live->id, usage.high_water, Clock::now()));
}

// ---- models

void ControlLoop::add_model(ModelFolder folder) {
  auto model = std::make_shared<Model>();
  model->id = ModelId{next_id_++};
  model->spec_ok = folder.spec.ok();
  if (model->spec_ok) {
    model->spec = std::move(folder.spec).value();
  } else {
    model->spec.name = folder.name;
    model->phase = Model::Phase::failed;
    model->error = folder.spec.error().message;
    spdlog::error("{}", model->error);
  }
  const std::string& name = model->spec.name;
  const Metrics::Labels labels{{"model", name}};
  model->metrics = {
      .registry = &metrics_,
      .requests =
          &metrics_.counter("omni_requests_total", "Requests that named the model.", labels),
      .tokens_in = &metrics_.counter("omni_prompt_tokens_total",
                                     "Prompt tokens, as engines report them.", labels),
      .tokens_out = &metrics_.counter("omni_completion_tokens_total",
                                      "Generated tokens, as engines report them.", labels),
      .replays = &metrics_.counter("omni_replays_total",
                                   "Requests sent again after an instance broke.", labels),
      .latency = &metrics_.histogram("omni_request_seconds", "Request head read to last byte sent.",
                                     labels),
      .queue_time = &metrics_.histogram("omni_queue_seconds", "Waiting for a lease.", labels)};
  model->loads = &metrics_.counter("omni_loads_total", "Instances that became resident.", labels);
  model->stops = &metrics_.counter("omni_stops_total", "Instances stopped on purpose.", labels);
  model->load_time = &metrics_.histogram("omni_load_seconds", "Start to resident.", labels);
  model->waiting = &metrics_.gauge("omni_queue_length", "Requests that wait for a lease.", labels);
  model->resident = &metrics_.gauge("omni_instances_resident", "Instances that serve.", labels);
  models_[model->id] = model;
  names_[name] = model->id;
  for (const std::string& alias : model->spec.aliases) names_.emplace(alias, model->id);
  touch(model->id);
  if (model->spec_ok) begin_provisioning(std::move(model));
}

void ControlLoop::begin_provisioning(std::shared_ptr<Model> model) {
  model->phase = Model::Phase::provisioning;
  model->error.clear();
  touch(model->id);
  tasks_.spawn(provision(std::move(model)));
}

asio::awaitable<void> ControlLoop::provision(std::shared_ptr<Model> model) {
  const std::string name = model->spec.name;
  auto progress = [this, name](std::string_view line) {
    events_.add({{"type", "provision"}, {"model", name}, {"line", line}});
  };
  auto provisioned = co_await provisioner_.provision(model->spec, progress);
  if (!provisioned.ok()) {
    model->phase = Model::Phase::failed;
    model->failed_at = Clock::now();
    model->error = provisioned.error().message;
    spdlog::error("model {}: {}", name, model->error);
    events_.add({{"type", "provision_failed"}, {"model", name}, {"line", model->error}});
    refuse_held(*model, provisioned.error());
  } else {
    model->phase = Model::Phase::ready;
    model->provisioned = std::move(provisioned).value();
    events_.add(
        {{"type", "provisioned"}, {"model", name}, {"version", model->provisioned.version}});
    const ModelSpec& spec = model->spec;
    apply(scheduler_.on_model(ModelPolicy{.id = model->id,
                                          .name = name,
                                          .declared = spec.memory,
                                          .concurrency = spec.concurrency,
                                          .min_instances = spec.min_instances,
                                          .max_instances = spec.max_instances,
                                          .pinned = spec.pinned,
                                          .stop_after = spec.stop_after},
                              Clock::now()));
    auto held = std::exchange(model->held, {});
    for (Admit& message : held) on(message);
  }
  touch(model->id);
  publish();
  changed_.cancel();
}

void ControlLoop::refuse_held(Model& model, const Error& error) {
  for (const Admit& message : std::exchange(model.held, {})) {
    links_.refuse(message.thread, Refuse{message.ticket, error, 0});
  }
}

ControlLoop::Model* ControlLoop::find_model(std::string_view name) {
  auto found = names_.find(name);
  return found == names_.end() ? nullptr : models_.at(found->second).get();
}

void ControlLoop::touch(ModelId model) { touched_.insert(model); }

// The waiters bit of every open instance says whether the scheduler has a ticket of its model.
void ControlLoop::sync_waiters(ModelId id) {
  const Model& model = *models_.at(id);
  const bool waiting = scheduler_.has_waiters(id);
  for (InstanceId instance : model.instances) {
    Live& live = *live_.at(instance);
    if (live.open) live.slot->word.set_waiters(waiting);
  }
}

std::string_view ControlLoop::state_of(const Model& model) const {
  if (model.phase == Model::Phase::failed) return to_string(InstanceState::failed);
  if (model.phase == Model::Phase::provisioning) return to_string(InstanceState::provisioning);
  return to_string(scheduler_.model(model.id).state);
}

std::shared_ptr<const ModelRoute> ControlLoop::make_route(const Model& model) const {
  auto route = std::make_shared<ModelRoute>();
  route->id = model.id;
  route->name = model.spec.name;
  route->task = model.spec.task;
  route->engine = model.spec.python ? EngineKind::python : EngineKind::command;
  if (model.spec.command) route->served_name = model.spec.command->served_name;
  if (!model.spec_ok) route->unusable = Error{ErrorCode::invalid_config, model.error};
  route->created = model.spec.created;
  route->state = state_of(model);
  route->request_timeout = options_.config.request_timeout;
  if (model.phase == Model::Phase::ready)
    route->retry_after_seconds = scheduler_.retry_after_seconds(model.id);
  route->metrics = model.metrics;
  for (InstanceId id : model.instances) {
    const Live& live = *live_.at(id);
    if (live.open) route->instances.push_back({live.slot, live.generation});
  }
  return route;
}

// One copy of the map's pointers for all changes of an event; unchanged models keep their route.
void ControlLoop::publish() {
  if (applying_ || touched_.empty() || !links_.publish) return;
  auto table = std::make_shared<RouteTable>(*routes_);
  for (ModelId id : std::exchange(touched_, {})) {
    const Model& model = *models_.at(id);
    auto route = make_route(model);
    table->models[model.spec.name] = route;
    for (const std::string& alias : model.spec.aliases) table->models[alias] = route;
  }
  routes_ = table;
  links_.publish(std::move(table));
}

// ---- time

asio::awaitable<void> ControlLoop::tick() {
  asio::steady_timer timer(loop_);
  for (;;) {
    tick_once();
    timer.expires_after(kTick);
    co_await timer.async_wait(asio::use_awaitable);
  }
}

// Each event has its own time: what is applied in between reads the clock too, and events come in
// order.
void ControlLoop::tick_once() {
  on_tick_();
  report_activity();
  apply(scheduler_.on_tick(Clock::now()));
  expire_held(Clock::now());
  if (++ticks_ % kTicksPerMeasure == 0) {
    for (auto& [id, live] : live_) {
      if (live->state == InstanceState::resident) tasks_.spawn(measure(live));
    }
    update_gauges();
  }
}

// The fast path's leases, of instances where something changed.
void ControlLoop::report_activity() {
  const TimePoint now = Clock::now();
  // Applying an action may add or remove instances: the walk is over a copy.
  struct Change {
    InstanceId instance;
    std::uint32_t in_flight;
    std::uint64_t served;  // since the last report
    TimePoint last_used;
  };
  std::vector<Change> changes;
  std::vector<InstanceId> overdue;
  for (auto& [id, live] : live_) {
    const std::uint32_t in_flight = live->slot->word.in_flight();
    const std::uint64_t served = live->slot->served.load(std::memory_order_relaxed);
    if (in_flight != live->reported_in_flight || served != live->reported_served) {
      const TimePoint last_used{Duration(live->slot->last_release.load(std::memory_order_relaxed))};
      changes.push_back({id, in_flight, served - live->reported_served, last_used});
    }
    live->reported_in_flight = in_flight;
    live->reported_served = served;
    const auto& force_stop = live->model->force_stop;
    if (live->closing && !live->stopping && force_stop && now > *force_stop) overdue.push_back(id);
  }
  for (const Change& change : changes) {
    apply(scheduler_.on_activity(change.instance, change.in_flight, change.served, change.last_used,
                                 now));
  }
  for (InstanceId id : overdue) apply(scheduler_.on_drained(id, Clock::now()));
}

void ControlLoop::expire_held(TimePoint now) {
  for (auto& [id, model] : models_) {
    while (!model->held.empty() && model->held.front().deadline <= now) {
      Error error{
          ErrorCode::queue_timeout,
          fmt::format("model \"{}\" is still being provisioned; `omni events` shows how far it is",
                      model->spec.name)};
      links_.refuse(model->held.front().thread,
                    Refuse{model->held.front().ticket, std::move(error), 10});
      model->held.pop_front();
    }
  }
}

void ControlLoop::update_gauges() {
  for (auto& [id, model] : models_) {
    const bool known = model->phase == Model::Phase::ready;
    model->waiting->set(
        static_cast<double>(model->held.size() + (known ? scheduler_.model(id).waiting : 0)));
    const auto open =
        std::ranges::count_if(model->instances, [&](InstanceId i) { return live_.at(i)->open; });
    model->resident->set(static_cast<double>(open));
  }
  for (const auto& device : scheduler_.devices()) {
    const Metrics::Labels labels{{"device", device.name}};
    metrics_.gauge("omni_device_budget_bytes", "Bytes that instances may hold.", labels)
        .set(static_cast<double>(device.budget.count()));
    metrics_.gauge("omni_device_granted_bytes", "Bytes granted to instances.", labels)
        .set(static_cast<double>(device.granted.count()));
  }
  metrics_.gauge("omni_resident_memory_bytes", "Resident memory of the daemon.")
      .set(static_cast<double>(own_rss()));
}

asio::awaitable<void> ControlLoop::wait_for_change(TimePoint until) {
  asio::steady_timer deadline(loop_, until);
  deadline.async_wait([this](boost::system::error_code status) {
    if (!status) changed_.cancel();
  });
  boost::system::error_code status;
  auto token = asio::redirect_error(asio::use_awaitable, status);
  co_await changed_.async_wait(token);
}

}  // namespace omni::node
