// One instance: spawn, ready, stop. Lives on the control loop; blocking reads of /proc run on the
// worker pool.
//
// The daemon never forks models itself: the spawner (omni-shim --spawner) is forked before the
// daemon has threads or memory, and starts one omni-shim per instance, which is pid 1 of the
// instance's pid namespace where the host allows one. docs/contracts/shim.md.
#pragma once

#include <sys/types.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/endpoint.h"
#include "base/fd.h"
#include "base/ids.h"
#include "base/result.h"

namespace omni {

namespace asio = boost::asio;

// Everything a start needs, worked out by the node from spec, provisioned files and grant.
struct LaunchPlan {
  InstanceId id;
  std::string model;
  std::vector<std::string> argv;  // placeholders filled
  std::map<std::string, std::string>
      env;  // the whole environment of the process: nothing is inherited
  std::filesystem::path working_directory;
  std::filesystem::path run_dir;   // <run>/i/ID, made by the supervisor, 0700 of the model's uid
  std::filesystem::path log_file;  // rotated by the shim: 10 MiB, three old ones
  std::optional<uid_t> uid;        // root only
  // What the uid must be able to read or write at the same path, though an ancestor may be closed
  // to it (/root): the shim makes it reachable in the instance's mount namespace.
  struct Reach {
    std::filesystem::path path;
    bool writable = false;
  };
  std::vector<Reach> reach;

  Endpoint endpoint;    // where it will listen
  bool python = false;  // ready by the protocol's READY; socket made by the shim, descriptor 3
  std::string ready_path = "/health";  // command engines: GET until 200
  Duration load_stall = std::chrono::seconds(60);
  Duration stop_grace = std::chrono::seconds(5);
};

struct ExitReport {
  bool by_signal = false;
  int status = 0;           // exit code or signal number
  std::string description;  // "exit code 1", "signal 11 (SIGSEGV)", "signal 9 (SIGKILL)"
  // False: the kernel has not ended some process of it yet (uninterruptible sleep), so its memory
  // is still in use. wait_exit() tells when it is gone.
  bool gone = true;
  std::vector<std::string> last_log_lines;  // at most 20
};

struct InstanceUsage {
  Bytes high_water;  // sum of VmHWM over the tree
  Bytes pss;         // sum of PSS; zero when not asked for
  std::uint32_t processes = 0;
  pid_t main_pid = 0;  // as the host sees it
};

// The daemon's side of the spawner process.
class Spawner {
 public:
  struct Options {
    // False: instances get no pid and mount namespace even where the host would allow them.
    bool namespaces = true;
  };

  // Forks and execs `omni-shim --spawner`. Called by main before any thread or large allocation.
  static Result<std::unique_ptr<Spawner>> start(const std::filesystem::path& omni_shim);
  static Result<std::unique_ptr<Spawner>> start(const std::filesystem::path& omni_shim,
                                                Options options);
  // Closes its socket: it ends. Shims live on until their Instance goes, by which they kill their
  // tree; a daemon that dies closes all of it at once.
  ~Spawner();

  // Whether instances get a pid namespace of their own here: for `omni doctor` and strict
  // isolation.
  bool pid_namespaces() const;
  pid_t pid() const;
  bool alive() const;
  // After it has ended: another one in its place. Shims of the old one live on.
  Result<void> restart();

  // For Instance::start.
  int socket() const;

 private:
  struct Impl;
  explicit Spawner(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Made by start(), used on its loop alone, ended by stop() or by itself. Destroying one that runs
// makes its shim kill the tree at once and leave the record run_dir/exit.json behind.
class Instance {
 public:
  virtual ~Instance() = default;

  // Starts the process tree and returns as soon as it exists; wait_ready() says when it serves.
  // A command that cannot be run is load_failed with the system's reason.
  static asio::awaitable<Result<std::shared_ptr<Instance>>> start(asio::io_context& loop,
                                                                  asio::thread_pool& workers,
                                                                  Spawner& spawner,
                                                                  LaunchPlan plan);

  // As given, but for a TCP endpoint's host: after wait_ready() it is the address of the family,
  // IPv4 or IPv6, that the engine listens on.
  virtual const LaunchPlan& plan() const = 0;
  // Ready: probed every 15 ms for two seconds, then more rarely (a twentieth of the time waited, at
  // most 250 ms), and at once on a process event. Fails with load_failed (it exited; the message
  // has its last log lines), load_stalled (no progress: log bytes, CPU time and bytes read stood
  // still for load_stall; the caller stops it) or model_stopped (stop() was called meanwhile).
  virtual asio::awaitable<Result<void>> wait_ready() = 0;
  // TERM (python: DRAIN), TERM again at half the grace, KILL of the whole tree at its end. Returns
  // when nothing of it is left: processes, sockets, run folder. Closing connections to it first is
  // the caller's part. May be called by several; goes on when its caller is cancelled.
  virtual asio::awaitable<ExitReport> stop() = 0;
  // Until the tree has ended by itself or by stop() and nothing of it is left.
  virtual asio::awaitable<ExitReport> wait_exit() = 0;
  // False from the moment the main process ends, which is before wait_exit() returns.
  virtual bool alive() const = 0;
  virtual asio::awaitable<InstanceUsage> usage(bool with_pss) = 0;
};

// The last lines of a log file, for errors: UTF-8 without control characters, long lines cut.
// `from`: where to begin reading, when what lies before is an earlier instance's.
std::vector<std::string> tail_lines(const std::filesystem::path& log, std::size_t count,
                                    std::uint64_t from = 0);

}  // namespace omni
