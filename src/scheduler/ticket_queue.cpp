#include "scheduler/ticket_queue.h"

#include <algorithm>

namespace omni::scheduling {

void TicketQueue::insert(Ticket& ticket) {
  std::list<Ticket*>& lane = lanes_[ticket.priority];
  auto place = lane.end();
  if (!lane.empty() && lane.back()->number > ticket.number) {
    place = std::find_if(lane.begin(), lane.end(),
                         [&](const Ticket* other) { return other->number > ticket.number; });
  }
  ticket.place = lane.insert(place, &ticket);
  ++size_;
}

void TicketQueue::erase(Ticket& ticket) {
  auto lane = lanes_.find(ticket.priority);
  lane->second.erase(ticket.place);
  if (lane->second.empty()) lanes_.erase(lane);
  --size_;
}

Ticket* TicketQueue::oldest() const {
  Ticket* oldest = nullptr;
  for (const auto& [priority, lane] : lanes_) {
    if (oldest == nullptr || lane.front()->number < oldest->number) oldest = lane.front();
  }
  return oldest;
}

}  // namespace omni::scheduling
