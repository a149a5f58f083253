// What the scheduler knows of models, instances and devices.
#pragma once

#include <compare>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/crash_loop.h"
#include "scheduler/ledger.h"
#include "scheduler/ticket_queue.h"
#include "scheduler/types.h"

namespace omni::scheduling {

struct Device;

// Why an instance was closed: what happens when it has drained, and whether it may be opened again.
enum class Closing : std::uint8_t {
  open,        // it is not
  for_load,    // its bytes go to the claimant
  for_growth,  // its bytes go to an instance that outgrew its grant
  idle,        // stop_after
  turn,        // so that the oldest ticket gets a lease; then it is opened again
  over_grant,
  stopped,  // by an operator
  removed,
  shut_down,
};

struct Instance {
  InstanceId id;
  Model* model = nullptr;
  Device* device = nullptr;
  InstanceState state = InstanceState::starting;
  Bytes grant;  // on the device now; none while evicted
  TimePoint since;
  TimePoint resident_since;
  TimePoint last_used;

  // What is believed about its word. It may lag: closing is safe because the word drains first.
  std::uint32_t in_flight = 0;
  std::uint32_t credit = 0;  // offers worth making

  Closing closing = Closing::open;
  bool closed_busy = false;
  // It was closed for a load and answered on for long: spared for what drains sooner, until it is
  // idle.
  bool answers_long = false;
  std::uint32_t rated_in_flight = 0;  // at the last on_activity
  Model* claimant = nullptr;          // closing for_load: whose claim gets the bytes

  Bytes evicted_size;         // needed to restore it
  bool cannot_evict = false;  // it failed once: it leaves by stopping
  bool sizing = false;        // alone on its device until its first use is measured
  Bytes high_water;
  std::optional<TimePoint> over_since;  // over its grant by a tenth

  bool is_open() const { return state == InstanceState::resident; }
  bool is_loading() const {
    return state == InstanceState::starting || state == InstanceState::restoring;
  }
};

// A model's place among those of its device that need bytes: passed by nobody first, then by
// priority, then oldest first.
struct DemandKey {
  std::int64_t rank = 0;
  std::uint64_t number = 0;
  Model* model = nullptr;  // of no influence: numbers differ

  static constexpr std::int64_t kAged = std::numeric_limits<std::int64_t>::min();
  static constexpr std::int64_t kUnasked = std::numeric_limits<std::int64_t>::max();
  friend auto operator<=>(const DemandKey& a, const DemandKey& b) {
    return std::pair(a.rank, a.number) <=> std::pair(b.rank, b.number);
  }
  friend bool operator==(const DemandKey& a, const DemandKey& b) {
    return a.rank == b.rank && a.number == b.number;
  }
};

struct Model {
  ModelPolicy policy;
  Device* device = nullptr;  // null: the node has no such device
  std::optional<Bytes> profile;
  TicketQueue queue;
  std::vector<Instance*> instances;

  bool load_wanted = false;         // an operator's load
  std::uint64_t wanted_number = 0;  // its place among tickets
  bool held_down = false;           // an operator's stop: min_instances waits for the next request
  bool removing = false;
  bool passed = false;  // an I/O thread served a younger ticket while an aged one waits
  bool touched = false;

  // Set while bytes are being gathered for its next load: held + what its victims free >= need.
  bool claiming = false;
  Bytes held;
  std::vector<Instance*> victims;
  std::optional<DemandKey> demand;

  Duration load_time{};
  Duration restore_time{};
  Duration evict_time{};

  // Arrivals, of tickets and on the fast path.
  ReuseRecord reuse;
  TimePoint last_arrival;  // or when it was added
  bool asked = false;      // since it was added
  // Leases of tickets, counted when those arrived, that on_activity has not shown yet.
  std::uint64_t told_leases = 0;

  CrashLoop crash_loop;
  std::string last_error;
  std::uint64_t victim_search = 0;  // the search that counted `victims_found`
  std::uint32_t victims_found = 0;
};

struct Device {
  DeviceId id;
  std::string name;
  Ledger ledger;
  std::vector<Instance*> instances;
  std::map<std::pair<TimePoint, InstanceId>, Instance*> open;  // by last use
  std::set<DemandKey> demands;
  std::vector<Model*> claims;      // oldest first
  std::vector<Instance*> growing;  // over their grant
  std::vector<Instance*> loading;
  Duration leave_time{};  // learned: from the order to stop or evict until the bytes are free

  bool dirty = false;                 // bytes, a load slot or a victim may have become available
  std::optional<Bytes> hopeless;      // no victims for this much were found since the last look
  std::optional<Bytes> permanent;     // what pinned and always-on models held at the last look
  const Model* blocked_by = nullptr;  // an aged demand without room: nobody passes it
};

}  // namespace omni::scheduling
