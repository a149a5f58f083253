#include "scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace omni {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Steps = std::vector<std::string>;

// A scheduler with one device, told what happens by short calls that return its actions as text.
// Models, tickets and instances are numbered.
class Node {
 public:
  explicit Node(Bytes budget = 100_MiB, SchedulerLimits limits = {}) : scheduler(limits) {
    scheduler.add_device(kHostDevice, "host", budget);
  }

  Steps model(ModelPolicy policy) {
    policy.name = "m" + to_string(policy.id);
    return steps(scheduler.on_model(policy, now));
  }
  Steps model(std::uint64_t id, Bytes size) {
    return model({.id = ModelId{id}, .declared = size, .concurrency = 2, .stop_after = 1h});
  }
  Steps request(std::uint64_t ticket, std::uint64_t model, std::int32_t priority = 0) {
    return steps(scheduler.on_request(TicketId{ticket}, ModelId{model}, now + 120s, priority, now));
  }
  Steps forget(std::uint64_t ticket, bool served = false) {
    return steps(scheduler.on_forget(TicketId{ticket}, served, now));
  }
  Steps full(std::uint64_t ticket, std::uint64_t instance) {
    return steps(scheduler.on_full(TicketId{ticket}, InstanceId{instance}, now));
  }
  Steps freed(std::uint64_t i) { return steps(scheduler.on_freed(InstanceId{i}, now)); }
  Steps drained(std::uint64_t i) { return steps(scheduler.on_drained(InstanceId{i}, now)); }
  Steps resident(std::uint64_t i) { return steps(scheduler.on_resident(InstanceId{i}, now)); }
  Steps evicted(std::uint64_t i) { return steps(scheduler.on_evicted(InstanceId{i}, now)); }
  Steps stopped(std::uint64_t i) { return steps(scheduler.on_stopped(InstanceId{i}, now)); }
  Steps failed(std::uint64_t i, bool poison = false) {
    return steps(
        scheduler.on_failed(InstanceId{i}, {ErrorCode::load_failed, "exit code 1"}, poison, now));
  }
  Steps usage(std::uint64_t i, Bytes bytes) {
    return steps(scheduler.on_usage(InstanceId{i}, bytes, now));
  }
  Steps activity(std::uint64_t i, std::uint32_t in_flight, std::uint64_t served = 0) {
    return steps(scheduler.on_activity(InstanceId{i}, in_flight, served, now, now));
  }
  Steps tick(Duration passed = 0ms) {
    now += passed;
    return steps(scheduler.on_tick(now));
  }
  Steps load(std::uint64_t model) { return steps(scheduler.load(ModelId{model}, now)); }
  Steps stop(std::uint64_t model) { return steps(scheduler.stop(ModelId{model}, now)); }

  Explanation explain(std::uint64_t model) { return scheduler.explain(ModelId{model}, now); }
  InstanceState state(std::uint64_t model) { return scheduler.model(ModelId{model}).state; }
  Bytes granted() { return scheduler.devices()[0].granted; }

  // Loads a model by a request that is served and answered at once.
  void run(std::uint64_t ticket, std::uint64_t model, std::uint64_t instance) {
    request(ticket, model);
    resident(instance);
    activity(instance, 0);
  }

  Steps steps(Actions made) {
    Steps texts;
    for (const Action& action : made) {
      texts.push_back(to_string(action));
      if (const auto* refusal = std::get_if<RefuseTicket>(&action)) last_refusal = *refusal;
    }
    return texts;
  }

  Scheduler scheduler;
  TimePoint now{1h};
  RefuseTicket last_refusal;
};

// ---- Admission

TEST(Admission, StartsAModelAndServesItsTicketWhenItIsResident) {
  Node node;
  node.model(1, 40_MiB);
  EXPECT_THAT(node.request(1, 1), ElementsAre("start i1 m1 40 MiB"));
  EXPECT_EQ(node.state(1), InstanceState::starting);
  EXPECT_TRUE(node.scheduler.has_waiters(ModelId{1}));
  EXPECT_THAT(node.resident(1), ElementsAre("serve t1 i1"));
  EXPECT_FALSE(node.scheduler.has_waiters(ModelId{1}));
}

TEST(Admission, GathersRequestsOfOneModelIntoOneStart) {
  Node node;
  node.model(1, 40_MiB);
  node.request(1, 1);
  EXPECT_THAT(node.request(2, 1), IsEmpty());
  EXPECT_THAT(node.request(3, 1), IsEmpty());
  EXPECT_THAT(node.resident(1), ElementsAre("serve t1 i1", "serve t2 i1"));
}

TEST(Admission, AnEventFromAMomentAgoIsTakenAsOfNow) {
  Node node;
  node.model(1, 40_MiB);
  node.request(1, 1);
  node.now -= 1ms;
  EXPECT_THAT(node.resident(1), ElementsAre("serve t1 i1"));
  EXPECT_THAT(node.activity(1, 0), IsEmpty());
}

TEST(Admission, ATicketWhoseOfferFailedKeepsItsPlace) {
  Node node;
  node.model(1, 40_MiB);
  node.run(1, 1, 1);
  EXPECT_THAT(node.request(2, 1), ElementsAre("serve t2 i1"));
  EXPECT_THAT(node.full(2, 1), IsEmpty());
  EXPECT_THAT(node.request(3, 1), IsEmpty());
  EXPECT_THAT(node.freed(1), ElementsAre("serve t2 i1"));
  EXPECT_THAT(node.freed(1), ElementsAre("serve t3 i1"));
}

TEST(Admission, OffersAgainWhenActivityShowsRoom) {
  Node node;
  node.model(1, 40_MiB);
  node.run(1, 1, 1);
  node.request(2, 1);
  node.full(2, 1);
  EXPECT_THAT(node.activity(1, 2), IsEmpty());
  EXPECT_THAT(node.activity(1, 1), ElementsAre("serve t2 i1"));
}

TEST(Admission, HigherPriorityGoesFirstThenTheOldest) {
  Node node;
  node.model(1, 40_MiB);
  node.request(1, 1);
  node.request(2, 1);
  node.request(3, 1, 5);
  EXPECT_THAT(node.resident(1), ElementsAre("serve t3 i1", "serve t1 i1"));
}

TEST(Admission, RefusesWhenTheQueueIsFull) {
  SchedulerLimits limits;
  limits.queue_per_model = 2;
  limits.queue_total = 3;
  Node node(100_MiB, limits);
  node.model(1, 40_MiB);
  node.model(2, 40_MiB);
  node.request(1, 1);
  node.request(2, 1);
  EXPECT_THAT(node.request(3, 1), ElementsAre("refuse t3 queue_full"));
  node.request(4, 2);
  EXPECT_THAT(node.request(5, 2), ElementsAre("refuse t5 queue_full"));
}

TEST(Admission, RefusesAtTheDeadlineWithTheLearnedLoadTime) {
  Node node;
  node.model(1, 60_MiB);
  node.model(2, 60_MiB);
  node.request(1, 1);
  node.now += 7s;
  node.resident(1);
  node.activity(1, 1);
  node.stop(1);
  node.drained(1);
  node.stopped(1);
  node.request(2, 1);
  EXPECT_THAT(node.tick(119s), IsEmpty());
  EXPECT_THAT(node.tick(1s), ElementsAre("refuse t2 queue_timeout"));
  EXPECT_EQ(node.last_refusal.retry_after_seconds, 7);
}

TEST(Admission, AStartGoesOnWhenItsTicketsRanOutOfTime) {
  Node node;
  node.model(1, 60_MiB);
  node.request(1, 1);
  EXPECT_THAT(node.tick(121s), ElementsAre("refuse t1 queue_timeout"));
  EXPECT_EQ(node.state(1), InstanceState::starting);
}

TEST(Admission, UnknownModelAndUnknownTicketAreNoTrouble) {
  Node node;
  EXPECT_THAT(node.request(1, 9), ElementsAre("refuse t1 model_not_found"));
  EXPECT_THAT(node.forget(77), IsEmpty());
  EXPECT_THAT(node.drained(5), IsEmpty());
}

TEST(Admission, TheOldestTicketGetsATurnWhenOthersPassItForLong) {
  Node node;
  node.model(1, 40_MiB);
  node.run(1, 1, 1);
  node.request(2, 1);
  node.full(2, 1);
  node.request(3, 1);
  node.tick(11s);
  EXPECT_THAT(node.forget(3, true), IsEmpty());
  EXPECT_THAT(node.tick(100ms), ElementsAre("close i1"));
  EXPECT_THAT(node.drained(1), ElementsAre("open i1", "serve t2 i1"));
}

// ---- Placement

TEST(Placement, RunsTwoLoadsAtOnceAndNoMore) {
  Node node;
  for (std::uint64_t id : {1, 2, 3}) node.model(id, 20_MiB);
  EXPECT_THAT(node.request(1, 1), ElementsAre("start i1 m1 20 MiB"));
  EXPECT_THAT(node.request(2, 2), ElementsAre("start i2 m2 20 MiB"));
  EXPECT_THAT(node.request(3, 3), IsEmpty());
  EXPECT_THAT(node.resident(1), ElementsAre("serve t1 i1", "start i3 m3 20 MiB"));
}

TEST(Placement, HigherPriorityGetsTheBytesFirst) {
  SchedulerLimits limits;
  limits.loads_per_device = 1;
  Node node(100_MiB, limits);
  for (std::uint64_t id : {1, 2, 3}) node.model(id, 30_MiB);
  node.request(1, 1);
  node.request(2, 2);
  node.request(3, 3, 5);
  EXPECT_THAT(node.resident(1), ElementsAre("serve t1 i1", "start i2 m3 30 MiB"));
}

TEST(Placement, AnAgedTicketComesBeforeAnyPriority) {
  SchedulerLimits limits;
  limits.loads_per_device = 1;
  Node node(100_MiB, limits);
  for (std::uint64_t id : {1, 2, 3}) node.model(id, 30_MiB);
  node.request(1, 1);
  node.request(2, 2);
  node.tick(11s);
  node.request(3, 3, 5);
  EXPECT_THAT(node.resident(1), ElementsAre("serve t1 i1", "start i2 m2 30 MiB"));
}

TEST(Placement, VictimsLeaveWhileTheLoadBeforeEnds) {
  SchedulerLimits limits;
  limits.loads_per_device = 1;
  Node node(100_MiB, limits);
  for (std::uint64_t id : {1, 2, 3}) node.model(id, 50_MiB);
  const auto load = [&](std::uint64_t ticket, std::uint64_t model, std::uint64_t instance) {
    node.request(ticket, model);
    node.tick(10s);
    node.resident(instance);
    node.activity(instance, 0);
    node.tick(1s);
  };
  load(1, 1, 1);
  load(2, 2, 2);
  EXPECT_THAT(node.request(3, 3), ElementsAre("close i1"));
  node.drained(1);
  node.tick(2s);  // a stop takes two seconds
  EXPECT_THAT(node.stopped(1), ElementsAre("start i3 m3 50 MiB"));
  node.tick(10s);
  node.resident(3);
  node.activity(3, 0);
  node.tick(1s);
  EXPECT_THAT(node.request(4, 1), ElementsAre("close i2"));
  node.drained(2);
  node.tick(2s);
  EXPECT_THAT(node.stopped(2), ElementsAre("start i4 m1 50 MiB"));
  node.request(5, 2);
  EXPECT_THAT(node.tick(7900ms), IsEmpty());
  EXPECT_THAT(node.tick(100ms), ElementsAre("close i3"));  // m1 is there in two seconds
  node.drained(3);
  node.tick(2s);
  EXPECT_THAT(node.stopped(3), IsEmpty());  // not more than one load at once
  EXPECT_THAT(node.resident(4), ElementsAre("serve t4 i4", "start i5 m2 50 MiB"));
}

TEST(Placement, AbortsAStartThatNobodyWaitsFor) {
  Node node;
  node.model(1, 40_MiB);
  node.request(1, 1);
  node.request(2, 1);
  EXPECT_THAT(node.forget(1), IsEmpty());
  EXPECT_THAT(node.forget(2), ElementsAre("abort i1"));
  EXPECT_THAT(node.request(3, 1), IsEmpty());  // not beside the one that ends
  EXPECT_THAT(node.stopped(1), ElementsAre("start i2 m1 40 MiB"));
}

TEST(Placement, AModelOfUnknownSizeStartsAloneAndIsMeasured) {
  Node node;
  node.model(1, 40_MiB);
  node.model({.id = ModelId{2}, .stop_after = 1h});
  node.run(1, 1, 1);
  node.tick(1s);
  EXPECT_THAT(node.request(2, 2), ElementsAre("close i1"));
  EXPECT_THAT(node.drained(1), ElementsAre("stop i1"));
  EXPECT_THAT(node.stopped(1), ElementsAre("start i2 m2 100 MiB"));
  EXPECT_THAT(node.request(3, 1), IsEmpty());
  EXPECT_THAT(node.usage(2, 10_MiB), IsEmpty());  // not loaded yet: says little
  EXPECT_THAT(node.resident(2), ElementsAre("serve t2 i2"));
  EXPECT_THAT(node.usage(2, 30_MiB), ElementsAre("start i3 m1 40 MiB"));
  EXPECT_EQ(node.granted(), 70_MiB);
}

TEST(Placement, TheProfileWinsOverTheDeclaredSize) {
  Node node;
  node.model({.id = ModelId{1}, .declared = 80_MiB, .learned = Learned{.profile = 30_MiB}});
  EXPECT_THAT(node.request(1, 1), ElementsAre("start i1 m1 30 MiB"));
}

TEST(Placement, RefusesWhatIsLargerThanTheDevice) {
  Node node;
  node.model(1, 101_MiB);
  EXPECT_THAT(node.request(1, 1), ElementsAre("refuse t1 model_too_large"));
  EXPECT_EQ(node.last_refusal.error.message,
            "model \"m1\" needs 101 MiB, device host has 100 MiB: raise the device's memory or "
            "use a smaller model");
}

TEST(Placement, RefusesWhatPinnedModelsLeaveNoRoomFor) {
  Node node;
  node.model({.id = ModelId{1}, .declared = 60_MiB, .stop_after = 1h});
  node.model({.id = ModelId{2}, .declared = 60_MiB, .pinned = true, .stop_after = 1h});
  node.run(1, 2, 1);
  node.tick(1min);
  EXPECT_THAT(node.request(2, 1), ElementsAre("refuse t2 out_of_memory"));
}

TEST(Placement, ScalesOutWhenFullForAWhileAndBytesAreFree) {
  Node node;
  node.model({.id = ModelId{1}, .declared = 40_MiB, .max_instances = 2, .stop_after = 1h});
  node.run(1, 1, 1);
  node.activity(1, 1);
  node.request(2, 1);
  node.full(2, 1);
  EXPECT_THAT(node.tick(500ms), IsEmpty());
  EXPECT_THAT(node.tick(500ms), ElementsAre("start i2 m1 40 MiB"));
  EXPECT_THAT(node.resident(2), ElementsAre("serve t2 i2"));
}

TEST(Placement, DoesNotScaleOutAtAnotherModelsExpense) {
  Node node;
  node.model({.id = ModelId{1}, .declared = 40_MiB, .max_instances = 2, .stop_after = 1h});
  node.model(2, 40_MiB);
  node.run(1, 2, 1);
  node.run(2, 1, 2);
  node.activity(2, 1);
  node.request(3, 1);
  node.full(3, 2);
  EXPECT_THAT(node.tick(5s), IsEmpty());
}

TEST(Placement, KeepsMinInstances) {
  Node node;
  EXPECT_THAT(node.model({.id = ModelId{1}, .declared = 40_MiB, .min_instances = 1}),
              ElementsAre("start i1 m1 40 MiB"));
  node.resident(1);
  EXPECT_THAT(node.tick(10min), IsEmpty());
  node.failed(1);
  EXPECT_EQ(node.state(1), InstanceState::starting);
}

TEST(Placement, NobodyTakesTheBytesThatALargeModelGathers) {
  Node node;
  node.model(1, 60_MiB);
  node.model(2, 100_MiB);
  node.model(3, 40_MiB);
  node.run(1, 1, 1);
  node.activity(1, 1);
  EXPECT_THAT(node.request(2, 2), IsEmpty());  // m1 is busy and new
  node.request(3, 3);                          // fits beside it
  EXPECT_THAT(node.resident(2), Contains("serve t3 i2"));
  node.now += 500ms;
  node.activity(1, 1);
  node.activity(2, 1);
  EXPECT_THAT(node.tick(600ms), ElementsAre("close i1", "close i2"));  // residency is over
  node.request(4, 3);
  node.request(5, 1);
  node.drained(2);
  EXPECT_THAT(node.stopped(2), IsEmpty());  // its bytes are m2's
  node.drained(1);
  EXPECT_THAT(node.stopped(1), ElementsAre("start i3 m2 100 MiB"));
}

// ---- Gathering

TEST(Gathering, WhileAModelIsResidentItsLaterRequestsAreServedBeforeItIsClosed) {
  Node node;
  node.model(1, 60_MiB);
  node.model(2, 60_MiB);
  node.run(1, 1, 1);
  node.now += 1min;
  node.activity(1, 1);
  EXPECT_THAT(node.request(2, 2), IsEmpty());
  for (std::uint64_t ticket = 3; ticket < 12; ++ticket) {
    node.now += 300ms;
    EXPECT_THAT(node.request(ticket, 1), ElementsAre("serve t" + std::to_string(ticket) + " i1"));
    node.activity(1, 1, 1);
  }
  node.activity(1, 0, 1);
  EXPECT_THAT(node.tick(200ms), ElementsAre("close i1"));  // idle at last
}

TEST(Gathering, EndsWhenTheOtherHasWaitedForItsFairWait) {
  Node node;
  node.model(1, 60_MiB);
  node.model(2, 60_MiB);
  node.run(1, 1, 1);
  node.now += 1min;
  node.activity(1, 1);
  node.request(2, 2);
  Steps steps;
  for (std::uint64_t ticket = 3; steps.empty(); ++ticket) {
    node.now += 100ms;
    node.request(ticket, 1);
    node.activity(1, 1, 1);
    steps = node.tick();
    ASSERT_LT(ticket, 200u);
  }
  EXPECT_THAT(steps, ElementsAre("close i1"));
  EXPECT_LE(node.explain(2).oldest_wait, SchedulerLimits{}.fair_wait);
  node.request(300, 1);
  node.drained(1);
  EXPECT_THAT(node.stopped(1), ElementsAre("start i2 m2 60 MiB"));
}

// ---- Eviction

TEST(Eviction, ClosesTheIdleModelAndStartsTheOtherWhenItIsGone) {
  Node node;
  node.model(1, 60_MiB);
  node.model(2, 60_MiB);
  node.run(1, 1, 1);
  node.tick(300ms);
  EXPECT_THAT(node.request(2, 2), ElementsAre("close i1"));
  EXPECT_THAT(node.drained(1), ElementsAre("stop i1"));
  EXPECT_EQ(node.granted(), 60_MiB);
  EXPECT_THAT(node.stopped(1), ElementsAre("start i2 m2 60 MiB"));
}

TEST(Eviction, SparesWhatWasUsedAMomentAgo) {
  Node node;
  node.model(1, 60_MiB);
  node.model(2, 60_MiB);
  node.run(1, 1, 1);
  EXPECT_THAT(node.request(2, 2), IsEmpty());
  EXPECT_THAT(node.tick(100ms), IsEmpty());
  EXPECT_THAT(node.tick(100ms), ElementsAre("close i1"));
}

TEST(Eviction, SparesBusyModelEvenWhenOldest) {
  Node node;
  for (std::uint64_t id : {1, 2, 3}) node.model(id, 50_MiB);
  node.run(1, 1, 1);
  node.run(2, 2, 2);
  node.now += 30s;
  node.activity(1, 1);
  EXPECT_THAT(node.request(3, 3), ElementsAre("close i2"));
}

TEST(Eviction, ABusyModelKeepsItsPlaceTwiceAsLongAsItsStartTook) {
  Node node;
  node.model(1, 60_MiB);
  node.model(2, 60_MiB);
  node.request(1, 1);
  node.request(2, 2);
  node.now += 12s;  // m2 has waited long when m1 is there
  node.resident(1);
  for (int i = 0; i < 239; ++i) {
    node.now += 100ms;
    node.activity(1, 1);
    EXPECT_THAT(node.tick(), IsEmpty());
  }
  node.now += 100ms;
  node.activity(1, 1);
  EXPECT_THAT(node.tick(), ElementsAre("close i1"));
}

TEST(Eviction, ABusyModelIsClosedOnlyForOneThatHasWaitedFourTimesWhatALoadCosts) {
  Node node;
  node.model(1, 60_MiB);
  node.model(2, 60_MiB);
  node.request(1, 1);
  node.now += 2s;
  node.resident(1);
  node.now += 1min;
  node.activity(1, 1);
  EXPECT_THAT(node.request(2, 2), IsEmpty());
  EXPECT_THAT(node.tick(7900ms), IsEmpty());
  EXPECT_THAT(node.tick(100ms), ElementsAre("close i1"));
}

TEST(Eviction, TakesWhatBecomesIdleInsteadOfAVictimThatStillAnswers) {
  Node node;
  for (std::uint64_t id : {1, 2, 3}) node.model(id, 50_MiB);
  node.run(1, 1, 1);
  node.run(2, 2, 2);
  node.now += 1min;
  node.activity(1, 1);
  node.activity(2, 1);
  node.request(3, 3);
  EXPECT_THAT(node.tick(10s), ElementsAre("close i1"));
  node.now += 1s;
  node.activity(2, 0, 1);
  EXPECT_THAT(node.tick(200ms), ElementsAre("close i2", "open i1"));
  EXPECT_THAT(node.drained(2), ElementsAre("stop i2"));
  EXPECT_THAT(node.stopped(2), ElementsAre("start i3 m3 50 MiB"));
}

TEST(Eviction, TakesABusyOneInsteadOfAVictimWhoseAnswerTakesLong) {
  Node node;
  for (std::uint64_t id : {1, 2, 3, 4}) node.model(id, 50_MiB);
  node.run(1, 1, 1);
  node.run(2, 2, 2);
  node.now += 1min;
  node.activity(1, 1);  // a stream of minutes
  node.activity(2, 1);
  node.request(3, 3);
  EXPECT_THAT(node.tick(10s), ElementsAre("close i1"));
  EXPECT_THAT(node.tick(1500ms), IsEmpty());
  EXPECT_THAT(node.tick(1s), ElementsAre("close i2", "open i1"));
  EXPECT_THAT(node.drained(2), ElementsAre("stop i2"));
  EXPECT_THAT(node.stopped(2), ElementsAre("start i3 m3 50 MiB"));
  node.resident(3);
  node.now += 1min;
  node.activity(1, 1);
  node.activity(3, 1);
  node.request(4, 4);
  EXPECT_THAT(node.tick(10s), ElementsAre("close i3")) << "the stream still runs: not again";
}

TEST(Eviction, SparesAModelThatIsExpectedBackEvenWhenItIsUnusedLonger) {
  Node node;
  for (std::uint64_t id : {1, 2, 3}) node.model(id, 50_MiB);
  node.run(1, 1, 1);
  node.run(2, 2, 2);
  for (int i = 0; i < 20; ++i) {  // m1 every ten seconds, m2 every five minutes
    for (int k = 0; k < 30; ++k) {
      node.now += 10s;
      node.activity(1, 0, 1);
    }
    node.activity(2, 0, 1);
  }
  node.now += 8s;
  node.activity(1, 0, 1);
  node.now += 1s;
  node.activity(2, 0, 1);
  node.now += 7s;
  EXPECT_THAT(node.request(3, 3), ElementsAre("close i2"));
}

TEST(Eviction, SparesWhatIsDearToBringBack) {
  Node node;
  for (std::uint64_t id : {1, 2, 3}) node.model(id, 50_MiB);
  node.request(1, 1);
  node.now += 20s;
  node.resident(1);
  node.activity(1, 0);
  node.request(2, 2);
  node.now += 1s;
  node.resident(2);
  node.activity(2, 0);
  node.now += 1min;  // m2 was asked for last
  EXPECT_THAT(node.request(3, 3), ElementsAre("close i2"));
}

TEST(Eviction, ReopensAVictimThatIsNoLongerNeeded) {
  Node node;
  node.model(1, 60_MiB);
  node.model(2, 60_MiB);
  node.run(1, 1, 1);
  node.tick(1s);
  EXPECT_THAT(node.request(2, 2), ElementsAre("close i1"));
  EXPECT_THAT(node.request(3, 1), IsEmpty());
  EXPECT_THAT(node.forget(2), ElementsAre("open i1", "serve t3 i1"));
  EXPECT_THAT(node.drained(1), IsEmpty());  // of the close before
}

TEST(Eviction, AVictimThatIsPinnedMeanwhileStays) {
  Node node;
  node.model(1, 60_MiB);
  node.model(2, 60_MiB);
  node.run(1, 1, 1);
  node.tick(1s);
  EXPECT_THAT(node.request(2, 2), ElementsAre("close i1"));
  EXPECT_THAT(node.model({.id = ModelId{1}, .declared = 60_MiB, .pinned = true, .stop_after = 1h}),
              ElementsAre("open i1", "refuse t2 out_of_memory"));
}

TEST(Eviction, NeverTakesAPinnedModel) {
  Node node;
  node.model({.id = ModelId{1}, .declared = 60_MiB, .pinned = true, .stop_after = 1h});
  node.model(2, 30_MiB);
  node.model(3, 30_MiB);
  node.run(1, 1, 1);
  node.run(2, 2, 2);
  node.now += 10min;
  node.activity(2, 0, 1);
  EXPECT_THAT(node.tick(1s), IsEmpty());
  EXPECT_THAT(node.request(3, 3), ElementsAre("close i2"));
}

TEST(Eviction, MovesToHostMemoryAndRestores) {
  Node node;
  node.model(
      {.id = ModelId{1}, .declared = 60_MiB, .stop_after = 1h, .mechanism = EvictMechanism::evict});
  node.model(2, 60_MiB);
  node.run(1, 1, 1);
  node.tick(1s);
  node.request(2, 2);
  EXPECT_THAT(node.drained(1), ElementsAre("evict i1"));
  EXPECT_THAT(node.evicted(1), ElementsAre("start i2 m2 60 MiB"));
  EXPECT_EQ(node.state(1), InstanceState::evicted);
  node.resident(2);
  node.activity(2, 0);
  node.tick(1s);
  EXPECT_THAT(node.request(3, 1), ElementsAre("close i2"));
  node.drained(2);
  EXPECT_THAT(node.stopped(2), ElementsAre("restore i1 60 MiB"));
  EXPECT_THAT(node.resident(1), ElementsAre("serve t3 i1"));
}

TEST(Eviction, StopsWhatCouldNotBeEvicted) {
  Node node;
  node.model(
      {.id = ModelId{1}, .declared = 60_MiB, .stop_after = 1h, .mechanism = EvictMechanism::evict});
  node.model(2, 60_MiB);
  node.run(1, 1, 1);
  node.tick(1s);
  node.request(2, 2);
  EXPECT_THAT(node.drained(1), ElementsAre("evict i1"));
  EXPECT_THAT(node.resident(1), ElementsAre("close i1"));
  EXPECT_THAT(node.drained(1), ElementsAre("stop i1"));
}

TEST(Eviction, StopsAfterIdleTime) {
  Node node;
  node.model({.id = ModelId{1}, .declared = 60_MiB, .stop_after = 10s});
  node.run(1, 1, 1);
  EXPECT_THAT(node.tick(9s), IsEmpty());
  EXPECT_THAT(node.tick(1s), ElementsAre("close i1"));
  EXPECT_THAT(node.request(2, 1), ElementsAre("open i1", "serve t2 i1"));
}

// ---- Failures

TEST(CrashLoop, RefusesWithTheCauseAndPausesLonger) {
  Node node;
  node.model(1, 60_MiB);
  node.request(1, 1);
  EXPECT_THAT(node.failed(1), ElementsAre("refuse t1 load_failed"));
  EXPECT_EQ(node.last_refusal.retry_after_seconds, 1);
  EXPECT_EQ(node.state(1), InstanceState::failed);
  EXPECT_THAT(node.request(2, 1), ElementsAre("refuse t2 load_failed"));
  node.now += 1s;
  EXPECT_THAT(node.request(3, 1), ElementsAre("start i2 m1 60 MiB"));
  node.failed(2);
  EXPECT_EQ(node.last_refusal.retry_after_seconds, 2);
  EXPECT_EQ(node.scheduler.model(ModelId{1}).last_error, "exit code 1");
}

TEST(CrashLoop, ACrashUnderRequestsIsRestartedAtOnce) {
  Node node;
  node.model(1, 60_MiB);
  node.run(1, 1, 1);
  node.request(2, 1);
  node.full(2, 1);
  EXPECT_THAT(node.failed(1), ElementsAre("start i2 m1 60 MiB"));
  node.resident(2);
  node.request(3, 1);
  node.full(3, 2);
  EXPECT_THAT(node.failed(2), ElementsAre("refuse t3 load_failed"));  // the second in a row
}

TEST(CrashLoop, PoisonDeathsDoNotFeedIt) {
  Node node;
  node.model(1, 60_MiB);
  node.run(1, 1, 1);
  for (std::uint64_t i = 1; i < 6; ++i) {
    node.failed(i, true);
    EXPECT_THAT(node.request(10 + i, 1),
                ElementsAre("start i" + std::to_string(i + 1) + " m1 60 MiB"));
    node.resident(i + 1);
  }
}

TEST(CrashLoop, OperatorsLoadTriesAtOnce) {
  Node node;
  node.model(1, 60_MiB);
  node.request(1, 1);
  node.failed(1);
  EXPECT_THAT(node.load(1), ElementsAre("start i2 m1 60 MiB"));
}

// ---- Memory that grows

TEST(Growth, RaisesTheGrantWhenBytesAreFree) {
  Node node;
  node.model(1, 40_MiB);
  node.run(1, 1, 1);
  node.usage(1, 70_MiB);
  EXPECT_EQ(node.granted(), 70_MiB);
  EXPECT_EQ(node.scheduler.model(ModelId{1}).profile, 70_MiB);
}

TEST(Growth, ClosesAnIdleVictimElseDrainsTheOffender) {
  Node node;
  node.model(1, 50_MiB);
  node.model(2, 50_MiB);
  node.run(1, 1, 1);
  node.run(2, 2, 2);
  node.now += 1s;
  node.activity(1, 1);
  node.activity(2, 1);
  EXPECT_THAT(node.usage(1, 70_MiB), IsEmpty());
  EXPECT_THAT(node.tick(4900ms), IsEmpty());
  EXPECT_THAT(node.tick(100ms), ElementsAre("close i1"));

  Node other;
  other.model(1, 50_MiB);
  other.model(2, 50_MiB);
  other.run(1, 1, 1);
  other.run(2, 2, 2);
  other.now += 1s;
  other.activity(1, 1);
  EXPECT_THAT(other.usage(1, 70_MiB), ElementsAre("close i2"));
  other.drained(2);
  other.stopped(2);
  EXPECT_EQ(other.granted(), 70_MiB);
}

TEST(Growth, ALittleOverItsGrantIsNotDrained) {
  Node node;
  node.model(1, 50_MiB);
  node.model(2, 50_MiB);
  node.run(1, 1, 1);
  node.run(2, 2, 2);
  node.activity(1, 1);
  node.activity(2, 1);
  node.usage(1, 55_MiB);
  EXPECT_THAT(node.tick(1min), IsEmpty());
}

TEST(Growth, AProfileAboveTheBudgetIsTooLarge) {
  Node node;
  node.model(1, 50_MiB);
  node.run(1, 1, 1);
  node.usage(1, 130_MiB);
  EXPECT_THAT(node.tick(5s), ElementsAre("close i1"));
  node.drained(1);
  node.stopped(1);
  EXPECT_THAT(node.request(2, 1), ElementsAre("refuse t2 model_too_large"));
}

// ---- Operator

TEST(Operator, StopDrainsAndRefusesWhatWaits) {
  Node node;
  node.model(1, 50_MiB);
  node.run(1, 1, 1);
  node.request(2, 1);
  node.full(2, 1);
  EXPECT_THAT(node.stop(1), ElementsAre("refuse t2 model_stopped", "close i1"));
  EXPECT_THAT(node.request(3, 1), IsEmpty());
  EXPECT_THAT(node.drained(1), ElementsAre("stop i1"));
  EXPECT_THAT(node.stopped(1), ElementsAre("start i2 m1 50 MiB"));
}

TEST(Operator, StopOfAStartingModelAbortsIt) {
  Node node;
  node.model(1, 50_MiB);
  node.load(1);
  EXPECT_THAT(node.stop(1), ElementsAre("abort i1"));
  EXPECT_THAT(node.resident(1), IsEmpty());  // crossed
  EXPECT_THAT(node.stopped(1), IsEmpty());
}

TEST(Operator, RemovalServesWhatWaitsThenDrainsAndForgets) {
  Node node;
  node.model(1, 50_MiB);
  node.run(1, 1, 1);
  node.request(2, 1);
  node.full(2, 1);
  EXPECT_THAT(node.steps(node.scheduler.on_model_removed(ModelId{1}, node.now)), IsEmpty());
  EXPECT_THAT(node.request(3, 1), ElementsAre("refuse t3 model_stopped"));
  EXPECT_THAT(node.freed(1), ElementsAre("serve t2 i1", "close i1"));
  EXPECT_TRUE(node.scheduler.knows(ModelId{1}));
  node.drained(1);
  node.stopped(1);
  EXPECT_FALSE(node.scheduler.knows(ModelId{1}));
  EXPECT_THAT(node.request(4, 1), ElementsAre("refuse t4 model_not_found"));
  EXPECT_THAT(node.scheduler.instances(), IsEmpty());
}

TEST(Operator, AReplacedModelGivesItsQueueToItsSuccessor) {
  Node node;
  node.model({.id = ModelId{1}, .declared = 60_MiB, .pinned = true});
  node.model(2, 60_MiB);
  node.run(1, 1, 1);
  node.request(2, 1);
  node.full(2, 1);
  EXPECT_THAT(node.steps(node.scheduler.on_model_replaced(ModelId{1}, ModelId{2}, node.now)),
              ElementsAre("close i1"));
  node.drained(1);
  EXPECT_THAT(node.stopped(1), ElementsAre("start i2 m2 60 MiB"));
  EXPECT_THAT(node.resident(2), ElementsAre("serve t2 i2"));
}

TEST(Operator, AReplacedModelThatWaitsForRoomKeepsItsPlaceInTheQueue) {
  Node node;
  for (std::uint64_t id : {1, 2, 3}) node.model(id, 60_MiB);
  node.run(1, 1, 1);
  node.activity(1, 1);
  node.request(2, 2);  // waits for m1
  EXPECT_THAT(node.steps(node.scheduler.on_model_replaced(ModelId{2}, ModelId{3}, node.now)),
              IsEmpty());
  EXPECT_FALSE(node.scheduler.knows(ModelId{2}));
  node.now += 1min;
  node.activity(1, 0, 1);
  EXPECT_THAT(node.tick(1s), ElementsAre("close i1"));
  node.drained(1);
  EXPECT_THAT(node.stopped(1), ElementsAre("start i2 m3 60 MiB"));
  EXPECT_THAT(node.resident(2), ElementsAre("serve t2 i2"));
}

TEST(Operator, ARemovedModelStartsForTheRequestsThatWait) {
  Node node;
  node.model(1, 50_MiB);
  EXPECT_THAT(node.request(1, 1), ElementsAre("start i1 m1 50 MiB"));
  EXPECT_THAT(node.steps(node.scheduler.on_model_removed(ModelId{1}, node.now)), IsEmpty());
  EXPECT_THAT(node.resident(1), ElementsAre("serve t1 i1", "close i1"));
  EXPECT_THAT(node.drained(1), ElementsAre("stop i1"));
}

TEST(Operator, ShutDownRefusesAllAndDrainsAll) {
  Node node;
  node.model(1, 50_MiB);
  node.model(2, 50_MiB);
  node.run(1, 1, 1);
  node.request(2, 2);
  const Steps steps = node.steps(node.scheduler.shut_down(node.now));
  EXPECT_THAT(steps,
              ::testing::UnorderedElementsAre("refuse t2 shutting_down", "close i1", "abort i2"));
  EXPECT_THAT(node.request(3, 1), ElementsAre("refuse t3 shutting_down"));
  node.stopped(2);
  EXPECT_THAT(node.drained(1), ElementsAre("stop i1"));
  node.stopped(1);
  EXPECT_THAT(node.scheduler.instances(), IsEmpty());
}

// ---- What is said of a model

TEST(Explain, AModelNobodyAsksFor) {
  Node node;
  node.model(1, 40_MiB);
  const Explanation answer = node.explain(1);
  EXPECT_EQ(answer.absence, Absence::not_asked_for);
  EXPECT_EQ(answer.sentence, "model \"m1\" is not asked for: its next request starts it");
  EXPECT_EQ(answer.state, InstanceState::stopped);
  EXPECT_EQ(answer.need, 40_MiB);
  EXPECT_EQ(answer.need_source, NeedSource::declared);
  EXPECT_EQ(answer.device, "host");
  EXPECT_EQ(answer.budget, 100_MiB);
  EXPECT_EQ(answer.free, 100_MiB);
  EXPECT_EQ(answer.victim_rank, std::nullopt);
}

TEST(Explain, AModelThatIsNotKnown) {
  EXPECT_EQ(Node().explain(9).absence, Absence::unknown_model);
}

TEST(Explain, AModelWhoseDeviceThisNodeLacks) {
  Node node;
  node.model({.id = ModelId{1}, .device = DeviceId{3}, .declared = 40_MiB});
  EXPECT_EQ(node.explain(1).absence, Absence::unknown_device);
}

TEST(Explain, WhereItsSizeComesFrom) {
  Node node;
  node.model({.id = ModelId{1}, .stop_after = 1h, .mechanism = EvictMechanism::evict});
  EXPECT_EQ(node.explain(1).need_source, NeedSource::unknown);
  EXPECT_EQ(node.explain(1).need, 100_MiB);
  node.run(1, 1, 1);
  node.usage(1, 30_MiB);
  EXPECT_EQ(node.explain(1).need_source, NeedSource::profile);
  EXPECT_EQ(node.explain(1).need, 30_MiB);
  node.model(2, 80_MiB);
  node.tick(1s);
  node.request(2, 2);
  node.drained(1);
  node.evicted(1);
  EXPECT_EQ(node.explain(1).need_source, NeedSource::evicted);
  EXPECT_EQ(node.explain(1).absence, Absence::not_asked_for);
}

TEST(Explain, ALoadingAndAResidentModel) {
  Node node;
  node.model(1, 40_MiB);
  node.request(1, 1);
  node.now += 3s;
  const Explanation loading = node.explain(1);
  EXPECT_EQ(loading.absence, Absence::loading);
  EXPECT_EQ(loading.waiting, 1u);
  EXPECT_EQ(loading.oldest_wait, 3s);
  EXPECT_EQ(loading.granted, 40_MiB);
  node.resident(1);
  const Explanation resident = node.explain(1);
  EXPECT_EQ(resident.absence, Absence::none);
  EXPECT_EQ(resident.waiting, 0u);
  EXPECT_EQ(resident.restart_cost, 3s);
  EXPECT_GT(resident.reuse_per_second, 0);
  EXPECT_GT(resident.loss_per_byte, 0);
  EXPECT_EQ(resident.victim_rank, 1u);
}

TEST(Explain, AModelThatIsTooLarge) {
  Node node;
  node.model(1, 101_MiB);
  EXPECT_EQ(node.explain(1).absence, Absence::too_large);
}

TEST(Explain, AModelThatPinnedOnesLeaveNoRoomFor) {
  Node node;
  node.model({.id = ModelId{1}, .declared = 60_MiB, .stop_after = 1h});
  node.model({.id = ModelId{2}, .declared = 60_MiB, .pinned = true, .stop_after = 1h});
  node.run(1, 2, 1);
  EXPECT_EQ(node.explain(1).absence, Absence::no_room_beside);
  EXPECT_THAT(node.explain(1).others, ElementsAre(ModelId{2}));
  EXPECT_TRUE(node.explain(2).pinned);
  EXPECT_EQ(node.explain(2).victim_rank, std::nullopt);
}

TEST(Explain, AModelThatBacksOff) {
  Node node;
  node.model(1, 40_MiB);
  node.request(1, 1);
  node.failed(1);
  node.now += 400ms;
  const Explanation answer = node.explain(1);
  EXPECT_EQ(answer.absence, Absence::backing_off);
  EXPECT_EQ(answer.retry_in, 600ms);
  EXPECT_THAT(answer.sentence, ::testing::HasSubstr("exit code 1"));
}

TEST(Explain, AModelThatWaitsForALoadSlot) {
  Node node;
  for (std::uint64_t id : {1, 2, 3}) node.model(id, 20_MiB);
  for (std::uint64_t id : {1, 2, 3}) node.request(id, id);
  const Explanation answer = node.explain(3);
  EXPECT_EQ(answer.absence, Absence::no_load_slot);
  EXPECT_THAT(answer.others, ElementsAre(ModelId{1}, ModelId{2}));
}

TEST(Explain, AModelThatWaitsForItsVictims) {
  Node node;
  node.model(1, 60_MiB);
  node.model(2, 60_MiB);
  node.run(1, 1, 1);
  node.tick(1s);
  node.request(2, 2);
  const Explanation answer = node.explain(2);
  EXPECT_EQ(answer.absence, Absence::victims_drain);
  EXPECT_EQ(answer.sentence, "model \"m2\" starts when \"m1\" has left");
  EXPECT_THAT(answer.others, ElementsAre(ModelId{1}));
  EXPECT_EQ(answer.held, 40_MiB);
  // The victim is wanted again, and its instance has to be gone first.
  node.request(3, 1);
  EXPECT_EQ(node.explain(1).absence, Absence::leaving);
}

TEST(Explain, AModelBehindAnOlderOne) {
  SchedulerLimits limits;
  limits.min_residency = 1min;
  Node node(100_MiB, limits);
  node.model(1, 60_MiB);
  node.model(2, 60_MiB);
  node.model(3, 40_MiB);
  node.run(1, 1, 1);
  node.activity(1, 1);
  node.request(2, 2);
  const Explanation waits = node.explain(2);
  EXPECT_EQ(waits.absence, Absence::residents_in_use);
  EXPECT_THAT(waits.others, ElementsAre(ModelId{1}));
  node.now += 11s;
  node.activity(1, 1);
  node.tick();
  node.request(3, 3);
  const Explanation answer = node.explain(3);
  EXPECT_EQ(answer.absence, Absence::behind_older);
  EXPECT_THAT(answer.others, ElementsAre(ModelId{2}));
}

TEST(Explain, AModelThatAnOperatorStopped) {
  Node node;
  node.model(1, 40_MiB);
  node.run(1, 1, 1);
  node.stop(1);
  node.drained(1);
  node.stopped(1);
  EXPECT_EQ(node.explain(1).absence, Absence::not_asked_for);
  EXPECT_THAT(node.explain(1).sentence, ::testing::HasSubstr("stopped by an operator"));
}

TEST(Explain, RanksVictimsAsTheyAreChosen) {
  Node node;
  for (std::uint64_t id : {1, 2, 3}) node.model(id, 50_MiB);
  node.run(1, 1, 1);
  node.run(2, 2, 2);
  for (int i = 0; i < 20; ++i) {
    node.now += 5s;
    node.activity(1, 0, 1);
    if (i == 10) node.activity(2, 0, 1);
  }
  node.now += 1s;
  EXPECT_GT(node.explain(1).reuse_per_second, node.explain(2).reuse_per_second);
  EXPECT_EQ(node.explain(1).victim_rank, 2u);
  EXPECT_EQ(node.explain(2).victim_rank, 1u);
  EXPECT_THAT(node.request(3, 3), ElementsAre("close i2"));
}

// ---- What was learned

TEST(Learned, IsToldAgainAfterARestart) {
  Node before;
  before.model(1, 40_MiB);
  before.request(1, 1);
  before.now += 3s;
  before.resident(1);
  before.usage(1, 30_MiB);
  before.now += 20s;
  before.activity(1, 0, 1);
  const Learned learned = before.scheduler.learned(ModelId{1});
  EXPECT_EQ(learned.profile, 40_MiB - 10_MiB);
  EXPECT_EQ(learned.load_time, 3s);

  Node after;
  after.model({.id = ModelId{1}, .declared = 40_MiB, .learned = learned});
  const Learned again = after.scheduler.learned(ModelId{1});
  EXPECT_EQ(again.profile, learned.profile);
  EXPECT_EQ(again.load_time, learned.load_time);
  EXPECT_EQ(again.reuse, learned.reuse);
  EXPECT_EQ(after.explain(1).need, 30_MiB);
  EXPECT_THAT(after.request(1, 1), ElementsAre("start i1 m1 30 MiB"));
}

TEST(Learned, OfAModelThatIsKnownIsNotTakenBack) {
  Node node;
  node.model(1, 40_MiB);
  node.run(1, 1, 1);
  node.usage(1, 30_MiB);
  node.model({.id = ModelId{1}, .declared = 40_MiB, .learned = Learned{.profile = 10_MiB}});
  EXPECT_EQ(node.scheduler.learned(ModelId{1}).profile, 30_MiB);
}

TEST(Learned, NumbersThatCannotBeAreIgnored) {
  Learned wrong{.profile = Bytes(-5), .load_time = -3s};
  wrong.reuse.ended[0] = -1;
  Node node;
  node.model({.id = ModelId{1}, .declared = 40_MiB, .learned = wrong});
  const Learned learned = node.scheduler.learned(ModelId{1});
  EXPECT_EQ(learned.profile, std::nullopt);
  EXPECT_EQ(learned.load_time, Duration{});
  EXPECT_EQ(learned.reuse, ReuseRecord{});
}

TEST(Learned, GapsAreThoseOfTicketsAndOfTheFastPath) {
  Node node;
  node.model(1, 40_MiB);
  node.request(1, 1);
  node.now += 30s;
  node.request(2, 1);  // waits as well: a gap of 30 s
  node.resident(1);
  node.activity(1, 2);  // these two
  node.activity(1, 0, 2);
  ReuseRecord expected;
  expected.add_gap(30s);
  EXPECT_EQ(node.scheduler.learned(ModelId{1}).reuse, expected);
  node.now += 5s;
  node.activity(1, 1);  // a third, on the fast path
  node.now += 9s;
  node.activity(1, 0, 1);  // ends
  expected.add_gap(5s);
  EXPECT_EQ(node.scheduler.learned(ModelId{1}).reuse, expected);
}

}  // namespace
}  // namespace omni
