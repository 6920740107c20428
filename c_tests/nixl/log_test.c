// SPDX-License-Identifier: Apache-2.0
// A log callback that calls kvmem for each message: no thread deadlocks.
#include "harness.h"

KV_PEER_ROLE

static const kv_move move = KV_MOVE(3, {6, 0}, {0, 5}, {1, 6});

/* The objects that the callback queries; NULL: not created yet. */
typedef struct queried {
    kvmem_agent *_Atomic agent;
    kvmem_region *_Atomic region;
    kvmem_layout *_Atomic layout;
    atomic_uint messages;
    atomic_uint failures;
} queried;

/* Each call may need the agent's thread, or a lock that another thread holds while it waits for that
   thread. */
static void query_objects(uint32_t level, const char *target, const char *message, void *user_data) {
    queried *mine = user_data;
    (void)level, (void)target, (void)message;
    if (mine->agent != NULL) {
        OWNED(kvmem_blob) metadata = NULL;
        mine->failures += kvmem_agent_get_local_metadata(mine->agent, &metadata, NULL) != KVMEM_STATUS_OK;
    }
    if (mine->region != NULL) {
        kvmem_region_holders holders;
        OWNED(kvmem_registration) registration = NULL;
        mine->failures += kvmem_region_get_holders(mine->region, &holders, NULL) != KVMEM_STATUS_OK;
        const kvmem_status status = kvmem_region_register(mine->region, mine->agent, &registration, NULL);
        mine->failures += status != KVMEM_STATUS_ALREADY_EXISTS; /* its layout has registered it */
    }
    if (mine->layout != NULL) {
        OWNED(kvmem_blob) descriptor = NULL;
        mine->failures += kvmem_layout_export(mine->layout, &descriptor, NULL) != KVMEM_STATUS_OK;
    }
    mine->messages++;
}

static void listen_to(queried *queried) {
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_TRACE, query_objects, queried, ERR));
}

/* Returns once all messages so far are delivered. */
static void remove_callback(void) { EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, ERR)); }

/* The agent's thread logs that it has created a backend. */
TEST(a_callback_may_call_the_agent_that_logs) {
    static queried queried;
    OWN(kvmem_agent, agent, kvmem_agent_create, "queried", NULL);
    queried.agent = agent;
    listen_to(&queried);
    EXPECT_OK(kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
    remove_callback();
    CHECK(queried.messages > 0);
    CHECK_EQ(queried.failures, 0);
}

TEST(a_callback_may_query_a_transfer_to_a_peer) {
    static queried queried;
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    OWNED(kvmem_agent) agent = agent_open("near");
    OPENED(kv_peer, peer, "far", &config, 1);
    listen_to(&queried);
    queried.agent = agent;
    kv_peer_meet(&peer, agent);
    OPENED(kv_side, side, &config, agent, 2);
    queried.region = side.regions[0];
    queried.layout = side.layout;
    kv_run(side.layout, peer.model.layout, &move);
    kv_expect_moved(&peer.model, &side, &move);
    kv_peer_check(&peer);
    remove_callback();
    CHECK_EQ(queried.failures, 0);
}

/* A callback that blocks until the test lets it return. */
static atomic_bool is_held;
static atomic_uint held_messages;

static void hold(uint32_t level, const char *target, const char *message, void *user_data) {
    (void)level, (void)target, (void)message, (void)user_data;
    while (is_held) sched_yield();
    held_messages++;
}

/* Everything that logs works while the callback blocks: a backend, memory, a peer, blocks, messages. No
   message is lost. */
TEST(a_slow_callback_blocks_no_other_thread) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    OPENED(kv_peer, peer, "far", &config, 1);
    is_held = true;
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_DEBUG, hold, NULL, ERR));
    {
        OWNED(kvmem_agent) agent = agent_open("near");
        OPENED(kv_side, side, &config, agent, 2);
        kv_peer_meet(&peer, agent);
        kv_run(side.layout, peer.model.layout, &move);
        kv_expect_moved(&peer.model, &side, &move);
        kv_peer_notify(&peer, "near", "hello", 5);
        agent_expect_notification(agent, "far", "hello", 5);
        EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_agent_notify(agent, "stranger", "x", 1, ERR));
        DESTROYED(kvmem_layout, peer.model.layout);
    } /* the agent was destroyed */
    CHECK_EQ(held_messages, 0);
    kv_peer_check(&peer);
    is_held = false;
    remove_callback();
    CHECK(held_messages > 10);
}

/* Several agents create backends while other threads query the same agents. */
static void *create_backends(void *context) {
    queried *mine = context;
    for (int i = 0; i < 4; i++) {
        OWNED(kvmem_agent) agent = NULL;
        if (kvmem_agent_create("another", NULL, &agent, NULL) != KVMEM_STATUS_OK ||
            kvmem_agent_create_backend(agent, "UCX", NULL, 0, NULL) != KVMEM_STATUS_OK) {
            mine->failures++;
        }
    }
    return NULL;
}

TEST(several_threads_may_query_the_same_objects) {
    static queried queried;
    OWNED(kvmem_agent) agent = agent_open("shared");
    queried.agent = agent;
    listen_to(&queried);
    threads_run(2, create_backends, &queried, 0);
    remove_callback();
    CHECK(queried.messages > 0);
    CHECK_EQ(queried.failures, 0);
}
