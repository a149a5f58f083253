#include "http/readiness.h"

#include <boost/asio/post.hpp>
#include <cerrno>
#include <system_error>

namespace omni::http {
namespace {

constexpr std::uint32_t kInput = EPOLLIN | EPOLLPRI | EPOLLRDHUP | EPOLLET;

int new_epoll() {
  const int fd = ::epoll_create1(EPOLL_CLOEXEC);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "epoll_create1");
  return fd;
}

}  // namespace

asio::execution_context::id Readiness::id;

Readiness::Readiness(asio::execution_context& loop)
    : asio::execution_context::service(loop),
      loop_(static_cast<asio::io_context&>(loop)),
      epoll_(loop_.get_executor(), new_epoll()) {}

int Readiness::add(Entry& entry, int fd) {
  epoll_event event{.events = kInput, .data = {.ptr = &entry}};
  if (::epoll_ctl(epoll_.native_handle(), EPOLL_CTL_ADD, fd, &event) != 0) return errno;
  known_.push_back(entry);
  if (!awaiting_) await_events();
  return 0;
}

void Readiness::watch_writes(Entry& entry, int fd, bool on) {
  epoll_event event{.events = on ? kInput | EPOLLOUT : kInput, .data = {.ptr = &entry}};
  ::epoll_ctl(epoll_.native_handle(), EPOLL_CTL_MOD, fd, &event);
}

void Readiness::remove(Entry& entry, int fd) {
  // close() alone would not do: while a child process is being started it has the socket as well,
  // and the kernel goes on reporting it.
  ::epoll_ctl(epoll_.native_handle(), EPOLL_CTL_DEL, fd, nullptr);
  entry.Hook<KnownTag>::unlink();
  entry.Hook<DueTag>::unlink();
}

void Readiness::make_due(Entry& entry) {
  if (!entry.Hook<DueTag>::is_linked()) due_.push_back(entry);
  if (posted_) return;
  posted_ = true;
  asio::post(loop_, [this] {
    posted_ = false;
    turn();
  });
}

void Readiness::await_events() {
  awaiting_ = true;
  // Does not keep the loop running: a program whose last request is done ends, though idle
  // connections wait in a pool. The wait's own count of work is taken back here and given again
  // before Asio takes it.
  const auto executor = epoll_.get_executor();
  epoll_.async_wait(epoll_.wait_read, [this, executor](boost::system::error_code status) {
    executor.on_work_started();
    awaiting_ = false;
    if (status) return;
    turn();
    if (!awaiting_) await_events();
  });
  executor.on_work_finished();
}

void Readiness::turn() {
  const int count =
      ::epoll_wait(epoll_.native_handle(), events_.data(), static_cast<int>(events_.size()), 0);
  // All is noted before anything is done: what is done may destroy entries that have events.
  List<DueTag> now;
  now.swap(due_);
  for (int i = 0; i < count; ++i) {
    Entry& entry = *static_cast<Entry*>(events_[static_cast<std::size_t>(i)].data.ptr);
    entry.note(events_[static_cast<std::size_t>(i)].events);
    if (!entry.Hook<DueTag>::is_linked()) now.push_back(entry);
  }
  // What becomes due meanwhile has its turn after the loop's other work.
  in_turn_ = true;
  while (!now.empty()) {
    Entry& entry = now.front();
    now.pop_front();
    entry.on_ready();
  }
  in_turn_ = false;
}

void Readiness::shutdown() {
  while (!due_.empty()) {  // closed ones among them, which are not known any more
    Entry& entry = due_.front();
    due_.pop_front();
    entry.abandon();
  }
  while (!known_.empty()) {
    Entry& entry = known_.front();
    known_.pop_front();
    entry.abandon();
  }
}

}  // namespace omni::http
