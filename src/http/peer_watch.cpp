#include "http/peer_watch.h"

namespace omni::http {
namespace {

constexpr short kGone = POLLRDHUP | POLLHUP | POLLERR | POLLNVAL;

}  // namespace

void PeerWatch::watch(Entry& entry) {
  unwatch(entry);
  entries_.push_back(entry);
  if (!scheduled_) schedule();
}

bool PeerWatch::is_gone(int fd) {
  pollfd polled{.fd = fd, .events = POLLRDHUP, .revents = 0};
  return ::poll(&polled, 1, 0) > 0 && (polled.revents & kGone) != 0;
}

void PeerWatch::schedule() {
  scheduled_ = true;
  timer_.expires_after(kInterval);
  timer_.async_wait([self = weak_from_this()](boost::system::error_code status) {
    auto alive = self.lock();
    if (status || !alive) return;
    alive->scheduled_ = false;
    alive->sweep();
    if (!alive->entries_.empty() && !alive->scheduled_) alive->schedule();
  });
}

void PeerWatch::sweep() {
  polled_.clear();
  for (Entry& entry : entries_) {
    polled_.push_back({.fd = entry.watched_fd(), .events = POLLRDHUP, .revents = 0});
  }
  if (polled_.empty() || ::poll(polled_.data(), polled_.size(), 0) <= 0) return;
  // Told only after the pass: a callback may end other entries, which then leave `gone` as well.
  List gone;
  auto entry = entries_.begin();
  for (const pollfd& polled : polled_) {
    auto current = entry++;
    if ((polled.revents & kGone) != 0) gone.splice(gone.end(), entries_, current);
  }
  while (!gone.empty()) {
    Entry& next = gone.front();
    gone.pop_front();
    next.on_peer_gone();
  }
}

}  // namespace omni::http
