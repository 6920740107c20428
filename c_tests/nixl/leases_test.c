// SPDX-License-Identifier: Apache-2.0
// Leases that the owner of a served layout keeps for peers: this process is the owner, or a peer of one. Holders that end, stop, are
// late or ask for too much; owners that stop, end or free their memory.
#include "harness.h"
#include "threads.h"

#include <sched.h>

KV_PEER_ROLE

#define MINUTE SECONDS(60)

enum { BLOCKS = 7, LEASE, RENEW, END, READ, REMAINING, DONE };

/* What the holder is asked to do, and its reply. */
typedef struct order {
    uint64_t flags, duration_ns;
    uint32_t block;
    uint64_t epoch;
} order;

typedef struct reply {
    kvmem_status status;
    uint64_t remaining_ns;
} reply;

/* Reads a block of the epoch that was published. */
static kvmem_status read_block(kvmem_agent *agent, const kvmem_layout *remote, uint32_t block, uint64_t epoch) {
    OPENED(kv_side, own, REF(kv_config(&kv_kinds[0])), agent, 1);
    OWN(kvmem_transfer, transfer, kvmem_transfer_create, remote, own.layout, NULL);
    const kvmem_submit_options run = {
        .struct_size = sizeof(run), .pairs = REF(((kvmem_block_pair){block, 0})), .num_pairs = 1, .epochs = &epoch};
    kvmem_status status = kvmem_transfer_submit(transfer, &run, ERR);
    THEN(status, kvmem_transfer_wait(transfer, PATIENCE, ERR));
    return status;
}

/* Role: imports a layout, and has one lease at a time. */
ROLE(holder) {
    OWNED(kvmem_agent) agent = agent_open("holder");
    CLEANUP(message_free) message metadata = frame_expect(socket, DONE);
    CLEANUP(message_free) message descriptor = frame_expect(socket, DONE);
    agent_load(agent, &metadata);
    OWN(kvmem_layout, remote, kvmem_layout_import, agent, descriptor.data, descriptor.size);
    OWNED(kvmem_lease) lease = NULL;
    uint32_t tag = 0;
    order order;
    while (frame_next_into(socket, &tag, &order, sizeof(order))) {
        reply reply = {KVMEM_STATUS_OK, 0};
        const kvmem_lease_options options = {.struct_size = sizeof(options),
                                             .flags = order.flags,
                                             .duration_ns = order.duration_ns,
                                             .timeout_ns = PATIENCE};
        if (tag == LEASE) reply.status = kvmem_lease_create(remote, &order.block, 1, &options, &lease, ERR);
        if (tag == RENEW) reply.status = kvmem_lease_renew(lease, order.duration_ns, ERR);
        if (tag == END) DESTROYED(kvmem_lease, lease);
        if (tag == READ) reply.status = read_block(agent, remote, order.block, order.epoch);
        if (tag == REMAINING) reply.status = kvmem_lease_get_remaining(lease, &reply.remaining_ns, ERR);
        frame_send(socket, DONE, &reply, sizeof(reply));
    }
}

typedef struct fixture {
    kvmem_agent *agent;
    kv_side side;
    peer holder;
} fixture;

static void fixture_open(fixture *fixture, uint64_t max_lease_ns) {
    *fixture = (struct fixture){.agent = agent_open("owner"), .holder = peer_start("holder")};
    kv_side_open(&fixture->side, REF(kv_config(&kv_kinds[0])), fixture->agent, 1);
    EXPECT_OK(kvmem_layout_create_epochs(fixture->side.layout, NULL, ERR));
    EXPECT_OK(kvmem_layout_serve(fixture->side.layout, REF(OPTIONS(kvmem_serve_options, it.max_lease_ns = max_lease_ns)), ERR));
    CLEANUP(message_free) message metadata = agent_metadata(fixture->agent);
    CLEANUP(message_free) message descriptor = layout_descriptor(fixture->side.layout);
    frame_send(fixture->holder.socket, DONE, metadata.data, metadata.size);
    frame_send(fixture->holder.socket, DONE, descriptor.data, descriptor.size);
}

static void fixture_close(fixture *fixture) {
    if (fixture->holder.pid > 0) peer_finish(&fixture->holder);
    kv_side_close(&fixture->side);
    kvmem_agent_destroy(fixture->agent);
}

static reply ask(const fixture *fixture, uint32_t tag, order order) {
    reply reply;
    frame_send(fixture->holder.socket, tag, &order, sizeof(order));
    frame_expect_into(fixture->holder.socket, DONE, &reply, sizeof(reply));
    return reply;
}

static kvmem_status tell(const fixture *fixture, uint32_t tag, order order) { return ask(fixture, tag, order).status; }

static size_t accesses_of(const kvmem_layout *layout, kvmem_block_access found[4]) {
    const uint32_t blocks[] = {0, 1, 2, 3, 4, 5, 6};
    GET(size_t, count, kvmem_layout_get_accesses, layout, blocks, NUM(blocks), found, 4);
    return count;
}

static bool is_leased(const fixture *fixture) {
    kvmem_block_access found[4];
    return accesses_of(fixture->side.layout, found) != 0;
}

static uint64_t series_value(const char *series) {
    OWN(kvmem_blob, text, kvmem_statistics_text);
    const char *line = TEXT("\n%s ", series);
    return strtoull(strstr(kvmem_blob_data(text), line) + strlen(line), NULL, 10);
}

/* The only access, by the holder, which counts less time than the owner. */
static void expect_lease(const fixture *fixture, uint32_t block, bool writes, uint64_t max_remaining) {
    kvmem_block_access found[4];
    const reply held = ask(fixture, REMAINING, (order){0});
    CHECK_EQ(held.status, KVMEM_STATUS_OK);
    CHECK(held.remaining_ns > 0 && held.remaining_ns <= max_remaining - max_remaining / 1000);
    CHECK_EQ(accesses_of(fixture->side.layout, found), 1);
    CHECK_EQ(found[0].block, block);
    CHECK_EQ(found[0].accessor, KVMEM_ACCESSOR_LEASE);
    CHECK_EQ(found[0].reads, 1);
    CHECK_EQ(found[0].writes, writes);
    CHECK_EQ(found[0].pid, fixture->holder.pid);
    CHECK_STR(found[0].agent, "holder");
    CHECK_EQ(found[0].user_data, 0);
    CHECK(found[0].remaining_ns > max_remaining / 2 && found[0].remaining_ns <= max_remaining + MILLISECONDS(1));
}

TEST(the_owner_sees_who_has_leased_a_block_and_until_when) {
    OPENED(fixture, fixture, 60 * MINUTE);
    CHECK(!is_leased(&fixture));
    CHECK_EQ(series_value("kvmem_peer_leases"), 0);
    for (uint64_t flags = 0; flags <= KVMEM_LEASE_WRITES; flags++) {
        CHECK_EQ(tell(&fixture, LEASE, (order){.block = 3, .flags = flags, .duration_ns = 10 * MINUTE}), KVMEM_STATUS_OK);
        expect_lease(&fixture, 3, flags != 0, 10 * MINUTE);
        CHECK_EQ(series_value("kvmem_peer_leases"), 1);
        CHECK_EQ(series_value("kvmem_peer_leased_blocks"), 1);
        CHECK_EQ(tell(&fixture, RENEW, (order){.duration_ns = 4 * MINUTE}), KVMEM_STATUS_OK);
        expect_lease(&fixture, 3, flags != 0, 4 * MINUTE);
        CHECK_EQ(tell(&fixture, RENEW, (order){.duration_ns = 50 * MINUTE}), KVMEM_STATUS_OK);
        expect_lease(&fixture, 3, flags != 0, 50 * MINUTE);
        CHECK_EQ(tell(&fixture, END, (order){0}), KVMEM_STATUS_OK);
        AWAIT(!is_leased(&fixture));
        AWAIT(series_value("kvmem_peer_leases") == 0 && series_value("kvmem_peer_leased_blocks") == 0);
    }
    CHECK_EQ(tell(&fixture, LEASE, (order){.block = BLOCKS}), KVMEM_STATUS_OUT_OF_RANGE);
}

TEST(a_lease_lasts_no_longer_than_its_owner_wants) {
    OPENED(fixture, fixture, 20 * MINUTE);
    CHECK_EQ(tell(&fixture, LEASE, (order){.block = 3}), KVMEM_STATUS_OK);
    expect_lease(&fixture, 3, false, 20 * MINUTE);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(tell(&fixture, RENEW, (order){.duration_ns = i * 60 * MINUTE}), KVMEM_STATUS_OK);
        expect_lease(&fixture, 3, false, 20 * MINUTE);
    }
}

TEST(a_lease_ends_with_its_process) {
    OPENED(fixture, fixture, 0);
    CHECK_EQ(tell(&fixture, LEASE, (order){.block = 5}), KVMEM_STATUS_OK);
    peer_freeze(&fixture.holder);
    CHECK(is_leased(&fixture));
    peer_kill(&fixture.holder);
    fixture.holder.pid = 0;
    AWAIT(!is_leased(&fixture));
}

/* The last case of vllm#52234: the owner reuses the block when the lease of a reader that was stopped is over. */
TEST(a_reader_whose_lease_is_over_gets_no_other_block) {
    OPENED(fixture, fixture, 0);
    const uint32_t block = 2;
    GET(uint64_t, epoch, kvmem_layout_raise_epochs, fixture.side.layout, &block, 1);
    CHECK_EQ(tell(&fixture, LEASE, (order){.block = block}), KVMEM_STATUS_OK);
    CHECK_EQ(tell(&fixture, READ, (order){.block = block, .epoch = epoch}), KVMEM_STATUS_OK);
    CHECK_EQ(tell(&fixture, RENEW, (order){.duration_ns = MILLISECONDS(20)}), KVMEM_STATUS_OK);
    peer_freeze(&fixture.holder);
    AWAIT(!is_leased(&fixture));
    EXPECT_OK(kvmem_layout_raise_epochs(fixture.side.layout, &block, 1, NULL, ERR));
    peer_thaw(&fixture.holder);
    CHECK_EQ(tell(&fixture, READ, (order){.block = block, .epoch = epoch}), KVMEM_STATUS_STALE);
    CHECK_EQ(tell(&fixture, RENEW, (order){.duration_ns = MINUTE}), KVMEM_STATUS_STALE);
    CHECK_EQ(ask(&fixture, REMAINING, (order){0}).remaining_ns, 0);
    CHECK(!is_leased(&fixture));
}

/* An owner that cannot wait for a reader reuses the block, and the reader finds that. */
TEST(a_lease_does_not_hide_that_a_block_was_reused) {
    OPENED(fixture, fixture, 0);
    const uint32_t block = 2;
    CHECK_EQ(tell(&fixture, LEASE, (order){.block = block}), KVMEM_STATUS_OK);
    EXPECT_OK(kvmem_layout_raise_epochs(fixture.side.layout, &block, 1, NULL, ERR));
    CHECK_EQ(tell(&fixture, READ, (order){.block = block}), KVMEM_STATUS_STALE);
    CHECK(is_leased(&fixture));
}

TEST(an_owner_that_has_destroyed_the_layout_renews_no_lease) {
    OPENED(fixture, fixture, 0);
    CHECK_EQ(tell(&fixture, LEASE, (order){.block = 1}), KVMEM_STATUS_OK);
    OWN(kvmem_layout, other, kvmem_layout_build,
        REF(OPTIONS(kvmem_layout_options, it.config = &fixture.side.config, it.source = KVMEM_LAYOUT_REGIONS,
                    it.regions = fixture.side.regions, it.count = fixture.side.num_regions)));
    kvmem_block_access found[4];
    CHECK_EQ(accesses_of(other, found), 1);
    DESTROYED(kvmem_layout, fixture.side.layout);
    AWAIT(accesses_of(other, found) == 0);
    /* The holder reads the control block, which the owner keeps for it. */
    CHECK_EQ(tell(&fixture, RENEW, (order){.duration_ns = MINUTE}), KVMEM_STATUS_STALE);
    /* It asks no more: the control block is freed with the last lease. */
    CHECK_EQ(tell(&fixture, END, (order){0}), KVMEM_STATUS_OK);
    AWAIT(series_value("kvmem_peer_leases") == 0 && series_value("kvmem_staging_bytes{of=\"peer\"}") == 0);
    CHECK_EQ(tell(&fixture, LEASE, (order){.block = 1}), KVMEM_STATUS_STALE);
}

/* ---- this process is the peer ---- */

static kvmem_status lease_one(const kvmem_layout *remote, uint64_t timeout_ns, kvmem_lease **lease) {
    const kvmem_lease_options options = {.struct_size = sizeof(options), .duration_ns = 10 * MINUTE, .timeout_ns = timeout_ns};
    return kvmem_lease_create(remote, REF((uint32_t){1}), 1, &options, lease, ERR);
}

TEST(a_lease_of_an_owner_that_does_not_serve_is_unsupported) {
    CLEANUP(kv_meeting_close) kv_meeting met;
    kv_meeting_open(&met, "near", "far", REF(kv_config(&kv_kinds[0])), REF(kv_config(&kv_kinds[0])));
    kvmem_lease *lease = NULL;
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "have the owner serve the layout (kvmem_layout_serve) before it exports it",
                   lease_one(met.peer.model.layout, 0, &lease));
}

TEST(a_request_to_an_owner_that_has_stopped_ends_at_its_timeout) {
    CLEANUP(kv_meeting_close) kv_meeting met;
    kv_meeting_open_served(&met, "near", "far", REF(kv_config(&kv_kinds[0])), REF(kv_config(&kv_kinds[0])),
                           REF(OPTIONS(kvmem_serve_options, it.flags = 0)));
    OWNED(kvmem_lease) lease = NULL;
    OWNED(kvmem_lease) late = NULL;
    EXPECT_OK(lease_one(met.peer.model.layout, MILLISECONDS(300), &lease));
    peer_freeze(&met.peer.process);
    EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, "agent 'far' has not replied within 100 ms to the request for a lease",
                   lease_one(met.peer.model.layout, MILLISECONDS(100), &late));
    GET(uint64_t, before, kvmem_lease_get_remaining, lease);
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_lease_renew(lease, SECONDS(10), ERR));
    GET(uint64_t, after, kvmem_lease_get_remaining, lease);
    CHECK(after <= SECONDS(10) && before > after);
    peer_thaw(&met.peer.process);
    EXPECT_OK(lease_one(met.peer.model.layout, PATIENCE, &late));
    kv_peer_crash(&met.peer);
    EXPECT(KVMEM_STATUS_PEER_LOST, kvmem_lease_renew(lease, SECONDS(10), ERR));
    DESTROYED(kvmem_lease, late);
    EXPECT(KVMEM_STATUS_PEER_LOST, lease_one(met.peer.model.layout, PATIENCE, &late));
}

TEST(a_peer_has_at_most_its_share_of_leases) {
    enum { MOST = 256 };
    OPENED(fixture, fixture, 60 * MINUTE);
    OWNED(kvmem_agent) near = agent_open("near");
    CLEANUP(message_free) message metadata = agent_metadata(fixture.agent);
    agent_load(near, &metadata);
    OWNED(kvmem_layout) remote = layout_import(near, fixture.side.layout);
    kvmem_lease *leases[MOST], *one_more = NULL;
    for (int i = 0; i < MOST; i++) EXPECT_OK(lease_one(remote, PATIENCE, &leases[i]));
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_MEMORY, "agent 'owner' serves the layout: no space for a lease of 1 block",
                   lease_one(remote, PATIENCE, &one_more));
    CHECK_EQ(tell(&fixture, LEASE, (order){.block = 3}), KVMEM_STATUS_OK);
    for (int i = 0; i < MOST; i++) kvmem_lease_destroy(leases[i]);
    /* The messages that end them arrive in order before this request. */
    EXPECT_OK(lease_one(remote, PATIENCE, &one_more));
    kvmem_lease_destroy(one_more);
    EXPECT_OK(kvmem_lease_create(remote, REF((uint32_t){4}), 1, NULL, &one_more, ERR));
    kvmem_lease_destroy(one_more);
    AWAIT(accesses_of(fixture.side.layout, (kvmem_block_access[4]){0}) == 1);
}

/* Threads with leases of their own, and some that renew one. */
static void *lease_and_renew(void *argument) {
    const kvmem_layout *remote = argument;
    for (int turn = 0; turn < 10; turn++) {
        OWNED(kvmem_lease) lease = NULL;
        EXPECT_OK(lease_one(remote, PATIENCE, &lease));
        EXPECT_OK(kvmem_lease_renew(lease, SECONDS(40), ERR));
        GET(uint64_t, remaining, kvmem_lease_get_remaining, lease);
        CHECK(remaining > SECONDS(20) && remaining <= SECONDS(40));
    }
    return NULL;
}

TEST(threads_lease_and_renew_concurrently) {
    CLEANUP(kv_meeting_close) kv_meeting met;
    kv_meeting_open_served(&met, "near", "far", REF(kv_config(&kv_kinds[0])), REF(kv_config(&kv_kinds[0])),
                           REF(OPTIONS(kvmem_serve_options, it.flags = 0)));
    threads_run(3, lease_and_renew, met.peer.model.layout, 0);
}
