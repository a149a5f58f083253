// Leases and tickets on one I/O thread. Used from that thread alone; the control loop reaches it by
// posting to the thread's executor.
//
// A request for a resident model takes a lease with one CAS. Otherwise it becomes a ticket: the
// control loop answers Serve or Refuse, or another request of this thread releases a lease of the
// same model and hands it over here, without a hop.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>

#include "base/result.h"
#include "routing/messages.h"
#include "routing/route_table.h"

namespace omni {

namespace asio = boost::asio;

class Admission;

// How the instance was to a request that gives its lease back.
enum class Served : std::uint8_t { yes, paused, broke, hung };

// One request's hold on a resident instance. Released when destroyed; must not outlive its thread's
// Admission.
class Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease() { release(); }

  explicit operator bool() const { return instance_.slot != nullptr; }
  const InstanceRoute& instance() const { return instance_; }
  void release();
  // For a connection that stays open without work: the place is given back, and taken again when
  // there is work. resume() is false when the instance takes none any more. It may go over the
  // instance's capacity: the engine has the connection already.
  void pause();
  bool resume();
  // The connection broke or the time ran out: tells the control loop, then releases.
  void release_suspect();
  // It does not even answer that it gives up: the control loop replaces the instance.
  void release_hung();

 private:
  friend class Admission;
  Lease(Admission* admission, InstanceRoute instance)
      : admission_(admission), instance_(std::move(instance)) {}
  void end(Served how);

  Admission* admission_ = nullptr;
  InstanceRoute instance_;
  bool paused_ = false;  // counted nowhere
};

struct Refusal {
  Error error;
  std::int64_t retry_after_seconds = 0;
};

// A request that waits. Destroying an undecided one tells the control loop that the client left.
class Ticket {
 public:
  Ticket(Ticket&&) noexcept;
  Ticket& operator=(Ticket&&) = delete;
  ~Ticket();

  // Until decided, `until`, or wake(). Returns whether it is decided; call again to wait on.
  asio::awaitable<bool> wait(TimePoint until);
  // Ends a wait() early; safe when nobody waits. For the sweep that sees a client leave.
  void wake();

  bool decided() const;
  // Once decided: the lease or the refusal, exactly once.
  Result<Lease> take();
  std::int64_t retry_after_seconds() const;  // of a refusal

 private:
  friend class Admission;
  struct State;
  explicit Ticket(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

class Admission {
 public:
  Admission(asio::io_context::executor_type executor, std::uint32_t thread, ControlPort& control);
  ~Admission();

  const RouteTable& routes() const { return *routes_; }

  // A lease at once, or none: then admit().
  std::optional<Lease> try_lease(const ModelRoute& model);
  Ticket admit(const ModelRoute& model, TimePoint deadline, std::int32_t priority = 0);

  // From the control loop, on this thread's executor.
  void publish(std::shared_ptr<const RouteTable> routes) { routes_ = std::move(routes); }
  void serve(Serve message);
  void refuse(Refuse message);

  std::size_t waiting() const { return tickets_.size(); }

 private:
  friend class Lease;
  friend class Ticket;
  void release(InstanceRoute instance, Served served);
  bool hand_over(InstanceRoute& instance);
  void forget(Ticket::State& state);
  // Takes an undecided ticket out of both indexes; null when it has ended already.
  std::shared_ptr<Ticket::State> end_ticket(TicketId ticket);

  asio::io_context::executor_type executor_;
  std::uint32_t thread_;
  ControlPort& control_;
  std::shared_ptr<const RouteTable> routes_ = std::make_shared<RouteTable>();
  std::uint64_t next_ticket_ = 1;
  std::uint32_t next_instance_ = 0;
  std::unordered_map<TicketId, std::shared_ptr<Ticket::State>> tickets_;
  std::unordered_map<ModelId, std::list<Ticket::State*>> waiting_;  // this thread's, oldest first
};

}  // namespace omni
