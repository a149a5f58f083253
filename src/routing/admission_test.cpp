#include "routing/admission.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

namespace omni {
namespace {

using namespace std::chrono_literals;

class Mailbox : public ControlPort {
 public:
  void post(ControlMessage message) override { messages.push_back(std::move(message)); }
  // The next message, which must be of this kind.
  template <typename T>
  T next() {
    if (messages.empty() || !std::holds_alternative<T>(messages.front())) {
      ADD_FAILURE() << "another message, or none";
      return {};
    }
    T message = std::get<T>(messages.front());
    messages.erase(messages.begin());
    return message;
  }
  std::vector<ControlMessage> messages;
};

// One I/O thread and one model with an open instance of two places.
class AdmissionTest : public ::testing::Test {
 protected:
  AdmissionTest() {
    slot->id = InstanceId{1};
    slot->model = ModelId{7};
    slot->capacity = 2;
    model.id = ModelId{7};
    model.instances = {InstanceRoute{slot, slot->word.open()}};
  }

  InstanceRoute route() const { return model.instances[0]; }
  // What the loop does for ServeTicket.
  void serve(TicketId ticket) {
    ASSERT_EQ(slot->word.try_acquire(route().generation, slot->capacity, true),
              LeaseWord::Acquire::ok);
    admission.serve({ticket, route()});
  }
  Ticket admit() { return admission.admit(model, Clock::now() + 1min); }
  TicketId admitted() { return mailbox.next<Admit>().ticket; }

  asio::io_context io;
  Mailbox mailbox;
  std::shared_ptr<InstanceSlot> slot = std::make_shared<InstanceSlot>();
  ModelRoute model;
  Admission admission{io.get_executor(), 0, mailbox};
};

TEST_F(AdmissionTest, LeasesUpToThePlacesWithoutTheLoop) {
  auto first = admission.try_lease(model);
  auto second = admission.try_lease(model);
  EXPECT_TRUE(first && second);
  EXPECT_FALSE(admission.try_lease(model));
  first->release();
  EXPECT_TRUE(admission.try_lease(model));
  EXPECT_TRUE(mailbox.messages.empty());
}

TEST_F(AdmissionTest, SpreadsLeasesOverInstances) {
  auto other = std::make_shared<InstanceSlot>();
  other->id = InstanceId{2};
  other->model = ModelId{7};
  other->capacity = 2;
  model.instances.push_back({other, other->word.open()});
  auto first = admission.try_lease(model);
  auto second = admission.try_lease(model);
  ASSERT_TRUE(first && second);
  EXPECT_NE(first->instance().slot->id, second->instance().slot->id);
}

TEST_F(AdmissionTest, AServedTicketGetsItsLease) {
  Ticket ticket = admit();
  EXPECT_FALSE(ticket.decided());
  serve(admitted());
  ASSERT_TRUE(ticket.decided());
  auto lease = ticket.take();
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(lease->instance().slot->id, InstanceId{1});
  EXPECT_EQ(slot->word.in_flight(), 1u);
  lease->release();
  EXPECT_EQ(slot->word.in_flight(), 0u);
  EXPECT_EQ(slot->served, 1u);
}

TEST_F(AdmissionTest, ARefusedTicketGetsTheErrorAndRetryAfter) {
  Ticket ticket = admit();
  admission.refuse({admitted(), {ErrorCode::queue_timeout, "no room"}, 9});
  ASSERT_TRUE(ticket.decided());
  EXPECT_EQ(ticket.take().error().code, ErrorCode::queue_timeout);
  EXPECT_EQ(ticket.retry_after_seconds(), 9);
}

TEST_F(AdmissionTest, ALeavingClientTellsTheLoopAndACrossingServeGoesBack) {
  TicketId id;
  {
    Ticket ticket = admit();
    id = admitted();
  }
  const Forget forget = mailbox.next<Forget>();
  EXPECT_EQ(forget.ticket, id);
  EXPECT_FALSE(forget.served);
  serve(id);
  EXPECT_EQ(slot->word.in_flight(), 0u);
  EXPECT_EQ(admission.waiting(), 0u);
}

TEST_F(AdmissionTest, ACrossingRefusalIsIgnored) {
  TicketId id;
  {
    Ticket ticket = admit();
    id = admitted();
  }
  admission.refuse({id, {ErrorCode::queue_timeout, "no room"}, 9});
  EXPECT_EQ(admission.waiting(), 0u);
}

TEST_F(AdmissionTest, AReleasedLeaseGoesToTheOldestTicketOfTheThread) {
  auto lease = admission.try_lease(model);
  Ticket older = admit();
  Ticket younger = admit();
  const TicketId id = admitted();
  admitted();
  lease->release();
  EXPECT_TRUE(older.decided());
  EXPECT_FALSE(younger.decided());
  const Forget forget = mailbox.next<Forget>();
  EXPECT_EQ(forget.ticket, id);
  EXPECT_TRUE(forget.served);
  EXPECT_EQ(slot->word.in_flight(), 1u);  // the same lease
}

TEST_F(AdmissionTest, AClosedWordGivesItsLeaseToNobody) {
  auto lease = admission.try_lease(model);
  Ticket ticket = admit();
  admitted();
  slot->word.close();
  lease->release();
  EXPECT_FALSE(ticket.decided());
  EXPECT_EQ(mailbox.next<Drained>().instance, InstanceId{1});
}

TEST_F(AdmissionTest, AReleaseTellsTheLoopWhenAnotherThreadWaits) {
  auto lease = admission.try_lease(model);
  slot->word.set_waiters(true);
  lease->release();
  EXPECT_EQ(mailbox.next<Freed>().instance, InstanceId{1});
}

TEST_F(AdmissionTest, ABrokenConnectionIsReportedAndNotHandedOver) {
  auto lease = admission.try_lease(model);
  Ticket ticket = admit();
  admitted();
  lease->release_suspect();
  EXPECT_FALSE(ticket.decided());
  EXPECT_EQ(mailbox.next<Suspect>().instance, InstanceId{1});
  EXPECT_EQ(slot->word.in_flight(), 0u);
  EXPECT_EQ(slot->served, 0u);
}

TEST_F(AdmissionTest, AMovedLeaseIsReleasedOnce) {
  auto lease = admission.try_lease(model);
  Lease moved = std::move(*lease);
  lease->release();
  EXPECT_EQ(slot->word.in_flight(), 1u);
  moved.release();
  moved.release();
  EXPECT_EQ(slot->word.in_flight(), 0u);
}

TEST_F(AdmissionTest, WaitEndsByDecisionByWakeAndByTime) {
  Ticket ticket = admit();
  const TicketId id = admitted();
  std::vector<bool> answers;
  auto waiter = [](Ticket& waiting, std::vector<bool>& seen) -> asio::awaitable<void> {
    for (TimePoint until : {TimePoint::max(), Clock::now() - 1s, TimePoint::max()}) {
      const bool decided = co_await waiting.wait(until);
      seen.push_back(decided);
    }
  };
  asio::co_spawn(io, waiter(ticket, answers), asio::detached);
  io.poll();
  EXPECT_TRUE(answers.empty());
  ticket.wake();
  while (answers.size() < 2) io.run_one();
  io.poll();
  serve(id);
  io.poll();
  EXPECT_EQ(answers, (std::vector<bool>{false, false, true}));
}

}  // namespace
}  // namespace omni
