// Reload: the configuration is read again, and what has changed is carried out.
//
// All files are read and checked before anything happens, so that a bad one changes nothing. A
// model that changed becomes another model of the same name: its successor is provisioned, and
// loaded if the old one is, while the old one serves; then it takes the name, and the old one is
// drained when its own requests are done. No request meets a change half-way, and a model that did
// not change is not touched.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include "node/control_state.h"
#include "node/file_watch.h"
#include "provision/workers.h"

namespace omni::node {

using namespace std::chrono_literals;

namespace {

// A request may be on its way from an I/O thread that has not yet read of the new routes. The old
// instances serve that long, so that it is not refused.
constexpr Duration kRetireAfter = 1s;
// Files that change together, such as by a deployment, are read once: after a pause, or this long.
constexpr Duration kQuiet = 300ms;
constexpr Duration kLongestUnrest = 5s;

// Keys that are read once, when the daemon starts.
std::vector<std::string> changed_for_next_start(const NodeConfig& now, const NodeConfig& wanted) {
  std::vector<std::string> keys;
  const auto compare = [&keys](const char* key, bool same) {
    if (!same) keys.emplace_back(key);
  };
  compare("listen", now.listen == wanted.listen);
  compare("io_threads", now.io_threads == wanted.io_threads);
  compare("uid_range", now.uid_first == wanted.uid_first && now.uid_last == wanted.uid_last);
  compare("watch", now.watch == wanted.watch);
  compare("device.host.memory", now.host_memory == wanted.host_memory);
  compare("device.gpuN.memory", now.gpu_memory == wanted.gpu_memory);
  compare("limits.header_timeout", now.header_timeout == wanted.header_timeout);
  compare("limits.idle_timeout", now.idle_timeout == wanted.idle_timeout);
  return keys;
}

// What a request was planned by must hold for the model that serves it.
bool same_interface(const ModelSpec& a, const ModelSpec& b) {
  const bool same_kind = a.task == b.task && a.python.has_value() == b.python.has_value();
  const auto served_name = [](const ModelSpec& spec) {
    return spec.command ? spec.command->served_name : std::string();
  };
  return same_kind && served_name(a) == served_name(b);
}

std::string sentence(const admin::ReloadReport& report) {
  std::string text = "reloaded";
  const auto add = [&text](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) text += fmt::format(", {}: {}", what, fmt::join(names, " "));
  };
  add("added", report.added);
  add("removed", report.removed);
  add("changed", report.changed);
  add("from the next start on", report.at_next_start);
  return text;
}

bool is_empty(const admin::ReloadReport& report) {
  return report.added.empty() && report.removed.empty() && report.changed.empty() &&
         report.at_next_start.empty();
}

}  // namespace

struct ControlLoop::Reading {
  Result<NodeConfig> config;
  Result<std::vector<ModelFolder>> folders = std::vector<ModelFolder>();
};

void ControlLoop::request_reload(std::string_view reason) {
  spdlog::info("reload: {}", reason);
  auto reload = [](ControlLoop& self) -> asio::awaitable<void> {
    [[maybe_unused]] auto logged = co_await self.reload_here();
  };
  tasks_.spawn(reload(*this));
}

// One reading at a time. Whoever asks while one runs wants what may have changed since it began:
// all of those share the next.
asio::awaitable<Result<admin::ReloadReport>> ControlLoop::reload_here() {
  const std::uint64_t wanted = readings_ + 1;
  const TimePoint deadline = Clock::now() + 1min;
  while (reloading_ && Clock::now() < deadline) co_await changed_.wait(deadline);
  if (!reloading_ && readings_ >= wanted && last_reload_) co_return *last_reload_;
  if (reloading_) {
    spdlog::error("a reload is given up: the one before it takes too long");
    co_return Error{ErrorCode::overloaded, "another reload takes too long"};
  }
  if (stopping_) co_return Error{ErrorCode::shutting_down, "the daemon is shutting down"};
  reloading_ = true;
  ++readings_;
  auto outcome = co_await read_and_take();
  last_reload_ = outcome;
  reloading_ = false;
  changed_.notify();
  co_return outcome;
}

asio::awaitable<Result<admin::ReloadReport>> ControlLoop::read_and_take() {
  auto read = [file = options_.config_file, required = options_.config_required] {
    Reading reading{.config = load_node_config(file, required)};
    if (reading.config.ok()) reading.folders = load_model_folders(reading.config->models);
    return reading;
  };
  Reading reading = co_await on_workers(workers_, read);
  const std::vector<std::string> problems = problems_of(reading);
  reload_error_ = fmt::format("{}", fmt::join(problems, "\n"));
  if (!problems.empty()) {
    spdlog::error("nothing is reloaded:\n{}", reload_error_);
    events_.add({{"type", "reload_failed"}, {"line", reload_error_}});
    co_return Error{ErrorCode::invalid_config, "nothing is reloaded:\n" + reload_error_};
  }
  admin::ReloadReport report = take(std::move(reading));
  if (!is_empty(report)) {
    spdlog::info("{}", sentence(report));
    boost::json::object event = admin::to_json(report);
    event["type"] = "reloaded";
    events_.add(std::move(event));
  }
  co_return report;
}

// A model that was broken before and is so still is no news.
std::vector<std::string> ControlLoop::problems_of(const Reading& reading) const {
  if (!reading.config.ok()) return {reading.config.error().message};
  if (!reading.folders.ok()) return {reading.folders.error().message};
  std::vector<std::string> problems;
  for (const ModelFolder& folder : *reading.folders) {
    if (folder.spec.ok()) continue;
    const auto known = catalogue_.find(folder.name);
    const bool as_before = known != catalogue_.end() && !known->second->spec_ok &&
                           known->second->error == folder.spec.error().message;
    if (!as_before) problems.push_back(folder.spec.error().message);
  }
  return problems;
}

admin::ReloadReport ControlLoop::take(Reading reading) {
  admin::ReloadReport report;
  take_config(std::move(reading.config).value(), report);
  std::set<std::string, std::less<>> present;
  for (const ModelFolder& folder : *reading.folders) present.insert(folder.name);
  for (auto entry = catalogue_.begin(); entry != catalogue_.end();) {
    const std::shared_ptr<Model> model = entry->second;
    if (present.contains(entry->first)) {
      ++entry;
      continue;
    }
    report.removed.push_back(entry->first);
    entry = catalogue_.erase(entry);
    retire(*model);
  }
  for (ModelFolder& folder : *reading.folders) take_folder(std::move(folder), report);
  list_names();
  publish();
  changed_.notify();
  return report;
}

void ControlLoop::take_config(NodeConfig config, admin::ReloadReport& report) {
  report.at_next_start = changed_for_next_start(configs_.front(), config);
  if (config == this->config()) return;
  configs_.push_back(std::move(config));
  scheduler_.set_queue_limits(this->config().queue_per_model, this->config().queue_total);
  links_.configure(this->config());
}

void ControlLoop::take_folder(ModelFolder folder, admin::ReloadReport& report) {
  const auto known = catalogue_.find(folder.name);
  if (known == catalogue_.end()) {
    const std::shared_ptr<Model> model = make_model(std::move(folder));
    report.added.push_back(model->spec.name);
    catalogue_.emplace(model->spec.name, model);
    begin_provisioning(model);
    return;
  }
  const std::shared_ptr<Model> model = known->second;
  // One that failed is tried again: what it lacked may be there now.
  const bool failed = model->spec_ok && model->phase == Model::Phase::failed;
  const bool retry = failed || !model->change_error.empty();
  if (!folder.spec.ok() || (model->fingerprint == folder.fingerprint && !retry)) {
    ++report.unchanged;
    return;
  }
  report.changed.push_back(folder.name);
  change(model, std::move(folder));
}

void ControlLoop::change(const std::shared_ptr<Model>& model, ModelFolder folder) {
  model->fingerprint = folder.fingerprint;
  drop_successor(*model);
  const std::shared_ptr<Model> successor = make_model(std::move(folder));
  // Names change at once, for all models together: one may give another its alias.
  model->aliases = successor->aliases;
  if (model->phase == Model::Phase::ready) {
    model->successor = successor;
    successor->predecessor = model;
    if (!successor->spec_ok) {  // such as no GPU that could hold it
      keep(*model, successor->error);
      return;
    }
  } else {
    catalogue_[model->spec.name] = successor;
    hand_over_held(*model, *successor);
    retire(*model);
  }
  begin_provisioning(successor);
}

// `to` is provisioned. When the two would run the same, it is still the old one with another
// policy.
void ControlLoop::hand_over(const std::shared_ptr<Model>& from, const std::shared_ptr<Model>& to) {
  from->change_error.clear();
  if (from->provisioned.version == to->provisioned.version && from->device == to->device) {
    from->spec = to->spec;
    apply(scheduler_.on_model(policy_of(*from), Clock::now()));
    drop_successor(*from);
    touch(from->id);
    return;
  }
  learned_.set(from->spec.name, from->provisioned.version, scheduler_.learned(from->id));
  apply(scheduler_.on_model(policy_of(*to), Clock::now()));
  // What an operator has stopped stays so.
  if (scheduler_.model(from->id).held_down) apply(scheduler_.stop(to->id, Clock::now()));
  if (is_up(*from)) {
    tasks_.spawn(warm_up(from, to));
  } else {
    pass_name(from, to);
  }
}

// It serves, or is about to.
bool ControlLoop::is_up(const Model& model) const {
  return std::ranges::any_of(model.instances, [this](InstanceId id) {
    const InstanceState state = live_.at(id)->state;
    return state == InstanceState::starting || state == InstanceState::resident;
  });
}

// Where the old version is at hand the new one must be too, before it gets a request: what cannot
// be loaded changes nothing either. When there is no room for both, the old one makes it, and with
// it goes the name: its files are no more, so it could not be started again.
asio::awaitable<void> ControlLoop::warm_up(std::shared_ptr<Model> from, std::shared_ptr<Model> to) {
  to->error.clear();
  apply(scheduler_.load(to->id, Clock::now()));
  const auto serves = [this](InstanceId id) { return live_.at(id)->open; };
  for (;;) {
    if (to->dropped) co_return;  // changed again, or removed
    if (std::ranges::any_of(to->instances, serves) || !is_up(*from)) break;
    if (to->instances.empty() && !to->error.empty()) {
      keep(*from, to->error);
      co_return;
    }
    // A load that waits for room has no instance: whether there can be any is looked at again.
    const Explanation why = scheduler_.explain(to->id, Clock::now());
    if (why.absence == Absence::too_large) {
      keep(*from, why.sentence);
      co_return;
    }
    // Not beside an old one that nothing may close, such as itself pinned: then one after the
    // other.
    if (why.absence == Absence::no_room_beside) break;
    co_await changed_.wait(Clock::now() + 1s);
  }
  pass_name(from, to);
  apply(scheduler_.load(to->id, Clock::now()));
  publish();
}

void ControlLoop::pass_name(const std::shared_ptr<Model>& from, const std::shared_ptr<Model>& to) {
  spdlog::info("model {} is replaced by version {}", to->spec.name,
               to->provisioned.version.substr(0, 12));
  from->successor.reset();
  to->predecessor.reset();
  catalogue_[to->spec.name] = to;
  retire(*from);
  list_names();
  if (same_interface(from->spec, to->spec)) {
    // What waits, and what is still on its way by the old id, is served by the new version.
    heirs_[from->id] = to->id;
    for (auto& [ticket, waiting] : tickets_) {
      if (waiting.model == from->id) waiting.model = to->id;
    }
    apply(scheduler_.on_model_replaced(from->id, to->id, Clock::now()));
    sync_waiters(to->id);
  } else {
    ModelPolicy leaving = policy_of(*from);  // nothing keeps it any more
    leaving.pinned = false;
    leaving.min_instances = 0;
    apply(scheduler_.on_model(std::move(leaving), Clock::now()));
  }
  changed_.notify();
}

ModelId ControlLoop::heir_of(ModelId model) const {
  for (auto heir = heirs_.find(model); heir != heirs_.end(); heir = heirs_.find(model)) {
    model = heir->second;
  }
  return model;
}

// The new version is of no use: what was there serves on.
void ControlLoop::keep(Model& model, std::string why) {
  spdlog::error("model {} stays as it was: {}", model.spec.name, why);
  events_.add({{"type", "change_failed"}, {"model", model.spec.name}, {"line", why}});
  model.change_error = std::move(why);
  drop_successor(model);
  touch(model.id);
  publish();
  changed_.notify();
}

void ControlLoop::hand_over_held(Model& from, Model& to) {
  if (!same_interface(from.spec, to.spec)) {
    refuse_held(from, {ErrorCode::model_stopped,
                       fmt::format("model \"{}\" was changed while the request waited: send it "
                                   "again",
                                   from.spec.name)});
    return;
  }
  for (Admit& message : std::exchange(from.held, {})) {
    message.model = to.id;
    tickets_[message.ticket].model = to.id;
    to.held.push_back(message);
  }
}

void ControlLoop::drop_successor(Model& model) {
  if (!model.successor) return;
  const std::shared_ptr<Model> successor = std::exchange(model.successor, nullptr);
  successor->dropped = true;
  tasks_.cancel(successor->provisioning);  // and with it a download that nobody wants
  // It may be about to load: then it goes as a model does.
  if (scheduler_.knows(successor->id)) {
    successor->retired = Clock::now() - kRetireAfter;
  } else {
    models_.erase(successor->id);
  }
}

// It has no name any more: the requests that it has are served, then it goes.
void ControlLoop::retire(Model& model) {
  drop_successor(model);
  model.retired = Clock::now();
  model.listed = false;
  if (model.phase == Model::Phase::ready) return;
  model.dropped = true;  // its provisioning is of no use
  tasks_.cancel(model.provisioning);
  refuse_held(model, {ErrorCode::model_not_found,
                      fmt::format("model \"{}\" was removed", model.spec.name)});
}

void ControlLoop::forget_retired(TimePoint now) {
  std::vector<ModelId> retired;
  for (const auto& [id, model] : models_) {
    if (model->retired && now - *model->retired >= kRetireAfter) retired.push_back(id);
  }
  for (const ModelId id : retired) {
    if (scheduler_.knows(id)) apply(scheduler_.on_model_removed(id, Clock::now()));
    const std::shared_ptr<Model> model = models_.at(id);
    if (scheduler_.knows(id) || !model->instances.empty()) continue;
    models_.erase(id);
    if (catalogue_.contains(model->spec.name)) continue;
    provisioner_.release(model->spec.name);
    model->waiting->set(0);
    model->resident->set(0);
  }
}

void ControlLoop::list_names() {
  names_.clear();
  routes_ = std::make_shared<RouteTable>();
  for (const auto& [name, model] : catalogue_) {
    model->listed = true;
    names_[name] = model->id;
    for (const std::string& alias : model->aliases) names_.emplace(alias, model->id);
    touch(model->id);
  }
}

asio::awaitable<void> ControlLoop::watch() {
  FileWatch files(loop_);
  for (;;) {
    files.watch(options_.config_file, config().models);
    co_await files.changed(kQuiet, kLongestUnrest);
    files.watch(options_.config_file, config().models);  // new folders, before they are read
    spdlog::info("reload: files have changed");
    [[maybe_unused]] auto logged = co_await reload_here();
  }
}

}  // namespace omni::node
