#include "world.h"

#include <fmt/format.h>

#include <deque>
#include <map>
#include <memory>
#include <set>

#include "event_queue.h"
#include "routing/lease_word.h"
#include "scheduler/scheduler.h"

namespace omni::simulation {
namespace {

using namespace std::chrono_literals;

constexpr Duration kTick = 100ms;
constexpr Duration kUsageEvery = 1s;
constexpr int kMostCrashes = 2;  // then a request is poison

// The process of one instance and the word that guards it.
struct Process {
  InstanceId id;
  ModelScript* script = nullptr;
  LeaseWord word;
  std::uint32_t generation = 0;
  std::uint32_t capacity = 1;
  bool alive = true;         // until the process has ended
  bool known = true;         // until the loop has told the scheduler of its end
  bool leaving = false;      // stop or abort was ordered
  bool may_end = false;      // by order of an operator, or while its model changes
  bool wanted_open = false;  // as the scheduler sees it
  bool suspected = false;    // the loop looks whether it lives
  bool evicted_before = false;
  bool gone_wrong = false;  // a load that was made to fail
  Bytes physical;           // device memory that its grant stands for
  Bytes granted;
  Bytes high_water;
  std::uint64_t answers = 0;
  std::uint64_t served = 0;  // since the last tick
  TimePoint last_release;
  std::set<std::uint64_t> in_flight;  // requests
};

struct Request {
  std::uint64_t id = 0;
  std::uint64_t model = 0;  // index
  std::uint32_t thread = 0;
  enum class State { unborn, waiting, running, ended } state = State::unborn;
  TicketId ticket;
  TimePoint since;  // it waits
  TimePoint must_be_served_by;
  Process* process = nullptr;
  std::uint32_t generation = 0;
  std::uint64_t run =
      0;  // raised when an answer ends, so that its own end is not taken for another's
  int crashes = 0;
};

struct Route {
  Process* process;
  std::uint32_t generation;
};

// One I/O thread: what routing/admission.h does, over simulated messages.
struct IoThread {
  std::uint32_t number = 0;
  std::map<std::uint64_t, std::vector<Route>> routes;          // by model index
  std::map<std::uint64_t, std::deque<std::uint64_t>> waiting;  // requests, oldest first
  std::map<TicketId, std::uint64_t> tickets;                   // undecided
  std::uint64_t next_ticket = 1;
  TimePoint last_to_loop;
  TimePoint last_from_loop;
};

class World {
 public:
  World(const Scenario& scenario, Fault fault, std::FILE* trace)
      : scenario_(scenario),
        random_(scenario.seed ^ 0x5DEECE66D),
        fault_(fault),
        trace_(trace),
        scheduler_(scenario.limits) {}

  Outcome run() {
    set_up();
    while (outcome_.failure.empty() && !finished_ && events_.run_next()) ++outcome_.events;
    if (outcome_.failure.empty() && !finished_) fail("nothing happens any more");
    return outcome_;
  }

 private:
  // ---- Setting up

  void set_up() {
    start_ = events_.now();
    scheduler_.add_device(kHostDevice, "host", scenario_.budget);
    threads_.resize(scenario_.threads);
    for (std::uint32_t i = 0; i < scenario_.threads; ++i) threads_[i].number = i;
    for (ModelScript& model : scenario_.models) feed(scheduler_.on_model(model.policy, now()));
    for (std::uint32_t i = 0; i < scenario_.requests; ++i) plan_request();
    for (std::uint32_t i = 0; i < scenario_.operator_verbs; ++i) plan_operator();
    for (std::uint32_t i = 0; i < scenario_.spec_changes; ++i) plan_spec_change();
    if (scenario_.shut_down_early) at_random([this] { shut_down(); });
    events_.after(kTick, [this] { tick(); });
  }

  void at_random(std::function<void()> event) {
    events_.at(start_ + random_.time(0ms, scenario_.arrivals), std::move(event));
  }

  void plan_request() {
    requests_.emplace_back();
    Request& request = requests_.back();
    request.id = requests_.size() - 1;
    // A few models get most of the requests, as everywhere.
    request.model =
        std::min(random_.below(scenario_.models.size()), random_.below(scenario_.models.size()));
    request.thread = static_cast<std::uint32_t>(random_.below(scenario_.threads));
    ++open_requests_;
    at_random([this, id = request.id] {
      if (random_.chance(scenario_.cancels)) {
        events_.after(random_.time(0ms, 3s), [this, id] { client_leaves(id); });
      }
      arrive(id);
    });
  }

  void plan_operator() {
    at_random([this] {
      const auto model = random_.below(scenario_.models.size());
      const ModelId id = scenario_.models[model].policy.id;
      if (random_.chance(0.5)) {
        note("operator loads m{}", id.value);
        feed(scheduler_.load(id, now()));
      } else {
        note("operator stops m{}", id.value);
        let_end(id);
        feed(scheduler_.stop(id, now()));
      }
    });
  }

  void plan_spec_change() {
    at_random([this] {
      ModelScript& model = scenario_.models[random_.below(scenario_.models.size())];
      const ModelId id = model.policy.id;
      let_end(id);
      if (random_.chance(0.4)) {
        note("m{} is removed", id.value);
        removed_.insert(id);
        feed(scheduler_.on_model_removed(id, now()));
        events_.after(random_.time(1ms, 5s), [this, &model] { change(model); });
        return;
      }
      model.policy.concurrency = static_cast<std::uint32_t>(random_.between(1, 4));
      model.policy.max_instances = static_cast<std::uint32_t>(random_.between(1, 3));
      model.policy.pinned = random_.chance(0.2);
      change(model);
    });
  }

  void let_end(ModelId model) {
    for (auto& process : processes_) {
      if (process->script->policy.id == model) process->may_end = true;
    }
  }

  void change(ModelScript& model) {
    note("m{} is set", model.policy.id.value);
    removed_.erase(model.policy.id);
    feed(scheduler_.on_model(model.policy, now()));
  }

  // ---- Clients and I/O threads

  void arrive(std::uint64_t id) {
    Request& request = requests_[id];
    if (request.state == Request::State::ended) return;
    IoThread& thread = threads_[request.thread];
    for (const Route& route : thread.routes[request.model]) {
      if (route.process->word.try_acquire(route.generation, route.process->capacity) ==
          LeaseWord::Acquire::ok) {
        begin_answer(request, *route.process, route.generation);
        return;
      }
    }
    wait(request);
  }

  void wait(Request& request) {
    IoThread& thread = threads_[request.thread];
    request.state = Request::State::waiting;
    request.since = now();
    request.ticket = TicketId{(std::uint64_t{thread.number + 1} << 48) | thread.next_ticket++};
    const auto ahead = static_cast<std::int64_t>(waiting_of(request.model).size());
    request.must_be_served_by = now() + scenario_.longest_wait * (ahead + 1);
    thread.tickets.emplace(request.ticket, request.id);
    thread.waiting[request.model].push_back(request.id);
    waiting_of(request.model).insert(request.id);
    to_loop(thread, [this, &thread, id = request.id, ticket = request.ticket] {
      ticket_threads_[ticket] = &thread;
      const Request& waiter = requests_[id];
      feed(scheduler_.on_request(ticket, model_id(waiter.model), now() + scenario_.deadline, 0,
                                 now()));
    });
  }

  // Takes an undecided ticket out of its thread.
  Request* end_ticket(IoThread& thread, TicketId ticket) {
    auto found = thread.tickets.find(ticket);
    if (found == thread.tickets.end()) return nullptr;
    Request& request = requests_[found->second];
    thread.tickets.erase(found);
    std::erase(thread.waiting[request.model], request.id);
    waiting_of(request.model).erase(request.id);
    last_progress_[request.model] = now();
    outcome_.longest_wait = std::max(outcome_.longest_wait, now() - request.since);
    if (scenario_.calm) {
      const double share = Seconds(now() - request.since).count() /
                           Seconds(request.must_be_served_by - request.since).count();
      outcome_.longest_wait_share = std::max(outcome_.longest_wait_share, share);
    }
    return &request;
  }

  void begin_answer(Request& request, Process& process, std::uint32_t generation) {
    request.state = Request::State::running;
    request.process = &process;
    request.generation = generation;
    const std::uint64_t run = ++request.run;
    process.in_flight.insert(request.id);
    if (!process.alive) {  // died a moment ago, nobody knows yet
      events_.after(1ms, [this, id = request.id, run] { answer_breaks(id, run); });
      return;
    }
    if (process.physical == Bytes(0)) fail("an answer begins on an evicted instance");
    const Duration length =
        random_.time(process.script->shortest_answer, process.script->longest_answer);
    const bool crashes = random_.chance(scenario_.crashes);
    const bool breaks = !crashes && random_.chance(scenario_.suspects);
    events_.after(crashes || breaks ? length / 2 : length,
                  [this, id = request.id, run, crashes, breaks] {
                    if (requests_[id].run != run) return;
                    if (crashes) return crash(*requests_[id].process);
                    if (breaks) return answer_breaks(id, run);
                    answer_ends(id);
                  });
  }

  void answer_ends(std::uint64_t id) {
    Request& request = requests_[id];
    Process& process = *request.process;
    ++process.answers;
    const std::int64_t growth = (process.script->last_use - process.script->first_use).count();
    const auto part = static_cast<std::int64_t>(std::min<std::uint64_t>(process.answers, 10));
    process.high_water =
        std::max(process.high_water, process.script->first_use + Bytes(growth * part / 10));
    end_request(request, outcome_.served);
    release(request, false);
  }

  // The connection to the instance broke before the first byte: the request is sent again.
  void answer_breaks(std::uint64_t id, std::uint64_t run) {
    Request& request = requests_[id];
    if (request.run != run || request.state != Request::State::running) return;
    ++request.run;
    release(request, true);
    if (++request.crashes >= kMostCrashes) return end_request(request, outcome_.crashed);
    arrive(id);
  }

  void client_leaves(std::uint64_t id) {
    Request& request = requests_[id];
    if (request.state == Request::State::waiting) {
      IoThread& thread = threads_[request.thread];
      if (end_ticket(thread, request.ticket) == nullptr) return;
      end_request(request, outcome_.cancelled);
      forget(thread, request.ticket, false);
    } else if (request.state == Request::State::running) {
      ++request.run;
      end_request(request, outcome_.cancelled);
      release(request, false);
    }
  }

  void end_request(Request& request, std::uint64_t& counter) {
    if (request.state == Request::State::ended) fail("a request ends twice");
    request.state = Request::State::ended;
    ++counter;
    --open_requests_;
  }

  void release(Request& request, bool suspect) {
    IoThread& thread = threads_[request.thread];
    Process& process = *std::exchange(request.process, nullptr);
    process.in_flight.erase(request.id);
    process.last_release = now();
    if (suspect) {
      to_loop(thread, [this, &process] { on_suspect(process); });
    } else {
      ++process.served;
      if (hand_over(thread, request.model, process, request.generation)) return;
    }
    give_back(thread, process);
  }

  void give_back(IoThread& thread, Process& process) {
    const auto released = process.word.release();
    if (released.drained) {
      to_loop(thread, [this, &process] { drained_.push_back(&process), feed({}); });
    } else if (released.waiters) {
      to_loop(thread, [this, &process] { feed(scheduler_.on_freed(process.id, now())); });
    }
  }

  bool hand_over(IoThread& thread, std::uint64_t model, Process& process,
                 std::uint32_t generation) {
    std::deque<std::uint64_t>& waiting = thread.waiting[model];
    if (waiting.empty() || process.word.closed() || process.word.generation() != generation) {
      return false;
    }
    Request* request = end_ticket(thread, requests_[waiting.front()].ticket);
    to_loop(thread,
            [this, ticket = request->ticket] { feed(scheduler_.on_forget(ticket, true, now())); });
    begin_answer(*request, process, generation);
    return true;
  }

  void forget(IoThread& thread, TicketId ticket, bool served) {
    to_loop(thread, [this, ticket, served] {
      ended_tickets_.insert(ticket);  // unless an order has crossed
      feed(scheduler_.on_forget(ticket, served, now()));
    });
  }

  // Serve: the lease is taken already.
  void receive_serve(IoThread& thread, TicketId ticket, Process& process, std::uint32_t generation,
                     std::uint64_t model) {
    if (Request* request = end_ticket(thread, ticket)) {
      begin_answer(*request, process, generation);
      return;
    }
    process.last_release = now();
    if (!hand_over(thread, model, process, generation)) give_back(thread, process);
  }

  void receive_refusal(IoThread& thread, const RefuseTicket& refusal) {
    Request* request = end_ticket(thread, refusal.ticket);
    if (request == nullptr) return;
    if (scenario_.calm && !shutting_down_) {
      fail(fmt::format("a calm node refuses: {}", refusal.error.message));
    }
    ++outcome_.refusals[refusal.error.code];
    end_request(*request, outcome_.refused);
  }

  // ---- Messages: each direction of each thread is in order

  void to_loop(IoThread& thread, std::function<void()> message) {
    thread.last_to_loop = std::max(thread.last_to_loop, now() + delay());
    events_.at(thread.last_to_loop, std::move(message));
  }
  void from_loop(IoThread& thread, std::function<void()> message) {
    thread.last_from_loop = std::max(thread.last_from_loop, now() + delay());
    events_.at(thread.last_from_loop, std::move(message));
  }
  Duration delay() { return random_.time(1us, scenario_.longest_message); }

  // ---- Control loop

  // Carries out actions; offers that fail are answered before anything else is told.
  void feed(Actions actions) {
    carry_out(std::move(actions));
    while (!drained_.empty()) {
      Process* process = drained_.front();
      drained_.pop_front();
      // A Drained message may be of an earlier close.
      const bool truly = process->word.closed() && process->word.in_flight() == 0;
      if (truly) {
        carry_out(scheduler_.on_drained(process->id, now()));
      }
    }
    for (auto& process : processes_) {
      if (process->known) {
        process->word.set_waiters(scheduler_.has_waiters(process->script->policy.id));
      }
    }
    Bytes physical;
    for (auto& process : processes_) physical += process->physical;
    if (physical > scenario_.budget) {
      fail(fmt::format("{} of {} bytes are in use", physical.count(), scenario_.budget.count()));
    }
  }

  void carry_out(Actions actions) {
    for (const Action& action : actions) {
      note("  {}", to_string(action));
      std::visit([this](const auto& order) { act(order); }, action);
    }
    for (const ServeTicket& offer : std::exchange(full_, {})) {
      note("t{} found i{} full", offer.ticket.value, offer.instance.value);
      carry_out(scheduler_.on_full(offer.ticket, offer.instance, now()));
    }
  }

  void act(const ServeTicket& serve) {
    if (fault_ == Fault::drops_a_serve && random_.chance(0.02)) return;
    Process& process = find(serve.instance);
    process.word.set_waiters(true);
    if (process.word.try_acquire(process.generation, process.capacity, true) !=
        LeaseWord::Acquire::ok) {
      full_.push_back(serve);
      return;
    }
    IoThread& thread = *ticket_threads_.at(serve.ticket);
    end_in_scheduler(serve.ticket);
    from_loop(thread, [this, &thread, &process, ticket = serve.ticket,
                       generation = process.generation, model = model_index(process)] {
      receive_serve(thread, ticket, process, generation, model);
    });
  }

  void act(const RefuseTicket& refusal) {
    IoThread& thread = *ticket_threads_.at(refusal.ticket);
    end_in_scheduler(refusal.ticket);
    from_loop(thread, [this, &thread, refusal] { receive_refusal(thread, refusal); });
  }

  void end_in_scheduler(TicketId ticket) {
    if (!ended_tickets_.insert(ticket).second) fail("the scheduler ends a ticket twice");
  }

  void act(const StartInstance& start) {
    ++outcome_.starts;
    auto& process = *processes_.emplace_back(std::make_unique<Process>());
    by_id_.emplace(start.instance, &process);
    process.id = start.instance;
    process.script = &scenario_.models[start.model.value - 1];
    process.capacity = process.script->policy.concurrency;
    process.physical = process.granted = start.grant;
    process.may_end = removed_.contains(start.model);  // for what waited, then it goes
    process.gone_wrong = random_.chance(scenario_.failed_loads);
    Duration load = process.script->load;
    if (random_.chance(scenario_.slow_loads)) load *= 10;
    events_.after(load, [this, &process] { load_ends(process); });
  }

  void load_ends(Process& process) {
    if (!process.alive) return;
    if (process.gone_wrong && !process.leaving) return crash(process);
    process.high_water = process.script->first_use;
    process.last_release = now();
    events_.after(delay(), [this, &process] { becomes_resident(process); });
  }

  // Crosses with an abort, or with its death: the loop tells it all the same.
  void becomes_resident(Process& process) {
    if (!process.known) return;
    if (!process.leaving) open_word(process);
    note("i{} is resident", process.id.value);
    feed(scheduler_.on_resident(process.id, now()));
  }

  void act(const AbortStart& abort) { end_process(find(abort.instance)); }

  void act(const StopInstance& stop) {
    Process& process = find(stop.instance);
    note("    because {}", stop.reason);
    check_may_leave(process);
    end_process(process);
  }

  void end_process(Process& process) {
    process.leaving = true;
    process.wanted_open = false;
    if (!process.alive) return;  // its death is being told
    events_.after(random_.time(1ms, process.script->stop), [this, &process] {
      if (!process.alive) return;
      const Duration late = fault_ == Fault::frees_too_early ? Duration(1s) : Duration(0);
      process.alive = false;
      events_.after(late, [&process] { process.physical = Bytes(0); });
      events_.after(delay(), [this, &process] {
        process.known = false;
        note("i{} has stopped", process.id.value);
        feed(scheduler_.on_stopped(process.id, now()));
      });
    });
  }

  // Only what is closed and drained leaves by policy, and a pinned model not for others.
  void check_may_leave(Process& process) {
    if (!process.word.closed()) fail("an open instance is stopped or evicted");
    if (process.word.in_flight() > 0 && process.alive) {
      fail("an instance that still answers is stopped or evicted");
    }
    const ModelPolicy& policy = process.script->policy;
    const bool asked = process.may_end || shutting_down_;
    const bool idle = now() - process.last_release >= policy.stop_after;
    const bool too_large = process.high_water > process.granted + process.granted / 10;
    if (policy.pinned && process.alive && !asked && !idle && !too_large) {
      fail("a pinned model is a victim");
    }
  }

  void act(const CloseInstance& close) {
    Process& process = find(close.instance);
    process.wanted_open = false;
    publish(process, false);
    if (process.word.close() || fault_ == Fault::drains_too_early) {
      if (fault_ == Fault::drains_too_early) {
        events_.after(0ms,
                      [this, &process] { carry_out(scheduler_.on_drained(process.id, now())); });
        return;
      }
      drained_.push_back(&process);
    }
  }

  void act(const OpenInstance& open) {
    Process& process = find(open.instance);
    ++outcome_.turns;
    if (process.suspected) {
      process.wanted_open = true;  // opened when the loop knows that it lives
      return;
    }
    open_word(process);
  }

  void open_word(Process& process) {
    process.wanted_open = true;
    process.capacity = process.script->policy.concurrency;
    process.generation = process.word.open();
    publish(process, true);
  }

  void act(const EvictInstance& evict) {
    ++outcome_.evictions;
    Process& process = find(evict.instance);
    check_may_leave(process);
    const bool fails = random_.chance(scenario_.failed_evicts);
    const Duration time =
        process.evicted_before ? process.script->evict_clean : process.script->evict_dirty;
    events_.after(time, [this, &process, fails] {
      if (!process.alive) return;
      process.evicted_before = true;
      if (fails) return becomes_resident(process);
      process.physical = Bytes(0);
      events_.after(delay(), [this, &process] {
        if (process.known) feed(scheduler_.on_evicted(process.id, now()));
      });
    });
  }

  void act(const RestoreInstance& restore) {
    ++outcome_.restores;
    Process& process = find(restore.instance);
    process.physical = process.granted = restore.grant;
    process.last_release = now();
    if (random_.chance(scenario_.failed_loads / 4)) {
      events_.after(process.script->restore / 2, [this, &process] { crash(process); });
      return;
    }
    events_.after(process.script->restore, [this, &process] {
      if (process.alive) becomes_resident(process);
    });
  }

  // The process dies, its answers break, and a moment later the loop knows.
  void crash(Process& process) {
    if (!process.alive) return;
    process.alive = false;
    process.physical = Bytes(0);
    bool poison = false;
    for (std::uint64_t id : std::set<std::uint64_t>(process.in_flight)) {
      poison = poison || requests_[id].crashes + 1 >= kMostCrashes;
      answer_breaks(id, requests_[id].run);
    }
    events_.after(delay(), [this, &process, poison] {
      if (!process.known) return;
      process.known = false;
      process.wanted_open = false;
      process.word.close();
      publish(process, false);
      note("i{} has died", process.id.value);
      feed(
          scheduler_.on_failed(process.id, {ErrorCode::load_failed, "exit code 1"}, poison, now()));
    });
  }

  void on_suspect(Process& process) {
    if (!process.known || process.suspected || !process.wanted_open) return;
    process.suspected = true;
    process.word.close();
    publish(process, false);
    events_.after(random_.time(1ms, 30ms), [this, &process] {
      process.suspected = false;
      if (!process.known || !process.alive || !process.wanted_open) return;
      open_word(process);
      feed(scheduler_.on_freed(process.id, now()));
    });
  }

  void publish(Process& process, bool open) {
    for (IoThread& thread : threads_) {
      from_loop(thread, [&thread, &process, open, generation = process.generation,
                         model = model_index(process)] {
        std::vector<Route>& routes = thread.routes[model];
        std::erase_if(routes, [&](const Route& route) { return route.process == &process; });
        if (open) routes.push_back({&process, generation});
      });
    }
  }

  void tick() {
    for (std::size_t i = 0; i < processes_.size(); ++i) {  // feeding starts more
      Process* process = processes_[i].get();
      if (!process->known || !process->wanted_open) continue;
      feed(scheduler_.on_activity(process->id, process->word.in_flight(),
                                  std::exchange(process->served, 0), process->last_release, now()));
      if (now() - last_usage_ >= kUsageEvery) {
        Actions actions = scheduler_.on_usage(process->id, process->high_water, now());
        read_grants();
        feed(std::move(actions));
      }
    }
    if (now() - last_usage_ >= kUsageEvery) last_usage_ = now();
    feed(scheduler_.on_tick(now()));
    check_explanation();
    check_progress();
    events_.after(kTick, [this] { tick(); });
  }

  // Grants change on use; what a process may hold counts as held.
  void read_grants() {
    for (const auto& view : scheduler_.instances()) {
      if (!by_id_.contains(view.id)) continue;  // about to be started
      Process& process = find(view.id);
      process.granted = view.grant;
      if (process.physical > Bytes(0)) process.physical = view.grant;
    }
  }

  // Whatever befalls a model, what is said of it fits its state. One a tick, in turn.
  void check_explanation() {
    const ModelId id = scenario_.models[++explained_ % scenario_.models.size()].policy.id;
    const Explanation answer = scheduler_.explain(id, now());
    const bool there = answer.state == InstanceState::resident;
    if (there != (answer.absence == Absence::none)) {
      fail(fmt::format("m{} is {} and explained as {}", id.value, to_string(answer.state),
                       to_string(answer.absence)));
    }
    if (answer.sentence.empty()) fail("an explanation says nothing");
    if (answer.waiting > 0 && answer.absence == Absence::not_asked_for) {
      fail(fmt::format("m{} is asked for and explained as not", id.value));
    }
    if (answer.budget != answer.granted + answer.held + answer.free &&
        answer.absence != Absence::unknown_model) {
      fail("an explanation's bytes do not add up");
    }
    if (answer.victim_rank && !there) fail("a model that is not there is ranked as a victim");
  }

  // ---- Promises over time

  void check_progress() {
    for (const auto& [model, waiting] : waiting_) {
      for (std::uint64_t id : waiting) {
        const Request& request = requests_[id];
        if (scenario_.calm && now() > request.must_be_served_by) {
          fail(fmt::format("a request of m{} starves: it waits {:.1f} s", model + 1,
                           Seconds(now() - request.since).count()));
        }
        if (now() - request.since > scenario_.deadline + kTick + 4 * scenario_.longest_message) {
          fail(fmt::format("a ticket of m{} is lost", model + 1));
        }
      }
      const TimePoint since =
          waiting.empty() ? now()
                          : std::max(last_progress_[model], requests_[*waiting.begin()].since);
      if (scenario_.calm && now() - since > scenario_.longest_wait) {
        fail(fmt::format("m{} starves", model + 1));
      }
    }
    const bool arrived = now() >= start_ + scenario_.arrivals;
    if (arrived && open_requests_ == 0 && !shutting_down_) shut_down();
    if (shutting_down_ && now() - shut_down_at_ > 200s) fail("the node does not shut down");
    if (shutting_down_ && arrived && open_requests_ == 0 && scheduler_.instances().empty()) {
      finish();
    }
  }

  void shut_down() {
    if (shutting_down_) return;
    note("shut down");
    shutting_down_ = true;
    shut_down_at_ = now();
    feed(scheduler_.shut_down(now()));
  }

  void finish() {
    finished_ = true;
    for (const auto& process : processes_) {
      if (process->alive) fail("a process outlives the node");
      if (!process->in_flight.empty()) fail("a lease outlives its request");
    }
    for (const ModelScript& model : scenario_.models) {
      if (scheduler_.model(model.policy.id).waiting > 0) fail("a ticket outlives its request");
    }
    const auto ended = outcome_.served + outcome_.refused + outcome_.cancelled + outcome_.crashed;
    if (ended != scenario_.requests) fail("not every request has ended once");
  }

  // ---- Small things

  TimePoint now() const { return events_.now(); }
  ModelId model_id(std::uint64_t index) const { return scenario_.models[index].policy.id; }
  static std::uint64_t model_index(const Process& process) {
    return process.script->policy.id.value - 1;
  }
  Process& find(InstanceId id) { return *by_id_.at(id); }
  std::set<std::uint64_t>& waiting_of(std::uint64_t model) { return waiting_[model]; }

  void fail(std::string what) {
    note("FAILED: {}", what);
    if (outcome_.failure.empty()) {
      outcome_.failure =
          fmt::format("{:.3f} s: {}", Seconds(now() - start_).count(), std::move(what));
    }
  }

  template <typename... Args>
  void note(fmt::format_string<Args...> format, Args&&... args) {
    if (trace_ == nullptr) return;
    fmt::print(trace_, "{:9.3f} {}\n", Seconds(now() - start_).count(),
               fmt::format(format, std::forward<Args>(args)...));
  }

  Scenario scenario_;
  Random random_;
  Fault fault_;
  std::FILE* trace_;
  Scheduler scheduler_;
  EventQueue events_;
  Outcome outcome_;
  TimePoint start_;

  std::deque<Request> requests_;
  std::uint64_t open_requests_ = 0;
  std::vector<IoThread> threads_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::map<InstanceId, Process*> by_id_;
  std::vector<ServeTicket> full_;  // offers that failed, to be answered
  std::deque<Process*> drained_;   // to be looked at
  std::map<TicketId, IoThread*> ticket_threads_;
  std::set<TicketId> ended_tickets_;
  std::map<std::uint64_t, std::set<std::uint64_t>> waiting_;  // by model
  std::map<std::uint64_t, TimePoint> last_progress_;
  TimePoint last_usage_;
  std::size_t explained_ = 0;
  std::set<ModelId> removed_;  // and not added again
  bool shutting_down_ = false;
  TimePoint shut_down_at_;
  bool finished_ = false;
};

}  // namespace

Outcome simulate(const Scenario& scenario, Fault fault, std::FILE* trace) {
  return World(scenario, fault, trace).run();
}

}  // namespace omni::simulation
