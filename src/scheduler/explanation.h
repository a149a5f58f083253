// Why a model is where it is: for `omni explain MODEL` and the admin API. A view, of no influence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/types.h"

namespace omni {

// Why a model is not resident.
enum class Absence : std::uint8_t {
  none,              // it is
  unknown_model,     // the scheduler has none of this id
  unknown_device,    // the node does not have its device
  going_down,        // the daemon ends, or the model is removed
  loading,           // it starts or is restored
  too_large,         // it needs more than the device's budget
  no_room_beside,    // pinned and always-on models leave less than it needs
  backing_off,       // its starts failed
  not_asked_for,     // nobody waits for it
  leaving,           // its own instance has to be gone first
  no_load_slot,      // as many others load as may at once
  victims_drain,     // the models that make room for it are still leaving
  behind_older,      // a model that has waited too long goes first
  residents_in_use,  // nothing that is resident may be closed yet
};
std::string_view to_string(Absence absence);

// Where the number of bytes that a model needs comes from.
enum class NeedSource : std::uint8_t {
  unknown,   // neither: it gets all that can be had, alone, and is measured
  declared,  // model.toml
  profile,   // what it was seen to hold
  evicted,   // what it held when it was evicted
};
std::string_view to_string(NeedSource source);

struct Explanation {
  ModelId model;
  InstanceState state = InstanceState::stopped;
  bool pinned = false;

  Bytes need;
  NeedSource need_source = NeedSource::unknown;
  std::string device;
  Bytes budget;
  Bytes granted;  // to instances
  Bytes held;     // gathered for the next load
  Bytes free;

  std::uint32_t waiting = 0;
  Duration oldest_wait{};

  Absence absence = Absence::none;
  std::string sentence;         // says it, with names and the way out
  std::vector<ModelId> others;  // whom it waits for, or who leaves no room
  Duration retry_in{};          // until a start is tried again

  double reuse_per_second = 0;  // expected, given how long nobody has asked
  Duration restart_cost{};      // to close it and have it back; zero when never measured
  double loss_per_byte = 0;     // of closing it: what choosing victims compares
  // Among those of its device that may be closed: 1 goes first. None when it is not resident, or is
  // never a victim.
  std::optional<std::uint32_t> victim_rank;
};

}  // namespace omni
