// SPDX-License-Identifier: Apache-2.0
// An idle agent, with the stand-in for NIXL: messages are taken from NIXL, and a repeated failure is logged once.
#include "stand_in.h"

static atomic_int warnings;

static void count(uint32_t level, const char *target, const char *message, void *user_data) {
    (void)target, (void)user_data;
    warnings += level == KVMEM_LOG_WARN && strstr(message, "get the notifications of agent 'idle'") != NULL;
}

/* Only the deadline of the process limits the wait. */
static void await_polls(uint64_t count) {
    const uint64_t end = NIXL(nixl_sim_notification_polls()) + count;
    while (NIXL(nixl_sim_notification_polls()) < end) sched_yield();
}

TEST(a_repeated_failure_is_logged_once) {
    nixl_find_stand_in();
    kvmem_agent_options options = OPTIONS(kvmem_agent_options, it.flags = KVMEM_AGENT_NO_PROGRESS_THREAD,
                                          it.progress_delay_ns = 100000);
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_WARN, count, NULL, ERR));
    GET(kvmem_agent *, agent, kvmem_agent_create, "idle", &options);
    EXPECT_OK(kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
    NIXL(nixl_sim_set_notifications_fail(1));
    await_polls(20);
    NIXL(nixl_sim_set_notifications_fail(0));
    await_polls(20);
    NIXL(nixl_sim_set_notifications_fail(1)); /* after a success it counts as a new failure */
    await_polls(20);
    kvmem_agent_destroy(agent);
    /* waits until no callback is running */
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, ERR));
    CHECK_EQ(warnings, 2);
}

/* NIXL's progress thread receives messages without a limit. */
TEST(messages_are_taken_from_nixl_though_no_call_waits_for_them) {
    nixl_find_stand_in();
    OWN(kvmem_agent, agent, kvmem_agent_create, "idle", NULL);
    EXPECT_OK(kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
    await_polls(3);
}
