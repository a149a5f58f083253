#include "routing/admission.h"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cassert>
#include <limits>

namespace omni {

struct Ticket::State {
  State(Admission* owner, TicketId ticket, ModelId wanted)
      : admission(owner), id(ticket), model(wanted), timer(owner->executor_) {}

  bool decided() const { return static_cast<bool>(lease) || refusal.has_value(); }
  void decide(Lease granted) {
    lease = std::move(granted);
    timer.cancel();
  }

  Admission* admission;
  TicketId id;
  ModelId model;
  asio::steady_timer timer;
  Lease lease;
  std::optional<Refusal> refusal;
  std::list<Ticket::State*>::iterator place;  // in the thread's queue, while not ended
  bool ended = false;                         // decided or forgotten
};

// ---- Lease

Lease::Lease(Lease&& other) noexcept
    : admission_(std::exchange(other.admission_, nullptr)),
      instance_(std::move(other.instance_)),
      paused_(std::exchange(other.paused_, false)) {
  other.instance_.slot.reset();
}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    release();
    admission_ = std::exchange(other.admission_, nullptr);
    instance_ = std::move(other.instance_);
    paused_ = std::exchange(other.paused_, false);
    other.instance_.slot.reset();
  }
  return *this;
}

void Lease::release() { end(Served::yes); }
void Lease::release_suspect() { end(Served::broke); }
void Lease::release_hung() { end(Served::hung); }

void Lease::end(Served how) {
  if (!instance_.slot) return;
  InstanceRoute instance = std::exchange(instance_, {});
  if (!std::exchange(paused_, false)) admission_->release(std::move(instance), how);
}

void Lease::pause() {
  if (!instance_.slot || paused_) return;
  paused_ = true;
  admission_->release(instance_, Served::paused);
}

bool Lease::resume() {
  if (!paused_) return static_cast<bool>(*this);
  constexpr std::uint32_t kAny = std::numeric_limits<std::uint32_t>::max();
  const auto acquired = instance_.slot->word.try_acquire(instance_.generation, kAny, true);
  paused_ = acquired != LeaseWord::Acquire::ok;
  return !paused_;
}

// ---- Ticket

Ticket::Ticket(Ticket&&) noexcept = default;

Ticket::~Ticket() {
  if (state_ && !state_->ended) state_->admission->forget(*state_);
}

asio::awaitable<bool> Ticket::wait(TimePoint until) {
  auto state = state_;
  if (state->decided()) co_return true;
  state->timer.expires_at(until);
  boost::system::error_code status;
  auto token = asio::redirect_error(asio::use_awaitable, status);
  co_await state->timer.async_wait(token);
  co_return state->decided();
}

void Ticket::wake() { state_->timer.cancel(); }

bool Ticket::decided() const { return state_->decided(); }

Result<Lease> Ticket::take() {
  assert(decided());
  if (state_->refusal) return state_->refusal->error;
  return std::move(state_->lease);
}

std::int64_t Ticket::retry_after_seconds() const {
  return state_->refusal ? state_->refusal->retry_after_seconds : 0;
}

// ---- Admission

Admission::Admission(asio::io_context::executor_type executor, std::uint32_t thread,
                     ControlPort& control)
    : executor_(executor), thread_(thread), control_(control) {}

Admission::~Admission() = default;

std::optional<Lease> Admission::try_lease(const ModelRoute& model) {
  const std::size_t count = model.instances.size();
  for (std::size_t i = 0; i < count; ++i) {
    const InstanceRoute& instance = model.instances[(next_instance_ + i) % count];
    const auto acquired =
        instance.slot->word.try_acquire(instance.generation, instance.slot->capacity);
    if (acquired != LeaseWord::Acquire::ok) continue;
    if (count > 1) next_instance_ = static_cast<std::uint32_t>((next_instance_ + i + 1) % count);
    return Lease(this, instance);
  }
  return std::nullopt;
}

Ticket Admission::admit(const ModelRoute& model, TimePoint deadline, std::int32_t priority) {
  // The thread's number in the high bits keeps ids unique without a shared counter.
  const TicketId id{(std::uint64_t{thread_ + 1} << 48) | next_ticket_++};
  auto state = std::make_shared<Ticket::State>(this, id, model.id);
  tickets_.emplace(id, state);
  auto& queue = waiting_[model.id];
  state->place = queue.insert(queue.end(), state.get());
  control_.post(Admit{id, model.id, thread_, deadline, priority});
  return Ticket(std::move(state));
}

std::shared_ptr<Ticket::State> Admission::end_ticket(TicketId ticket) {
  auto it = tickets_.find(ticket);
  if (it == tickets_.end()) return nullptr;
  auto state = std::move(it->second);
  tickets_.erase(it);
  auto queue = waiting_.find(state->model);
  queue->second.erase(state->place);
  if (queue->second.empty()) waiting_.erase(queue);
  state->ended = true;
  return state;
}

void Admission::serve(Serve message) {
  Lease lease(this, std::move(message.instance));
  // Crossed with Forget: there is no such ticket, and the lease goes to the next waiter or back.
  if (auto state = end_ticket(message.ticket)) state->decide(std::move(lease));
}

void Admission::refuse(Refuse message) {
  auto state = end_ticket(message.ticket);
  if (!state) return;
  state->refusal = Refusal{std::move(message.error), message.retry_after_seconds};
  state->timer.cancel();
}

void Admission::forget(Ticket::State& state) {
  end_ticket(state.id);
  control_.post(Forget{state.id, false});
}

void Admission::release(InstanceRoute instance, Served served) {
  InstanceSlot& slot = *instance.slot;
  slot.last_release.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  if (served == Served::broke || served == Served::hung) {
    slot.suspect.store(true);
    control_.post(Suspect{slot.id, served == Served::hung});
  } else {
    if (served == Served::yes) slot.served.fetch_add(1, std::memory_order_relaxed);
    if (hand_over(instance)) return;
  }
  const auto released = slot.word.release();
  if (released.drained) {
    control_.post(Drained{slot.id});
  } else if (released.waiters) {
    control_.post(Freed{slot.id});
  }
}

// The count stays as it is: the lease changes hands. A closed word takes no new work, so its lease
// goes back.
bool Admission::hand_over(InstanceRoute& instance) {
  const InstanceSlot& slot = *instance.slot;
  auto queue = waiting_.find(slot.model);
  if (queue == waiting_.end()) return false;
  if (slot.word.closed() || slot.word.generation() != instance.generation) return false;
  auto state = end_ticket(queue->second.front()->id);
  control_.post(Forget{state->id, true});
  state->decide(Lease(this, std::move(instance)));
  return true;
}

}  // namespace omni
