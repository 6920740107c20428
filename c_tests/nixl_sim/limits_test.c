// SPDX-License-Identifier: Apache-2.0
// Limits of calls and of runs, with the stand-in for NIXL, which returns late or never, or leaves requests in
// flight.
#include "two_agents.h"

/* A call into NIXL has no time limit. A kvmem call that has one, and changes nothing, ends in time. */
TEST(calls_with_a_limit_end_though_nixl_does_not_return) {
    OPENED(pair, pair, REF(two_requests()));
    const kvmem_nixl_descriptor memory = memory_at(&pair, sizeof(pair));
    NIXL(nixl_sim_hold(NIXL_SIM_POST));
    EXPECT_OK(kvmem_transfer_submit(pair.transfer, NULL, ERR));
    AWAIT(NIXL(nixl_sim_waiting()) == 1);
    REFUSE(KVMEM_STATUS_TIMED_OUT, "agent 'near'", kvmem_agent_take_notifications, pair.near,
           MILLISECONDS(1));
    CHECK_HAS(test_last_message(), "has not returned");
    REFUSE(KVMEM_STATUS_TIMED_OUT, "has not returned", kvmem_agent_query, pair.near, &memory, 1, NULL,
           MILLISECONDS(1));
    EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, "has not returned",
                   kvmem_agent_connect(pair.near, "far", NULL, MILLISECONDS(1), ERR));
    NIXL(nixl_sim_go());
    EXPECT_OK(kvmem_transfer_wait(pair.transfer, PATIENCE, ERR));
    REFUSE(KVMEM_STATUS_TIMED_OUT, "in time", kvmem_agent_take_notifications, pair.near, MILLISECONDS(1));
}

/* Has a thread share the processor of the calling one, which it does not interrupt when it wakes up. Returns
   the processors that the calling one had. */
static cpu_set_t give_way(pid_t thread) {
    cpu_set_t before, one;
    CHECK_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    CHECK_EQ(sched_setaffinity(thread, sizeof(one), &one), 0);
    CHECK_EQ(sched_setscheduler(thread, SCHED_BATCH, &(struct sched_param){0}), 0);
    return before;
}

/* Either thread may do the work: the agent's thread, if the other one is interrupted before it waits. The run
   is too long for the submitting thread. */
TEST(a_thread_that_waits_without_a_timeout_does_the_work_of_its_agent) {
    OPENED(pair, pair, REF(two_requests()));
    EXPECT_OK(run(pair.transfer)); /* until a deadline: the agent's thread does the work */
    CHECK(requests().last_poster != gettid());
    const cpu_set_t processors = give_way(requests().last_poster);
    do {
        EXPECT_OK(kvmem_transfer_submit(pair.transfer, NULL, ERR));
        EXPECT_OK(kvmem_transfer_wait(pair.transfer, KVMEM_TIMEOUT_FOREVER, ERR));
    } while (requests().last_poster != gettid()); /* only the deadline of the process limits this */
    CHECK_EQ(sched_setaffinity(0, sizeof(processors), &processors), 0);
}

/* A call into NIXL may never return. */
TEST(a_thread_that_waits_until_a_deadline_leaves_the_work_to_the_agents_thread) {
    const kvmem_layout_config config = two_requests();
    OPENED(pair, pair, &config);
    OWNED(kvmem_transfer) limited = create_limited(&pair, &config, KVMEM_METHOD_NIXL, true, SECONDS(3000));
    for (int i = 0; i < 20; i++) {
        EXPECT_OK(run(pair.transfer));
        CHECK(requests().last_poster != gettid());
        EXPECT_OK(kvmem_transfer_submit(limited, NULL, ERR));
        EXPECT_OK(kvmem_transfer_wait(limited, KVMEM_TIMEOUT_FOREVER, ERR));
        CHECK(requests().last_poster != gettid());
    }
}

TEST(a_run_without_progress_ends_in_time) {
    const kvmem_layout_config config = many_chunks();
    OPENED(pair, pair, &config);
    OWNED(kvmem_transfer) staged = create_staged(&pair, &config, MILLISECONDS(10));
    NIXL(nixl_sim_set_pending(1));
    RUN_ENDS(KVMEM_STATUS_TIMED_OUT, "with agent 'far': nothing was moved for 10 ms", staged);
    CHECK_HAS(test_last_message(), "stall_timeout_ns");
    EXPECT(KVMEM_STATUS_BUSY, kvmem_transfer_submit(staged, NULL, ERR));
    NIXL(nixl_sim_set_pending(0));
    AWAIT(requests().alive == 0);
    CHECK_EQ(submit_when_free(staged), KVMEM_STATUS_OK);
    EXPECT_OK(kvmem_transfer_wait(staged, PATIENCE, ERR));
}

/* Of each method, a read and a write. */
static const uint32_t methods[] = {KVMEM_METHOD_NIXL, KVMEM_METHOD_NIXL, KVMEM_METHOD_NIXL_STAGED,
                                   KVMEM_METHOD_NIXL_STAGED};

/* Unlike the stall timeout, the deadline also ends a run that progresses, and one without staging memory. */
TEST(a_run_ends_at_its_deadline) {
    const kvmem_layout_config config = many_chunks();
    for (size_t i = 0; i < NUM(methods); i++) {
        OPENED(pair, pair, &config);
        OWNED(kvmem_transfer) limited = create_limited(&pair, &config, methods[i], i % 2 == 0,
                                                       MILLISECONDS(100));
        NIXL(nixl_sim_set_pending(1));
        run_late(limited);
        EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, "with agent 'far' was not complete after 100 ms",
                       kvmem_transfer_poll(limited, ERR));
        CHECK_HAS(test_last_message(), "at least 0 of ");
        CHECK_HAS(test_last_message(), "timeout_ns");
        EXPECT(KVMEM_STATUS_BUSY, kvmem_transfer_submit(limited, NULL, ERR));
        NIXL(nixl_sim_set_pending(0));
        run_in_time(limited);
    }
}

/* The agent's thread is inside NIXL at that time, and the waiting thread never is. */
TEST(a_run_ends_at_its_deadline_though_nixl_does_not_return) {
    const kvmem_layout_config config = many_chunks();
    for (size_t i = 0; i < NUM(methods); i++) {
        OPENED(pair, pair, &config);
        OWNED(kvmem_transfer) limited = create_limited(&pair, &config, methods[i], i % 2 == 0,
                                                       MILLISECONDS(100));
        NIXL(nixl_sim_hold(NIXL_SIM_POST));
        while (NIXL(nixl_sim_waiting()) == 0) { /* a run that is late before NIXL is called is not posted */
            if (kvmem_transfer_submit(limited, NULL, NULL) == KVMEM_STATUS_OK)
                EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, "with agent 'far'",
                               kvmem_transfer_wait(limited, KVMEM_TIMEOUT_FOREVER, ERR));
            sched_yield();
        }
        EXPECT(KVMEM_STATUS_BUSY, kvmem_transfer_submit(limited, NULL, ERR));
        NIXL(nixl_sim_go());
        run_in_time(limited);
    }
}

TEST(a_wait_ends_at_its_timeout_though_nixl_does_not_return) {
    OPENED(pair, pair, REF(two_requests()));
    for (int i = 0; i < 20; i++) { /* a thread that has to wake up rarely comes first */
        NIXL(nixl_sim_hold(NIXL_SIM_POST));
        EXPECT_OK(kvmem_transfer_submit(pair.transfer, NULL, ERR));
        EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(pair.transfer, MILLISECONDS(60), ERR));
        NIXL(nixl_sim_go());
        EXPECT_OK(kvmem_transfer_wait(pair.transfer, PATIENCE, ERR));
    }
}
