// SPDX-License-Identifier: Apache-2.0
// A log callback that calls kvmem for each message: no thread waits for another for ever.
#include "harness.h"

KV_PEER_ROLE

static const kv_move move = KV_MOVE(3, {6, 0}, {0, 5}, {1, 6});

/* What there is to ask; what is NULL is not there yet. */
typedef struct asked {
    kvmem_agent *_Atomic agent;
    kvmem_region *_Atomic region;
    kvmem_layout *_Atomic layout;
    atomic_uint messages;
    atomic_uint failures;
} asked;

/* Each may need the agent's thread, or a lock that another thread has while it waits for that. */
static void ask(uint32_t level, const char *target, const char *message, void *user_data) {
    asked *mine = user_data;
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

static void listen_to(asked *asked) { EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_TRACE, ask, asked, ERR)); }

/* All messages so far are delivered before this returns. */
static void listen_no_more(void) { EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, ERR)); }

/* The agent's thread logs that it has a backend. */
TEST(what_the_agent_says_may_be_answered_by_asking_it) {
    static asked asked;
    OWN(kvmem_agent, agent, kvmem_agent_create, "asked", NULL);
    asked.agent = agent;
    listen_to(&asked);
    EXPECT_OK(kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
    listen_no_more();
    CHECK(asked.messages > 0);
    CHECK_EQ(asked.failures, 0);
}

TEST(all_of_a_transfer_to_a_peer_may_be_asked_about) {
    static asked asked;
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    OWNED(kvmem_agent) agent = agent_open("near");
    OPENED(kv_peer, peer, "far", &config, 1);
    listen_to(&asked);
    asked.agent = agent;
    kv_peer_meet(&peer, agent);
    OPENED(kv_side, side, &config, agent, 2);
    asked.region = side.regions[0];
    asked.layout = side.layout;
    kv_run(side.layout, peer.model.layout, &move);
    kv_expect_moved(&peer.model, &side, &move);
    kv_peer_check(&peer);
    listen_no_more();
    CHECK_EQ(asked.failures, 0);
}

/* A callback that takes as long as the test likes. */
static atomic_bool is_held;
static atomic_uint held_messages;

static void hold(uint32_t level, const char *target, const char *message, void *user_data) {
    (void)level, (void)target, (void)message, (void)user_data;
    while (is_held) sched_yield();
    held_messages++;
}

/* All that has lines in the log goes on while the callback does not return: a backend, memory, a peer, blocks,
   messages. Nothing is lost. */
TEST(a_callback_that_takes_long_holds_nothing_up) {
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
        kvmem_layout_destroy(peer.model.layout);
        peer.model.layout = NULL;
    } /* the agent has ended */
    CHECK_EQ(held_messages, 0);
    kv_peer_check(&peer);
    is_held = false;
    listen_no_more();
    CHECK(held_messages > 10);
}

/* Several agents get their backends while others ask the same ones. */
static void *make_backends(void *context) {
    asked *mine = context;
    for (int i = 0; i < 4; i++) {
        OWNED(kvmem_agent) agent = NULL;
        if (kvmem_agent_create("another", NULL, &agent, NULL) != KVMEM_STATUS_OK ||
            kvmem_agent_create_backend(agent, "UCX", NULL, 0, NULL) != KVMEM_STATUS_OK) {
            mine->failures++;
        }
    }
    return NULL;
}

TEST(several_threads_may_ask_the_same) {
    static asked asked;
    OWNED(kvmem_agent) agent = agent_open("shared");
    asked.agent = agent;
    listen_to(&asked);
    threads_run(2, make_backends, &asked, 0);
    listen_no_more();
    CHECK(asked.messages > 0);
    CHECK_EQ(asked.failures, 0);
}
