// The control loop's models: their provisioning, and the routes that the I/O threads get.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <boost/asio/use_awaitable.hpp>

#include "base/files.h"
#include "node/control_state.h"
#include "provision/workers.h"

namespace omni::node {

using namespace std::chrono_literals;

namespace {

constexpr Duration kSaveEvery = 1min;
// A model that could not be provisioned is tried again for a request that comes ten times as long
// after as the try took, within these bounds.
constexpr Duration kFirstRetry = 1s;
constexpr Duration kLastRetry = 30s;

}  // namespace

// Known by its id alone: list_names() gives it its name.
std::shared_ptr<ControlLoop::Model> ControlLoop::make_model(ModelFolder folder) {
  auto model = std::make_shared<Model>();
  model->id = ModelId{next_id_++};
  model->fingerprint = folder.fingerprint;
  model->spec_ok = folder.spec.ok();
  if (model->spec_ok) {
    model->spec = std::move(folder.spec).value();
    model->aliases = model->spec.aliases;
    place_on_device(*model);
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
  return model;
}

// Of the declared GPUs that could hold the model, the one with the least promised to others.
void ControlLoop::place_on_device(Model& model) const {
  const ModelSpec& spec = model.spec;
  if (!spec.gpu_memory) return;
  std::map<std::uint32_t, Bytes> promised;
  for (const auto& [name, other] : catalogue_) {
    if (other->spec.gpu_memory && name != spec.name)
      promised[gpu_number(other->device)] += *other->spec.gpu_memory;
  }
  std::optional<std::uint32_t> best;
  for (const auto& [number, memory] : configs_.front().gpu_memory) {
    if (memory < *spec.gpu_memory) continue;
    if (!best || promised[number] < promised[*best]) best = number;
  }
  if (best) {
    model.device = gpu_device(*best);
    return;
  }
  model.spec_ok = false;
  model.phase = Model::Phase::failed;
  model.error = fmt::format(
      "model \"{}\" needs {} of a GPU, and omni.toml has no [device.gpuN] with that much memory",
      spec.name, to_string(*spec.gpu_memory));
  spdlog::error("{}", model.error);
}

void ControlLoop::begin_provisioning(std::shared_ptr<Model> model) {
  if (!model->spec_ok) return;
  model->phase = Model::Phase::provisioning;
  model->provisioned_from = Clock::now();
  model->error.clear();
  touch(model->id);
  Model& begun = *model;
  begun.provisioning = tasks_.spawn(provision(std::move(model)));
}

asio::awaitable<void> ControlLoop::provision(std::shared_ptr<Model> model) {
  const std::string name = model->spec.name;
  auto progress = [this, name](std::string_view line) {
    events_.add({{"type", "provision"}, {"model", name}, {"line", line}});
  };
  auto provisioned = co_await provisioner_.provision(model->spec, progress);
  if (model->dropped) co_return;
  if (provisioned.ok()) {
    model->provisioned = std::move(provisioned).value();
    on_provisioned(model);
  } else {
    on_provision_failed(*model, provisioned.error());
  }
  publish();
  changed_.notify();
}

void ControlLoop::on_provisioned(const std::shared_ptr<Model>& model) {
  model->phase = Model::Phase::ready;
  events_.add({{"type", "provisioned"},
               {"model", model->spec.name},
               {"version", model->provisioned.version}});
  if (const auto predecessor = model->predecessor.lock()) {
    hand_over(predecessor, model);
    return;
  }
  apply(scheduler_.on_model(policy_of(*model), Clock::now()));
  auto held = std::exchange(model->held, {});
  for (Admit& message : held) on(message);
  touch(model->id);
}

void ControlLoop::on_provision_failed(Model& model, const Error& error) {
  spdlog::error("{}", error.message);
  events_.add({{"type", "provision_failed"}, {"model", model.spec.name}, {"line", error.message}});
  // A change that cannot be made ready changes nothing: what was there serves on.
  if (const auto predecessor = model.predecessor.lock()) {
    keep(*predecessor, error.message);
    return;
  }
  model.phase = Model::Phase::failed;
  const TimePoint now = Clock::now();
  model.retry_at = now + std::clamp(10 * (now - model.provisioned_from), kFirstRetry, kLastRetry);
  model.error = error.message;
  model.error_code = error.code;
  refuse_held(model, error);
  touch(model.id);
}

ModelPolicy ControlLoop::policy_of(const Model& model) const {
  const ModelSpec& spec = model.spec;
  auto learned = learned_.of(spec.name, model.provisioned.version, spec.memory.has_value());
  if (learned && spec.gpu_memory) learned->profile.reset();  // it was measured on the host
  return {.id = model.id,
          .name = spec.name,
          .device = model.device,
          .declared = spec.gpu_memory ? spec.gpu_memory : spec.memory,
          .concurrency = spec.concurrency,
          .min_instances = spec.min_instances,
          .max_instances = spec.max_instances,
          .pinned = spec.pinned,
          .stop_after = spec.stop_after,
          .learned = std::move(learned)};
}

void ControlLoop::learn() {
  for (const auto& [name, model] : catalogue_) {
    if (scheduler_.knows(model->id))
      learned_.set(name, model->provisioned.version, scheduler_.learned(model->id));
  }
}

asio::awaitable<void> ControlLoop::save_learned() {
  asio::steady_timer timer(loop_);
  for (;;) {
    timer.expires_after(kSaveEvery);
    co_await timer.async_wait(asio::use_awaitable);
    learn();
    const auto text = learned_.unsaved();
    if (!text) continue;
    auto write = [file = learned_.file(), content = *text] {
      return write_file_atomic(file, content);
    };
    auto written = co_await on_workers(workers_, write);
    if (written.ok()) learned_.saved(*text);
    if (!written.ok()) spdlog::error("{}", written.error().message);
  }
}

void ControlLoop::refuse_held(Model& model, const Error& error) {
  for (const Admit& message : std::exchange(model.held, {})) {
    links_.refuse(message.thread, Refuse{message.ticket, error, 0});
    tickets_.erase(message.ticket);
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
  route->idle_connection = model.spec.idle_connection;
  route->priority = model.spec.priority;
  route->defaults.assign(model.spec.defaults.begin(), model.spec.defaults.end());
  route->state = state_of(model);
  route->request_timeout = config().request_timeout;
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
    const auto found = models_.find(id);
    if (found == models_.end() || !found->second->listed) continue;
    const Model& model = *found->second;
    auto route = make_route(model);
    table->models[model.spec.name] = route;
    for (const std::string& alias : model.aliases) table->models[alias] = route;
  }
  routes_ = table;
  links_.publish(std::move(table));
}

}  // namespace omni::node
