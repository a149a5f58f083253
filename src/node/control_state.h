// The control loop's records of models and instances. For the control_*.cpp files alone.
#pragma once

#include "node/control_loop.h"

namespace omni::node {

struct ControlLoop::Model {
  enum class Phase : std::uint8_t { provisioning, ready, failed };

  ModelId id;
  ModelSpec spec;
  bool spec_ok = true;  // else only spec.name is set
  Phase phase = Phase::provisioning;
  TimePoint failed_at;
  Provisioned provisioned;
  std::string error;       // why the phase is failed, or the last start did
  std::deque<Admit> held;  // requests that came before the model was provisioned
  ModelMetrics metrics;
  Counter* loads = nullptr;
  Counter* stops = nullptr;
  Histogram* load_time = nullptr;
  Gauge* waiting = nullptr;
  Gauge* resident = nullptr;
  std::vector<InstanceId> instances;
  std::optional<TimePoint> force_stop;  // an operator's stop: how long its instances may drain
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
