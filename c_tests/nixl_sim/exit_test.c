// SPDX-License-Identifier: Apache-2.0
// A process that exits, with a stand-in for NIXL that has static objects like NIXL: no agent is destroyed
// during or after their destruction.
#include "stand_in.h"

static const kv_move move = KV_MOVE(3, {6, 0}, {0, 5}, {3, 3});

/* The agent waits in NIXL until the process waits for it. */
static void release_agent(uint32_t level, const char *target, const char *message, void *user_data) {
    (void)level, (void)target, (void)user_data;
    if (strstr(message, "the process waits for the end of 1 agent, then exits") != NULL) NIXL(nixl_sim_go());
}

/* A transfer in flight has the last reference to its agent, so the agent's thread destroys it. */
ROLE(exits_while_an_agent_is_destroyed) {
    (void)socket;
    nixl_find_stand_in();
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_DEBUG, release_agent, NULL, ERR));
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    static kv_side near_side, far_side;
    kvmem_agent *near = agent_open("near"), *far = agent_open("far");
    kv_side_open(&near_side, &config, near, 1);
    kv_side_open(&far_side, &config, far, 2);
    agents_introduce(near, far);
    kvmem_layout *remote = layout_import(near, far_side.layout);
    GET(kvmem_transfer *, transfer, kv_prepare, remote, near_side.layout, KV_JOB(&move));
    NIXL(nixl_sim_set_pending(1));
    EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
    kvmem_transfer_destroy(transfer);
    kvmem_layout_destroy(remote);
    kv_side_close(&near_side);
    kv_side_close(&far_side);
    kvmem_agent_destroy(far);
    kvmem_agent_destroy(near);
    NIXL(nixl_sim_hold(NIXL_SIM_DESTROY));
    NIXL(nixl_sim_set_pending(0));
    while (NIXL(nixl_sim_waiting()) == 0) sched_yield(); /* only the deadline of the process limits this */
}

#define NUM_STUCK 20

/* The first destroy call waits for 10 s, the others for a moment, and the end of the process for 10 s. */
ROLE(exits_though_nixl_never_destroys_an_agent) {
    (void)socket;
    nixl_find_stand_in();
    kvmem_agent *agents[NUM_STUCK];
    for (int i = 0; i < NUM_STUCK; i++) agents[i] = agent_open(TEXT("stuck %d", i));
    NIXL(nixl_sim_hold_forever(NIXL_SIM_DESTROY));
    for (int i = 0; i < NUM_STUCK; i++) kvmem_agent_destroy(agents[i]);
    /* the process has a deadline, which 200 s would exceed */
    while (NIXL(nixl_sim_waiting()) != NUM_STUCK) sched_yield();
}

static kvmem_agent *late;

static void destroy_late(void) { kvmem_agent_destroy(late); }

/* `exit` calls the last registered function first, so NIXL's static objects are destroyed before. */
ROLE(destroys_an_agent_at_the_very_end) {
    (void)socket;
    CHECK_EQ(atexit(destroy_late), 0);
    late = agent_open("late");
}

static void create_late(void) {
    kvmem_agent *agent = NULL;
    const kvmem_status status = kvmem_agent_create("too late", NULL, &agent, ERR);
    const kvmem_status backend = kvmem_agent_create_backend(late, "UCX", NULL, 0, NULL);
    if (status == KVMEM_STATUS_INVALID_STATE && strstr(test_last_message(), "the process exits") != NULL &&
        backend == KVMEM_STATUS_INVALID_STATE)
        return;
    fprintf(stderr, "created an agent at the end: %d, a backend: %d\n", status, backend);
    _Exit(EXIT_FAILURE);
}

ROLE(creates_an_agent_at_the_very_end) {
    (void)socket;
    CHECK_EQ(atexit(create_late), 0);
    late = MADE(kvmem_agent, kvmem_agent_create, "late", NULL);
}

static void expect_good_end(const char *role) {
    peer process = peer_start(role);
    peer_finish(&process);
}

TEST(a_process_that_exits_waits_for_agents_that_are_being_destroyed) {
    expect_good_end("exits_while_an_agent_is_destroyed");
}

TEST(a_destroy_call_and_the_end_of_a_process_return_in_time) {
    expect_good_end("exits_though_nixl_never_destroys_an_agent");
}

TEST(no_agent_is_created_after_the_end_of_the_static_objects_of_nixl) {
    expect_good_end("creates_an_agent_at_the_very_end");
}

TEST(an_agent_that_outlives_the_static_objects_of_nixl_is_not_destroyed) {
    expect_good_end("destroys_an_agent_at_the_very_end");
}
