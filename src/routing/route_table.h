// What I/O threads know: an immutable snapshot of models and their resident instances. The control
// loop makes a new one on each change and posts it to every I/O thread, which swaps its own
// pointer; no thread ever locks to read.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/endpoint.h"
#include "base/error.h"
#include "base/ids.h"
#include "base/metrics.h"
#include "base/task.h"
#include "routing/lease_word.h"

namespace omni {

enum class EngineKind : std::uint8_t { python, command };

// One resident instance as its leases see it. Shared by the route tables that list it and by each
// lease on it.
struct InstanceSlot {
  InstanceId id;
  ModelId model;
  Endpoint endpoint;
  std::uint32_t capacity = 1;  // leases at once
  LeaseWord word;
  // A request's connection to it broke. Set before that request's lease is released.
  std::atomic<bool> suspect{false};
  std::atomic<std::uint64_t> served{0};
  std::atomic<Clock::rep> last_release{0};  // TimePoint ticks
};

struct InstanceRoute {
  std::shared_ptr<InstanceSlot> slot;
  std::uint32_t generation = 0;
};

// Counters of one model, made by the control loop when the model appears.
struct ModelMetrics {
  Metrics* registry = nullptr;  // for rare members, such as errors by code
  Counter* requests = nullptr;
  Counter* tokens_in = nullptr;
  Counter* tokens_out = nullptr;
  Counter* replays = nullptr;
  Histogram* latency = nullptr;     // request head read to last byte sent
  Histogram* queue_time = nullptr;  // waiting for a lease
};

struct ModelRoute {
  ModelId id;
  std::string name;
  Task task = Task::other;
  EngineKind engine = EngineKind::command;
  // Why every request to it is refused: its spec is broken. Then task and engine are not known.
  std::optional<Error> unusable;
  std::string served_name;   // what the engine calls the model; empty: leave the body's name
  std::int64_t created = 0;  // Unix seconds, stable over restarts
  std::string state;  // "resident", "stopped", ...: as in docs/contracts/states.md, for display
  std::int32_t priority = 0;
  // Members that a request gets which does not have them: name and JSON text.
  std::vector<std::pair<std::string, std::string>> defaults;
  Duration request_timeout{};
  // An upgraded connection without work holds its lease this long.
  Duration idle_connection = std::chrono::seconds(30);
  std::int64_t retry_after_seconds = 1;  // learned load time
  ModelMetrics metrics;
  std::vector<InstanceRoute> instances;  // resident and open
};

struct RouteTable {
  // By name and alias; values are shared between tables, so that one change copies pointers only.
  std::map<std::string, std::shared_ptr<const ModelRoute>, std::less<>> models;

  const std::shared_ptr<const ModelRoute>* find(std::string_view name) const {
    auto it = models.find(name);
    return it == models.end() ? nullptr : &it->second;
  }
  // The known name nearest to a mistyped one, or empty.
  std::string nearest(std::string_view name) const;
};

}  // namespace omni
