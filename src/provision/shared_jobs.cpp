#include "provision/shared_jobs.h"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <list>
#include <optional>

#include "base/clock.h"

namespace omni {

// One run of a job.
struct SharedJobs::Flight {
  explicit Flight(asio::io_context& loop) : landed(loop, TimePoint::max()) {}

  asio::steady_timer landed;  // never expires; cancelled when `product` is there
  asio::cancellation_signal abort;
  bool aborted = false;
  std::list<LineSink> listeners;
  std::optional<Product> product;
};

// A caller aboard: while the object lives, its listener is called. The last one to leave a job that
// still runs aborts it.
class SharedJobs::Passenger {
 public:
  Passenger(Flight& flight, LineSink listener) : flight_(flight) {
    place_ = flight_.listeners.insert(flight_.listeners.end(), std::move(listener));
  }
  Passenger(const Passenger&) = delete;
  Passenger& operator=(const Passenger&) = delete;
  ~Passenger() {
    flight_.listeners.erase(place_);
    if (flight_.listeners.empty() && !flight_.product) {
      flight_.aborted = true;
      flight_.abort.emit(asio::cancellation_type::terminal);
    }
  }

 private:
  Flight& flight_;
  std::list<LineSink>::iterator place_;
};

SharedJobs::SharedJobs(asio::io_context& loop)
    : loop_(loop), flights_(std::make_shared<Flights>()) {}

SharedJobs::~SharedJobs() = default;

asio::awaitable<void> SharedJobs::fly(std::shared_ptr<Flight> flight, Job job) {
  try {
    auto tell = [flight](std::string_view line) {
      for (const LineSink& listener : flight->listeners) listener(line);
    };
    LineSink sink = tell;
    flight->product = co_await job(std::move(sink));
  } catch (const boost::system::system_error& error) {
    if (error.code() != asio::error::operation_aborted) throw;
    flight->product = Error{ErrorCode::cancelled, "the work was cancelled"};
  }
}

asio::awaitable<SharedJobs::Product> SharedJobs::run(std::string key, LineSink progress, Job job) {
  // A job that has been aborted but not yet ended is not joined: its result is of no use.
  while (flights_->contains(key) && flights_->at(key)->aborted) {
    auto dying = flights_->at(key);
    boost::system::error_code status;
    auto token = asio::redirect_error(asio::use_awaitable, status);
    co_await dying->landed.async_wait(token);
  }
  std::shared_ptr<Flight>& slot = (*flights_)[key];
  const bool is_first = slot == nullptr;
  if (is_first) slot = std::make_shared<Flight>(loop_);
  const std::shared_ptr<Flight> flight = slot;

  bool cancelled = false;
  {
    const Passenger passenger(*flight, std::move(progress));
    if (is_first) {
      auto on_end = [flight, key, flights = flights_](std::exception_ptr failure) {
        flights->erase(key);
        flight->landed.cancel();
        if (failure) std::rethrow_exception(failure);
      };
      asio::co_spawn(loop_, fly(flight, std::move(job)),
                     asio::bind_cancellation_slot(flight->abort.slot(), on_end));
    }
    while (!flight->product && !cancelled) {
      boost::system::error_code status;
      auto token = asio::redirect_error(asio::use_awaitable, status);
      co_await flight->landed.async_wait(token);
      const auto cancellation = co_await asio::this_coro::cancellation_state;
      cancelled = cancellation.cancelled() != asio::cancellation_type::none;
    }
  }
  if (!cancelled) co_return *flight->product;

  co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
  while (flight->aborted && !flight->product) {
    boost::system::error_code status;
    auto token = asio::redirect_error(asio::use_awaitable, status);
    co_await flight->landed.async_wait(token);
  }
  throw boost::system::system_error(asio::error::operation_aborted);
}

}  // namespace omni
