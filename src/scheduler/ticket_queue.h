// The tickets of one model that wait: highest priority first, then oldest first.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>

#include "base/clock.h"
#include "base/ids.h"

namespace omni::scheduling {

struct Model;

struct Ticket {
  TicketId id;
  Model* model = nullptr;
  std::uint64_t number = 0;  // order of arrival over all models
  TimePoint arrived;
  TimePoint deadline;
  std::int32_t priority = 0;
  std::list<Ticket*>::iterator place;  // in its queue, while it waits
};

class TicketQueue {
 public:
  bool empty() const { return size_ == 0; }
  std::uint32_t size() const { return size_; }
  // At its place: a new one is the youngest, one whose offer failed was there before.
  void insert(Ticket& ticket);
  void erase(Ticket& ticket);
  Ticket* front() const { return empty() ? nullptr : lanes_.begin()->second.front(); }
  Ticket* oldest() const;

 private:
  // One list a priority; an empty one is removed.
  std::map<std::int32_t, std::list<Ticket*>, std::greater<>> lanes_;
  std::uint32_t size_ = 0;
};

}  // namespace omni::scheduling
