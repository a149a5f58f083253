// The admin API: JSON over the admin socket, under /admin. It is a view of the node and a few
// verbs; the node implements NodeControl. docs/api-admin.md has every path with its shapes.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/json.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "http/server.h"

namespace omni::admin {

namespace asio = boost::asio;

struct ModelStatus {
  std::string name;
  std::string task;
  std::string engine;  // "python", "command"; like task empty when the spec cannot be read
  std::string state;
  std::vector<std::string> aliases;
  bool pinned = false;
  std::uint32_t waiting = 0;
  std::uint32_t in_flight = 0;
  std::uint64_t requests = 0;
  std::optional<std::int64_t> memory_bytes;  // profile, else declared
  std::optional<double> load_seconds;        // learned
  std::string version;
  std::string last_error;
};

struct InstanceStatus {
  std::string id;
  std::string model;
  std::string state;
  std::int64_t pid = 0;
  std::string endpoint;
  std::int64_t grant_bytes = 0;
  std::int64_t high_water_bytes = 0;
  std::int64_t pss_bytes = 0;
  std::uint32_t in_flight = 0;
  std::uint64_t served = 0;
  double seconds_in_state = 0;
  double seconds_idle = 0;
};

struct DeviceStatus {
  std::string name;
  std::int64_t budget_bytes = 0;
  std::int64_t granted_bytes = 0;
};

struct NodeStatus {
  std::string version;
  std::int64_t pid = 0;
  double uptime_seconds = 0;
  std::int64_t rss_bytes = 0;
  std::vector<std::string> listen;
  std::vector<DeviceStatus> devices;
  std::string reload_error;  // why the last reload changed nothing; empty: it went well
};

// Why a model is where it is, and what it costs.
struct ModelExplanation {
  std::string name;
  std::string state;
  std::string reason;    // one word, as Absence and its like: "not_asked_for", "victims_drain"
  std::string sentence;  // says it, with names and the way out
  bool pinned = false;
  std::vector<std::string> others;  // whom it waits for, or who leaves no room
  std::uint32_t waiting = 0;
  double oldest_wait_seconds = 0;
  std::optional<double> retry_seconds;  // until a start that failed is tried again

  std::optional<std::int64_t> need_bytes;
  std::string need_source;  // "declared", "profile", "evicted", "unknown"
  std::string device;
  std::int64_t budget_bytes = 0;
  std::int64_t granted_bytes = 0;
  std::int64_t held_bytes = 0;  // gathered for the next load
  std::int64_t free_bytes = 0;

  double requests_per_second = 0;            // expected, given how long nobody has asked
  std::optional<double> restart_seconds;     // to have it back; none before the first load
  std::optional<std::uint32_t> victim_rank;  // 1 goes first; none: it is no victim
};

// What a reload has changed. Models that are added or changed are provisioned afterwards; until
// then the old version of a changed one serves.
struct ReloadReport {
  std::vector<std::string> added;
  std::vector<std::string> removed;
  std::vector<std::string> changed;
  std::uint32_t unchanged = 0;
  std::vector<std::string> at_next_start;  // keys of omni.toml that changed and wait for that
};

// {"time": RFC 3339, "type": "instance_state", "model": "minilm", "instance": "12", "state":
// "resident", ...}
using Event = boost::json::object;

// Implemented by the node. Each call runs on the caller's coroutine and hops to the control loop by
// itself, so that admin handlers may run on any I/O thread.
class NodeControl {
 public:
  virtual ~NodeControl() = default;

  virtual asio::awaitable<NodeStatus> status() = 0;
  virtual asio::awaitable<std::vector<ModelStatus>> models() = 0;
  virtual asio::awaitable<std::vector<InstanceStatus>> instances(bool with_pss) = 0;
  virtual asio::awaitable<Result<ModelExplanation>> explain(std::string model) = 0;
  // Returns when the model is resident, or with why not.
  virtual asio::awaitable<Result<void>> load(std::string model) = 0;
  // Returns when nothing of it is left.
  virtual asio::awaitable<Result<void>> stop(std::string model) = 0;
  // Reads omni.toml and the models' folders again. An error, of whatever file, changes nothing.
  virtual asio::awaitable<Result<ReloadReport>> reload() = 0;
  // Begins a shutdown as SIGTERM does.
  virtual void shut_down() = 0;
  // True once a shutdown began: log and event streams end, so that they do not hold it up. Any
  // thread.
  virtual bool stopping() const { return false; }
  // The log file of the model's instance that wrote last; FILE.1 and so on are its rotated
  // predecessors. It need not exist yet. Any thread; a few looks at the file system.
  virtual std::string log_path(std::string_view model) = 0;

  // Events since `after` (0, or an id from before a restart: the ring's oldest), at least one, or
  // none at `until` or when a shutdown begins. Each has a growing "id".
  virtual asio::awaitable<std::vector<Event>> events(std::uint64_t after, TimePoint until) = 0;
};

// Handles every path under /admin; the caller has checked that the exchange came by the admin
// socket. Ends at latest 5 s after the client left; a load or stop goes on without it.
asio::awaitable<void> handle(NodeControl& node, http::Exchange& exchange);

boost::json::object to_json(const ModelStatus& status);
boost::json::object to_json(const InstanceStatus& status);
boost::json::object to_json(const NodeStatus& status);
boost::json::object to_json(const ModelExplanation& explanation);
boost::json::object to_json(const ReloadReport& report);

}  // namespace omni::admin
