#include "node/node.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json.hpp>

#include "admin/admin.h"
#include "base/files.h"
#include "node/control_loop.h"
#include "node/io_thread.h"

namespace omni::node {
namespace {

constexpr std::size_t kSocketPathLimit = 107;  // sockaddr_un
// What stopping all instances may take; each ends within its model's stop_grace.
constexpr Duration kLongestStop = std::chrono::minutes(5);
// For the errors of requests that were cut, once nothing is left that could answer them.
constexpr Duration kLastWords = std::chrono::seconds(1);

Result<void> make_folders(const NodePaths& paths) {
  // Engines' sockets are the longest paths: <run>/i/ID/engine.sock.
  const std::string longest = (paths.run / "i/18446744073709551615/engine.sock").string();
  if (longest.size() > kSocketPathLimit) {
    return Error{ErrorCode::invalid_config,
                 fmt::format("the run folder {} is too deep: socket paths in it would have {} "
                             "bytes and {} are allowed; "
                             "use a shorter --root",
                             paths.run.string(), longest.size(), kSocketPathLimit)};
  }
  for (const auto& folder :
       {paths.state, paths.logs, paths.run, paths.state / "cache", paths.run / "i"}) {
    CHECK(make_directories(folder, 0755));
  }
  return make_directories(paths.state / "spool", 0700);
}

// Held for the daemon's life; the kernel drops it with the process.
Result<Fd> take_lock(const NodePaths& paths) {
  const std::string path = (paths.run / "lock").string();
  Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file) return errno_error("cannot open " + path);
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error{ErrorCode::already_running,
                 fmt::format("another omni daemon holds {}: stop it, or use another --root", path)};
  }
  return file;
}

// What a killed daemon left: its shims have ended with it, their run folders stay.
void remove_stale_run_folders(const NodePaths& paths) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(paths.run / "i", ignored)) {
    std::filesystem::remove_all(entry.path(), ignored);
  }
}

// Each connection of 10,000 costs one descriptor, and one more to its engine.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Listeners for each thread: the first binds alone, the others join it with SO_REUSEPORT.
struct Listeners {
  std::vector<std::vector<http::Listener>> by_thread;
  std::vector<std::string> names;
};

Result<Listeners> open_listeners(const NodeOptions& options, std::size_t threads) {
  Listeners listeners;
  listeners.by_thread.resize(threads);
  for (const Listen& address : options.config.listen) {
    auto first = http::listen_on(Endpoint::tcp_at(address.host, address.port));
    // A host without IPv6 serves on IPv4 alone.
    const bool optional = address.host == "::1" && options.config.listen.size() > 1;
    if (!first.ok() && optional && first.error().code != ErrorCode::already_running) {
      spdlog::warn("not listening on [::1]:{}: {}", address.port, first.error().message);
      continue;
    }
    if (!first.ok()) return std::move(first).error();
    listeners.names.push_back(to_string(first->endpoint));
    for (std::size_t i = 1; i < threads; ++i) {
      TRY(http::Listener beside, http::listen_beside(*first));
      listeners.by_thread[i].push_back(std::move(beside));
    }
    listeners.by_thread[0].push_back(std::move(first).value());
  }
  TRY(http::Listener admin,
      http::listen_on(Endpoint::unix_at(options.paths.admin_socket().string()), 0600));
  listeners.names.push_back(to_string(admin.endpoint));
  listeners.by_thread[0].push_back(std::move(admin));
  return listeners;
}

http::ServerOptions server_options(const NodeConfig& config) {
  http::ServerOptions options;
  options.header_timeout = config.header_timeout;
  options.idle_timeout = config.idle_timeout;
  return options;
}

// Everything between the listeners and the last instance; one object so that shutdown has one
// order.
class Daemon {
 public:
  Daemon(NodeOptions options, Spawner& spawner, std::optional<UidPool> uids, Listeners listeners);

  void run();

 private:
  ThreadLinks links();
  asio::awaitable<void> close_idle(Endpoint endpoint);
  asio::awaitable<void> shut_down();
  void on_signal(int number);
  void watch_signals();

  NodeOptions options_;
  Metrics metrics_;
  asio::io_context loop_{1};
  asio::thread_pool workers_{2};
  ControlLoop control_;
  gateway::Shared shared_;
  std::vector<std::unique_ptr<IoThread>> threads_;
  asio::signal_set signals_;
  bool going_down_ = false;
  asio::steady_timer cut_;  // cancelled by a second signal
};

Daemon::Daemon(NodeOptions options, Spawner& spawner, std::optional<UidPool> uids,
               Listeners listeners)
    : options_(std::move(options)),
      control_(loop_, workers_, spawner, metrics_,
               ControlOptions{.paths = options_.paths,
                              .config_file = options_.config_file,
                              .config_required = options_.config_required,
                              .config = options_.config,
                              .python_path = options_.lib_dir / "python",
                              .uids = std::move(uids),
                              .listen = listeners.names}),
      signals_(loop_, SIGINT, SIGTERM, SIGHUP),
      cut_(loop_) {
  shared_.config = &control_.config();
  shared_.spool = options_.paths.state / "spool";
  shared_.metrics = &metrics_;
  shared_.admin = [this](http::Exchange& exchange) { return admin::handle(control_, exchange); };
  for (std::uint32_t i = 0; i < listeners.by_thread.size(); ++i) {
    threads_.push_back(
        std::make_unique<IoThread>(i, shared_, control_, server_options(options_.config)));
  }
  auto ticked = [this] { shared_.control_tick.store(Clock::now().time_since_epoch().count()); };
  ticked();
  control_.start(links(), std::move(options_.models), ticked, [this] { on_signal(SIGTERM); });
  for (std::size_t i = 0; i < threads_.size(); ++i)
    threads_[i]->run(std::move(listeners.by_thread[i]));
}

ThreadLinks Daemon::links() {
  ThreadLinks links;
  links.publish = [this](std::shared_ptr<const RouteTable> table) {
    for (auto& thread : threads_) {
      asio::post(thread->loop(),
                 [&admission = thread->admission(), table] { admission.publish(table); });
    }
  };
  links.serve = [this](std::uint32_t index, Serve message) {
    IoThread& thread = *threads_[index];
    asio::post(thread.loop(), [&thread, message = std::move(message)]() mutable {
      thread.admission().serve(std::move(message));
    });
  };
  links.refuse = [this](std::uint32_t index, Refuse message) {
    IoThread& thread = *threads_[index];
    asio::post(thread.loop(), [&thread, message = std::move(message)]() mutable {
      thread.admission().refuse(std::move(message));
    });
  };
  links.configure = [this](const NodeConfig& config) { shared_.config = &config; };
  links.close_idle = [this](Endpoint endpoint) { return close_idle(std::move(endpoint)); };
  return links;
}

asio::awaitable<void> Daemon::close_idle(Endpoint endpoint) {
  for (auto& thread : threads_) co_await thread->close_idle(endpoint);
}

void Daemon::watch_signals() {
  signals_.async_wait([this](boost::system::error_code status, int number) {
    if (status) return;
    on_signal(number);
    watch_signals();
  });
}

void Daemon::on_signal(int number) {
  if (number == SIGHUP) {
    control_.request_reload("SIGHUP");
    return;
  }
  if (going_down_) {
    spdlog::warn("signal {} again: cutting what still runs", number);
    cut_.cancel();
    return;
  }
  going_down_ = true;
  spdlog::info("shutting down: running requests have {} to finish; a second signal cuts them",
               to_string(control_.config().shutdown_timeout));
  asio::co_spawn(loop_, shut_down(), asio::detached);
}

// Requests that run or wait finish first. At the deadline, or a second signal, those that wait are
// refused and the models stop under those that run, so that each gets its error; then the threads
// end.
asio::awaitable<void> Daemon::shut_down() {
  shared_.draining = true;
  control_.begin_shutdown();
  for (auto& thread : threads_) thread->drain();
  cut_.expires_after(control_.config().shutdown_timeout);
  const TimePoint never = Clock::now() + control_.config().shutdown_timeout + kLongestStop;
  std::size_t busy = threads_.size();
  for (auto& thread : threads_) {
    asio::co_spawn(loop_, thread->stop(never), [this, &busy](std::exception_ptr) {
      if (--busy == 0) cut_.cancel();
    });
  }
  boost::system::error_code status;
  auto token = asio::redirect_error(asio::use_awaitable, status);
  co_await cut_.async_wait(token);
  control_.refuse_waiting();
  co_await control_.stop();
  const TimePoint last_words = Clock::now() + kLastWords;
  for (auto& thread : threads_) co_await thread->stop(last_words);
  loop_.stop();
}

void Daemon::run() {
  watch_signals();
  loop_.run();
  for (auto& thread : threads_) thread->join();
  workers_.join();
}

}  // namespace

Result<std::filesystem::path> installed_lib_dir() {
  std::error_code status;
  const auto executable = std::filesystem::read_symlink("/proc/self/exe", status);
  const auto lib = executable.parent_path().parent_path() / "lib/omni";
  if (!status && std::filesystem::exists(lib / "omni-shim")) return lib;
  return Error{ErrorCode::io_error,
               fmt::format("omni-shim is not in {}: the installation is incomplete", lib.string())};
}

Result<void> serve(NodeOptions options) {
  ::signal(SIGPIPE, SIG_IGN);
  // Before anything large exists in this process, and before any thread does.
  TRY(std::unique_ptr<Spawner> spawner, Spawner::start(options.lib_dir / "omni-shim"));
  raise_descriptor_limit();
  CHECK(make_folders(options.paths));
  TRY(const Fd lock, take_lock(options.paths));
  remove_stale_run_folders(options.paths);
  std::optional<UidPool> uids;
  if (::geteuid() == 0) {
    TRY(uids, UidPool::load(options.paths.state / "uids.json", options.config.uid_first,
                            options.config.uid_last));
  }
  const std::size_t threads =
      options.config.io_threads != 0
          ? options.config.io_threads
          : std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 16);
  TRY(Listeners listeners, open_listeners(options, threads));
  spdlog::info("omni {} serves {} models on {}", OMNI_VERSION, options.models.size(),
               fmt::join(listeners.names, ", "));
  Daemon daemon(std::move(options), *spawner, std::move(uids), std::move(listeners));
  daemon.run();
  spdlog::info("stopped");
  return {};
}

}  // namespace omni::node
