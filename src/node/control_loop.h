// Owns models, instances and grants. Feeds the scheduler and carries out its actions; publishes
// route tables to the I/O threads. Everything runs on one io_context, but for post() and the
// NodeControl calls, which hop to it.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "admin/admin.h"
#include "base/metrics.h"
#include "base/notifier.h"
#include "base/task_group.h"
#include "config/model_spec.h"
#include "config/node_config.h"
#include "node/event_log.h"
#include "node/launch.h"
#include "node/learned_store.h"
#include "node/uid_pool.h"
#include "provision/provisioner.h"
#include "routing/messages.h"
#include "scheduler/scheduler.h"
#include "supervisor/instance.h"

namespace omni::node {

namespace asio = boost::asio;

// How the control loop reaches the I/O threads. The node fills it in; every function may be called
// on the loop only.
struct ThreadLinks {
  std::function<void(std::shared_ptr<const RouteTable>)> publish;  // to all threads
  std::function<void(std::uint32_t thread, Serve)> serve;
  std::function<void(std::uint32_t thread, Refuse)> refuse;
  // Returns when every thread has closed its idle connections to the endpoint.
  std::function<asio::awaitable<void>(Endpoint)> close_idle;
  // Another configuration holds from now on. It lives as long as the control loop.
  std::function<void(const NodeConfig&)> configure;
};

struct ControlOptions {
  NodePaths paths;
  std::filesystem::path config_file;  // read again at a reload
  bool config_required = false;       // else a missing file means the defaults
  NodeConfig config;
  std::filesystem::path python_path;
  std::optional<UidPool> uids;      // as root
  std::vector<std::string> listen;  // for status
};

class ControlLoop final : public ControlPort, public admin::NodeControl {
 public:
  ControlLoop(asio::io_context& loop, asio::thread_pool& workers, Spawner& spawner,
              Metrics& metrics, ControlOptions options);
  ~ControlLoop() override;

  // Adds the models and begins to provision them. A model whose spec is bad is listed as failed.
  void start(ThreadLinks links, std::vector<ModelFolder> folders, std::function<void()> on_tick,
             std::function<void()> on_shut_down);

  // The configuration that holds now.
  const NodeConfig& config() const { return configs_.back(); }
  // Reads omni.toml and the models' folders again, and logs what came of it.
  void request_reload(std::string_view reason);

  // A shutdown begins: log and event streams end, so that they do not hold it up.
  void begin_shutdown();
  // Refuses what waits and starts nothing more; idle instances stop.
  void refuse_waiting();
  // After refuse_waiting(): stops every instance, whatever it does, and ends all tasks.
  asio::awaitable<void> stop();

  // ControlPort: from any thread.
  void post(ControlMessage message) override;

  // admin::NodeControl: from any thread's coroutine.
  asio::awaitable<admin::NodeStatus> status() override;
  asio::awaitable<std::vector<admin::ModelStatus>> models() override;
  asio::awaitable<std::vector<admin::InstanceStatus>> instances(bool with_pss) override;
  asio::awaitable<Result<admin::ModelExplanation>> explain(std::string model) override;
  asio::awaitable<Result<void>> load(std::string model) override;
  asio::awaitable<Result<void>> stop(std::string model) override;
  asio::awaitable<Result<admin::ReloadReport>> reload() override;
  void shut_down() override;
  bool stopping() const override { return shutdown_began_.load(); }
  std::string log_path(std::string_view model) override;
  asio::awaitable<std::vector<admin::Event>> events(std::uint64_t after, TimePoint until) override;

 private:
  struct Model;
  struct Live;

  // ---- messages of I/O threads
  void on(Admit& message);
  void refuse_crossed(const Admit& message);
  void on(Forget& message);
  void on(Freed& message);
  void on(Drained& message);
  void on(Suspect& message);
  asio::awaitable<void> examine(std::shared_ptr<Live> live);
  asio::awaitable<bool> responds(const Live& live);
  asio::awaitable<void> replace(std::shared_ptr<Live> live, std::string reason);

  // ---- the scheduler's actions
  void apply(Actions actions);
  void carry_out(StartInstance& action);
  void carry_out(AbortStart& action);
  void carry_out(CloseInstance& action);
  void carry_out(OpenInstance& action);
  void carry_out(StopInstance& action);
  void carry_out(EvictInstance& action);
  void carry_out(RestoreInstance& action);
  void carry_out(ServeTicket& action);
  void carry_out(RefuseTicket& action);

  // ---- one instance's life
  asio::awaitable<void> run(std::shared_ptr<Live> live);
  asio::awaitable<Result<void>> bring_up(std::shared_ptr<Live> live);
  asio::awaitable<bool> was_killed(std::shared_ptr<Live> live, Error failure);
  asio::awaitable<void> stop_process(std::shared_ptr<Live> live, std::string reason);
  void open(Live& live);
  void died(std::shared_ptr<Live> live, const ExitReport& report);
  void set_state(Live& live, InstanceState state, std::string_view detail = {});
  asio::awaitable<void> measure(std::shared_ptr<Live> live);

  // ---- models
  std::shared_ptr<Model> make_model(ModelFolder folder);
  void begin_provisioning(std::shared_ptr<Model> model);
  asio::awaitable<void> provision(std::shared_ptr<Model> model);
  void on_provisioned(const std::shared_ptr<Model>& model);
  void on_provision_failed(Model& model, const Error& error);
  void place_on_device(Model& model) const;
  ModelPolicy policy_of(const Model& model) const;
  void learn();                          // what the scheduler knows now
  asio::awaitable<void> save_learned();  // now and then
  void refuse_held(Model& model, const Error& error);
  Model* find_model(std::string_view name);
  std::uint32_t free_log_number(const Model& model) const;
  void touch(ModelId model);  // its route is published after the current event
  void sync_waiters(ModelId model);
  std::shared_ptr<const ModelRoute> make_route(const Model& model) const;
  std::string_view state_of(const Model& model) const;
  void publish();

  // ---- reload
  struct Reading;  // of all files
  asio::awaitable<Result<admin::ReloadReport>> reload_here();
  std::vector<std::string> problems_of(const Reading& reading) const;
  admin::ReloadReport take(Reading reading);
  void take_config(NodeConfig config, admin::ReloadReport& report);
  asio::awaitable<Result<admin::ReloadReport>> read_and_take();
  void take_folder(ModelFolder folder, admin::ReloadReport& report);
  void change(const std::shared_ptr<Model>& model, ModelFolder folder);
  void hand_over(const std::shared_ptr<Model>& from, const std::shared_ptr<Model>& to);
  asio::awaitable<void> warm_up(std::shared_ptr<Model> from, std::shared_ptr<Model> to);
  void pass_name(const std::shared_ptr<Model>& from, const std::shared_ptr<Model>& to);
  void keep(Model& model, std::string why);
  bool is_up(const Model& model) const;
  void hand_over_held(Model& from, Model& to);
  void drop_successor(Model& model);
  ModelId heir_of(ModelId model) const;
  void retire(Model& model);
  void forget_retired(TimePoint now);
  void list_names();  // after a change of who has which name
  asio::awaitable<void> watch();

  asio::awaitable<void> tick();
  void tick_once();
  void report_activity();
  void expire_held(TimePoint now);
  void update_gauges();
  // The admin calls, on the loop.
  asio::awaitable<admin::NodeStatus> status_here();
  asio::awaitable<std::vector<admin::ModelStatus>> models_here();
  asio::awaitable<std::vector<admin::InstanceStatus>> instances_here(bool with_pss);
  Result<admin::ModelExplanation> explain_here(std::string_view name);
  asio::awaitable<Result<void>> load_here(std::string name);
  asio::awaitable<Result<void>> stop_here(std::string name);
  Error unknown_model(std::string_view name) const;

  asio::io_context& loop_;
  asio::thread_pool& workers_;
  Spawner& spawner_;
  Metrics& metrics_;
  ControlOptions options_;
  ThreadLinks links_;
  std::function<void()> on_tick_;
  std::function<void()> on_shut_down_;
  TimePoint started_ = Clock::now();

  Scheduler scheduler_;
  Provisioner provisioner_;
  LearnedStore learned_;
  EventLog events_;
  TaskGroup tasks_;
  Notifier changed_;  // an instance's or model's state

  std::deque<NodeConfig> configs_;  // all of this run: a request may still read an old one
  std::unordered_map<ModelId, std::shared_ptr<Model>> models_;  // also successors and retired ones
  std::map<std::string, std::shared_ptr<Model>, std::less<>> catalogue_;  // by name, who has it
  std::map<std::string, ModelId, std::less<>> names_;                     // and aliases
  std::unordered_map<ModelId, ModelId> heirs_;  // who took the place, and the requests, of whom
  std::unordered_map<InstanceId, std::shared_ptr<Live>> live_;
  struct Waiting {
    std::uint32_t thread;
    ModelId model;
  };
  // Undecided: held here while the model is provisioned, then known to the scheduler.
  std::unordered_map<TicketId, Waiting> tickets_;
  std::deque<Action> actions_;
  std::deque<InstanceId> drained_;  // closed while empty: told to the scheduler after the actions
  bool applying_ = false;
  std::set<ModelId> touched_;
  std::shared_ptr<const RouteTable> routes_ = std::make_shared<RouteTable>();
  std::uint64_t next_id_ = 1;
  std::uint64_t ticks_ = 0;
  bool stopping_ = false;
  bool reloading_ = false;
  std::uint64_t readings_ = 0;  // begun so far; callers who come while one runs share the next
  std::optional<Result<admin::ReloadReport>> last_reload_;
  std::string reload_error_;  // of the last reload; empty: it went well
  std::atomic<bool> shutdown_began_{false};
};

}  // namespace omni::node
