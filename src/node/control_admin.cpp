// The control loop as the admin API sees it: each call hops to the loop and back.
#include <fmt/format.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fstream>

#include "base/text.h"
#include "node/control_state.h"

namespace omni::node {

using namespace std::chrono_literals;

namespace {

// A load may wait for an environment that is being built; a stop for streams that drain.
constexpr Duration kVerbDeadline = 15min;

double seconds_since(TimePoint then, TimePoint now) { return Seconds(now - then).count(); }

}  // namespace

std::int64_t own_rss() {
  std::ifstream file("/proc/self/statm");
  std::int64_t size = 0;
  std::int64_t resident = 0;
  file >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

asio::awaitable<admin::NodeStatus> ControlLoop::status() {
  co_return co_await asio::co_spawn(loop_, status_here(), asio::use_awaitable);
}

asio::awaitable<std::vector<admin::ModelStatus>> ControlLoop::models() {
  co_return co_await asio::co_spawn(loop_, models_here(), asio::use_awaitable);
}

asio::awaitable<std::vector<admin::InstanceStatus>> ControlLoop::instances(bool with_pss) {
  co_return co_await asio::co_spawn(loop_, instances_here(with_pss), asio::use_awaitable);
}

asio::awaitable<Result<admin::ModelExplanation>> ControlLoop::explain(std::string model) {
  std::optional<Result<admin::ModelExplanation>> answer;
  auto run = [](ControlLoop& self, std::string_view name, auto& into) -> asio::awaitable<void> {
    into.emplace(self.explain_here(name));
    co_return;
  };
  co_await asio::co_spawn(loop_, run(*this, model, answer), asio::use_awaitable);
  co_return *std::move(answer);
}

asio::awaitable<Result<void>> ControlLoop::load(std::string model) {
  co_return co_await asio::co_spawn(loop_, load_here(std::move(model)), asio::use_awaitable);
}

asio::awaitable<Result<void>> ControlLoop::stop(std::string model) {
  co_return co_await asio::co_spawn(loop_, stop_here(std::move(model)), asio::use_awaitable);
}

asio::awaitable<Result<admin::ReloadReport>> ControlLoop::reload() {
  // What co_spawn hands over must have a default; a result has none.
  std::optional<Result<admin::ReloadReport>> report;
  auto run = [](ControlLoop& self, auto& into) -> asio::awaitable<void> {
    into.emplace(co_await self.reload_here());
  };
  co_await asio::co_spawn(loop_, run(*this, report), asio::use_awaitable);
  co_return *std::move(report);
}

asio::awaitable<std::vector<admin::Event>> ControlLoop::events(std::uint64_t after,
                                                               TimePoint until) {
  co_return co_await asio::co_spawn(loop_, events_.wait(after, until), asio::use_awaitable);
}

void ControlLoop::shut_down() {
  asio::post(loop_, [this] { on_shut_down_(); });
}

// Of several instances, such as two versions during a change, the one that wrote last.
std::string ControlLoop::log_path(std::string_view name) {
  std::filesystem::path newest = log_file(options_.paths, name);
  auto written = std::filesystem::file_time_type::min();
  std::error_code missing;
  for (std::uint32_t number = 0; !missing; ++number) {
    const std::filesystem::path file = log_file(options_.paths, name, number);
    const auto time = std::filesystem::last_write_time(file, missing);
    if (!missing && time > written) {
      newest = file;
      written = time;
    }
  }
  return newest.string();
}

Error ControlLoop::unknown_model(std::string_view name) const {
  std::vector<std::string_view> known;
  known.reserve(names_.size());
  for (const auto& [candidate, id] : names_) known.push_back(candidate);
  const std::string nearest = nearest_name(name, known);
  return {ErrorCode::model_not_found,
          nearest.empty()
              ? fmt::format("there is no model \"{}\"; `omni models` lists them", name)
              : fmt::format("there is no model \"{}\"; did you mean \"{}\"?", name, nearest)};
}

asio::awaitable<admin::NodeStatus> ControlLoop::status_here() {
  admin::NodeStatus status;
  status.version = OMNI_VERSION;
  status.pid = ::getpid();
  status.uptime_seconds = seconds_since(started_, Clock::now());
  status.rss_bytes = own_rss();
  status.listen = options_.listen;
  status.reload_error = reload_error_;
  for (const auto& device : scheduler_.devices()) {
    status.devices.push_back({device.name, device.budget.count(), device.granted.count()});
  }
  co_return status;
}

asio::awaitable<std::vector<admin::ModelStatus>> ControlLoop::models_here() {
  std::vector<admin::ModelStatus> list;
  for (const auto& [name, model] : catalogue_) {
    admin::ModelStatus status;
    status.name = model->spec.name;
    if (model->spec_ok) {
      status.task = to_string(model->spec.task);
      status.engine = model->spec.python ? "python" : "command";
    }
    status.state = state_of(*model);
    status.aliases = model->aliases;
    status.pinned = model->spec.pinned;
    status.version = model->provisioned.version;
    status.last_error = model->change_error.empty() ? model->error : model->change_error;
    status.requests = model->metrics.requests->value();
    status.waiting = static_cast<std::uint32_t>(model->held.size());
    for (InstanceId instance : model->instances)
      status.in_flight += live_.at(instance)->slot->word.in_flight();
    if (model->spec.gpu_memory) {
      status.memory_bytes = model->spec.gpu_memory->count();
    } else if (model->spec.memory) {
      status.memory_bytes = model->spec.memory->count();
    }
    if (model->phase == Model::Phase::ready) {
      const auto view = scheduler_.model(model->id);
      status.waiting += view.waiting;
      if (view.profile) status.memory_bytes = view.profile->count();
      if (view.load_time > Duration::zero()) status.load_seconds = Seconds(view.load_time).count();
    }
    list.push_back(std::move(status));
  }
  co_return list;
}

asio::awaitable<std::vector<admin::InstanceStatus>> ControlLoop::instances_here(bool with_pss) {
  std::vector<std::shared_ptr<Live>> all;
  all.reserve(live_.size());
  for (const auto& [id, live] : live_) all.push_back(live);
  std::ranges::sort(all, {}, [](const auto& live) { return live->id; });
  std::vector<admin::InstanceStatus> list;
  for (const auto& live : all) {
    if (with_pss && live->process) {
      const InstanceUsage usage = co_await live->process->usage(true);
      if (usage.processes > 0) live->usage = usage;
    }
    const TimePoint now = Clock::now();
    admin::InstanceStatus status;
    status.id = to_string(live->id);
    status.model = live->model->spec.name;
    status.state = to_string(live->state);
    status.pid = live->usage.main_pid;
    if (live->process) status.endpoint = to_string(live->process->plan().endpoint);
    status.grant_bytes = live->grant.count();
    status.high_water_bytes = live->usage.high_water.count();
    status.pss_bytes = live->usage.pss.count();
    status.in_flight = live->slot->word.in_flight();
    status.served = live->slot->served.load(std::memory_order_relaxed);
    status.seconds_in_state = seconds_since(live->since, now);
    const TimePoint last_used{Duration(live->slot->last_release.load(std::memory_order_relaxed))};
    if (status.in_flight == 0)
      status.seconds_idle = seconds_since(std::max(last_used, live->since), now);
    list.push_back(std::move(status));
  }
  co_return list;
}

Result<admin::ModelExplanation> ControlLoop::explain_here(std::string_view name) {
  const Model* model = find_model(name);
  if (model == nullptr) return unknown_model(name);
  admin::ModelExplanation answer{.name = model->spec.name,
                                 .state = std::string(state_of(*model)),
                                 .pinned = model->spec.pinned};
  // Before a model is provisioned the scheduler does not know it.
  if (model->phase != Model::Phase::ready) {
    answer.reason = answer.state;
    answer.sentence =
        model->phase == Model::Phase::failed
            ? model->error
            : fmt::format("model \"{}\" is being provisioned; `omni events` shows how far it is",
                          model->spec.name);
    answer.waiting = static_cast<std::uint32_t>(model->held.size());
    return answer;
  }
  const Explanation found = scheduler_.explain(model->id, Clock::now());
  answer.reason = to_string(found.absence);
  answer.sentence = found.sentence;
  if (!model->change_error.empty()) {
    answer.sentence += fmt::format("; its files have changed, and that version cannot be used: {}",
                                   model->change_error);
  }
  for (const ModelId other : found.others) {
    const auto known = models_.find(other);
    if (known != models_.end()) answer.others.push_back(known->second->spec.name);
  }
  answer.waiting = found.waiting;
  answer.oldest_wait_seconds = Seconds(found.oldest_wait).count();
  if (found.retry_in > Duration{}) answer.retry_seconds = Seconds(found.retry_in).count();
  answer.need_bytes = found.need.count();
  answer.need_source = to_string(found.need_source);
  answer.device = found.device;
  answer.budget_bytes = found.budget.count();
  answer.granted_bytes = found.granted.count();
  answer.held_bytes = found.held.count();
  answer.free_bytes = found.free.count();
  answer.requests_per_second = found.reuse_per_second;
  if (found.restart_cost > Duration{}) answer.restart_seconds = Seconds(found.restart_cost).count();
  answer.victim_rank = found.victim_rank;
  return answer;
}

asio::awaitable<Result<void>> ControlLoop::load_here(std::string name) {
  Model* found = find_model(name);
  if (found == nullptr) co_return unknown_model(name);
  const std::shared_ptr<Model> model = models_.at(found->id);
  const TimePoint deadline = Clock::now() + kVerbDeadline;
  if (!model->spec_ok) co_return Error{ErrorCode::invalid_config, model->error};
  if (model->phase == Model::Phase::failed) begin_provisioning(model);
  while (model->phase == Model::Phase::provisioning && !model->retired && Clock::now() < deadline)
    co_await changed_.wait(deadline);
  if (model->retired) {  // a reload changed it
    auto loaded = co_await load_here(std::move(name));
    co_return loaded;
  }
  if (model->phase == Model::Phase::failed) co_return Error{model->error_code, model->error};
  model->error.clear();
  apply(scheduler_.load(model->id, Clock::now()));
  while (Clock::now() < deadline) {
    for (InstanceId id : model->instances) {
      if (live_.at(id)->open) co_return Result<void>();
    }
    if (model->instances.empty() && !model->error.empty())
      co_return Error{model->error_code, model->error};
    // What cannot be is not waited for.
    const Explanation why = scheduler_.explain(model->id, Clock::now());
    if (why.absence == Absence::too_large)
      co_return Error{ErrorCode::model_too_large, why.sentence};
    if (why.absence == Absence::no_room_beside)
      co_return Error{ErrorCode::out_of_memory, why.sentence};
    if (stopping_) co_return Error{ErrorCode::shutting_down, "the daemon is shutting down"};
    if (why.absence == Absence::not_asked_for)
      co_return Error{ErrorCode::model_stopped, why.sentence};
    co_await changed_.wait(deadline);
    if (model->retired) {  // a reload changed it
      auto loaded = co_await load_here(std::move(name));
      co_return loaded;
    }
  }
  co_return Error{ErrorCode::out_of_memory,
                  fmt::format("model \"{}\" was not loaded: its device had no room", name)};
}

// All that has this name, or had it: an older version, or a removed model, may still answer.
asio::awaitable<Result<void>> ControlLoop::stop_here(std::string name) {
  const Model* named = find_model(name);
  const std::string& own_name = named != nullptr ? named->spec.name : name;
  std::vector<std::shared_ptr<Model>> models;
  for (const auto& [id, model] : models_) {
    if (model->spec.name == own_name) models.push_back(model);
  }
  if (models.empty()) co_return unknown_model(name);
  // Those of now: a request that comes meanwhile may start the model again.
  std::vector<InstanceId> instances;
  for (const auto& model : models) {
    refuse_held(*model, {ErrorCode::model_stopped,
                         fmt::format("model \"{}\" was stopped by an operator", name)});
    instances.insert(instances.end(), model->instances.begin(), model->instances.end());
    model->force_stop = Clock::now() + config().shutdown_timeout;
    apply(scheduler_.stop(model->id, Clock::now()));
  }
  const TimePoint deadline = Clock::now() + kVerbDeadline;
  auto any_left = [&] {
    return std::ranges::any_of(instances, [&](InstanceId id) { return live_.contains(id); });
  };
  while (any_left() && Clock::now() < deadline) co_await changed_.wait(deadline);
  for (const auto& model : models) model->force_stop.reset();
  if (any_left())
    co_return Error{ErrorCode::internal, fmt::format("model \"{}\" did not stop", name)};
  co_return Result<void>();
}

}  // namespace omni::node
