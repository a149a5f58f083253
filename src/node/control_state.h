// The control loop's records of models and instances. For the control_*.cpp files alone.
#pragma once

#include "node/control_loop.h"

namespace omni::node {

struct ControlLoop::Model {
  enum class Phase : std::uint8_t { provisioning, ready, failed };

  ModelId id;
  ModelSpec spec;
  bool spec_ok = true;               // else only spec.name is set
  std::vector<std::string> aliases;  // of the last reload, which the spec may be behind
  DeviceId device = kHostDevice;
  std::uint64_t fingerprint = 0;  // of its folder, as last read
  Phase phase = Phase::provisioning;
  TimePoint provisioned_from;  // when the last try began
  TaskGroup::Id provisioning = 0;
  TimePoint retry_at;  // of a failed one, for the next request
  Provisioned provisioned;
  std::string error;  // why the phase is failed, or the last start did
  ErrorCode error_code = ErrorCode::invalid_config;  // of `error`
  std::deque<Admit> held;  // requests that came before the model was provisioned
  ModelMetrics metrics;
  Counter* loads = nullptr;
  Counter* stops = nullptr;
  Histogram* load_time = nullptr;
  Gauge* waiting = nullptr;
  Gauge* resident = nullptr;
  std::vector<InstanceId> instances;
  bool start_was_killed = false;        // the last one, from outside
  std::optional<TimePoint> force_stop;  // an operator's stop: how long its instances may drain

  // A changed model is another one of the same name. While it is provisioned the old one serves;
  // then it takes the name, and the old one goes when its requests are done.
  std::shared_ptr<Model> successor;  // being provisioned, or loaded to take its place
  std::string change_error;          // why the last successor did not
  std::weak_ptr<Model> predecessor;  // whose successor this is
  bool listed = false;               // has its name: in the catalogue and the routes
  bool dropped = false;              // another came before it was of use
  std::optional<TimePoint> retired;  // since when it has its name no more
};

struct ControlLoop::Live {
  InstanceId id;
  std::shared_ptr<Model> model;
  Bytes grant;
  InstanceState state = InstanceState::starting;
  TimePoint since = Clock::now();
  std::shared_ptr<InstanceSlot> slot;
  std::uint32_t generation = 0;
  std::shared_ptr<Instance> process;
  std::uint32_t log_number = 0;
  bool open = false;      // listed in the routes
  bool closing = false;   // closed by the scheduler, which waits for on_drained
  bool stopping = false;  // its processes are being ended on purpose
  std::string replaced;   // why its processes are being ended though nobody asked for it
  bool measuring = false;
  std::uint64_t reported_served = 0;
  std::uint32_t reported_in_flight = 0;
  InstanceUsage usage;
};

// Resident memory of this process.
std::int64_t own_rss();

}  // namespace omni::node
