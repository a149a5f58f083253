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
      learned_(options_.paths.state / "learned.json"),
      events_(loop),
      tasks_(loop.get_executor()),
      changed_(loop) {
  configs_.push_back(options_.config);
  scheduler_.add_device(kHostDevice, "host", config().host_memory);
  for (const auto& [number, memory] : config().gpu_memory)
    scheduler_.add_device(gpu_device(number), fmt::format("gpu{}", number), memory);
}

ControlLoop::~ControlLoop() = default;

void ControlLoop::start(ThreadLinks links, std::vector<ModelFolder> folders,
                        std::function<void()> on_tick, std::function<void()> on_shut_down) {
  links_ = std::move(links);
  on_tick_ = std::move(on_tick);
  on_shut_down_ = std::move(on_shut_down);
  for (ModelFolder& folder : folders) {
    const std::shared_ptr<Model> model = make_model(std::move(folder));
    // Of two with one name the second is broken, and only its error is of interest.
    const bool is_new = catalogue_.emplace(model->spec.name, model).second;
    if (!is_new) models_.erase(model->id);
    if (is_new) begin_provisioning(model);
  }
  list_names();
  publish();
  tasks_.spawn(tick());
  tasks_.spawn(save_learned());
  if (config().watch) tasks_.spawn(watch());
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
  while (!live_.empty() && Clock::now() < deadline) co_await changed_.wait(deadline);
  co_await tasks_.stop();
  learn();
  if (const auto text = learned_.unsaved()) {
    auto written = write_file_atomic(learned_.file(), *text);
    if (!written.ok()) spdlog::error("{}", written.error().message);
  }
}

// ---- messages of I/O threads

void ControlLoop::post(ControlMessage message) {
  asio::post(loop_, [this, message = std::move(message)]() mutable {
    std::visit([this](auto& content) { on(content); }, message);
  });
}

void ControlLoop::on(Admit& message) {
  message.model = heir_of(message.model);
  auto found = models_.find(message.model);
  if (stopping_) {
    Error error{ErrorCode::shutting_down, "the daemon is shutting down"};
    links_.refuse(message.thread, Refuse{message.ticket, std::move(error), 0});
    return;
  }
  if (found == models_.end()) {
    refuse_crossed(message);
    return;
  }
  Model& model = *found->second;
  if (model.retired && model.phase != Model::Phase::ready) {
    refuse_crossed(message);
    return;
  }
  if (model.phase == Model::Phase::failed && model.spec_ok && Clock::now() > model.retry_at) {
    begin_provisioning(found->second);
  }
  if (model.phase == Model::Phase::failed) {
    Error error{model.error_code, model.error};
    links_.refuse(message.thread, Refuse{message.ticket, std::move(error), 0});
    return;
  }
  if (model.phase == Model::Phase::provisioning) {
    if (model.held.size() >= config().queue_per_model) {
      Error error{ErrorCode::queue_full,
                  fmt::format("model \"{}\" is being provisioned and {} requests wait already",
                              model.spec.name, model.held.size())};
      links_.refuse(message.thread, Refuse{message.ticket, std::move(error), 5});
      return;
    }
    model.held.push_back(message);
    tickets_[message.ticket] = {message.thread, message.model};
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

// It was sent before the thread had read that the model is gone.
void ControlLoop::refuse_crossed(const Admit& message) {
  Error error{ErrorCode::model_stopped,
              "the model was removed or changed while the request was on its way: send it again"};
  links_.refuse(message.thread, Refuse{message.ticket, std::move(error), 1});
}

void ControlLoop::on(Forget& message) {
  auto found = tickets_.find(message.ticket);
  if (found == tickets_.end()) return;
  Model& model = *models_.at(found->second.model);
  tickets_.erase(found);
  const auto held = std::ranges::find(model.held, message.ticket,
                                      [](const Admit& admit) { return admit.ticket; });
  if (held != model.held.end()) {
    model.held.erase(held);
    return;
  }
  apply(scheduler_.on_forget(message.ticket, message.served, Clock::now()));
  sync_waiters(model.id);
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
  // Of all versions: they write beside each other.
  for (const auto& [id, live] : live_) {
    if (live->model->spec.name == model.spec.name) used.insert(live->log_number);
  }
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
  forget_retired(Clock::now());
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
                                 Clock::now()));
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
      const Admit& late = model->held.front();
      links_.refuse(late.thread, Refuse{late.ticket, std::move(error), 10});
      tickets_.erase(late.ticket);
      model->held.pop_front();
    }
  }
}

void ControlLoop::update_gauges() {
  for (auto& [name, model] : catalogue_) {
    const bool known = model->phase == Model::Phase::ready;
    model->waiting->set(static_cast<double>(model->held.size() +
                                            (known ? scheduler_.model(model->id).waiting : 0)));
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

}  // namespace omni::node
