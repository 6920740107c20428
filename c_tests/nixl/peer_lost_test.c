// SPDX-License-Identifier: Apache-2.0
// A peer that is killed: before a transfer, before the first contact, in the middle of many. Each ends in an
// error in time, the process lives, and other peers are served.
#include "harness.h"

/* How soon a transfer with a dead peer must have failed. A timeout is a failure of the test. */
#define SOON SECONDS(5)

KV_PEER_ROLE

static const kv_move move = KV_MOVE(3, {6, 0}, {0, 5}, {3, 3});

typedef kv_meeting fixture;
#define fixture_close kv_meeting_close

static void fixture_open(fixture *fixture) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    kv_meeting_open(fixture, "survivor", "victim", &config, &config);
}

/* The agent goes on: with another peer, bytes and notifications arrive. */
static void expect_survivor_works(fixture *fixture) {
    OPENED(kv_peer, next, "next", REF(kv_config(&kv_kinds[1])), 3);
    kv_peer_meet(&next, fixture->agent);
    kv_run(fixture->side.layout, next.model.layout, &move);
    kv_expect_moved(&next.model, &fixture->side, &move);
    kv_peer_check(&next);
    kv_peer_notify(&next, "survivor", "hello", 5);
    agent_expect_notification(fixture->agent, "next", "hello", 5);
}

static void expect_peer_lost(kvmem_status status) {
    if (status != KVMEM_STATUS_PEER_LOST)
        FAIL("expected PEER_LOST, got %s: %s", kvmem_status_name(status), test_last_message());
    CHECK_HAS(test_last_message(), "victim");
}

TEST(killed_before_a_transfer) {
    OPENED(fixture, fixture);
    kvmem_transfer *write = kv_transfer(fixture.side.layout, fixture.peer.model.layout, &move);
    kvmem_transfer *read = kv_transfer(fixture.peer.model.layout, fixture.side.layout, &move);
    EXPECT_OK(submit_and_wait(write, PATIENCE));
    kv_peer_crash(&fixture.peer);
    expect_peer_lost(submit_and_wait(write, SOON));
    expect_peer_lost(submit_and_wait(read, SOON));
    expect_peer_lost(submit_and_wait(write, SOON)); /* it stays lost */
    kvmem_transfer_destroy(write);
    kvmem_transfer_destroy(read);
    expect_survivor_works(&fixture);
}

TEST(killed_before_the_first_contact) {
    OPENED(fixture, fixture);
    kv_peer_crash(&fixture.peer);
    kvmem_transfer *transfer = NULL;
    kvmem_status status = kvmem_transfer_create(fixture.side.layout, fixture.peer.model.layout,
                                                KV_OPTIONS(&move), &transfer, ERR);
    THEN(status, submit_and_wait(transfer, SOON));
    expect_peer_lost(status);
    kvmem_transfer_destroy(transfer);
    expect_survivor_works(&fixture);
}

TEST(killed_in_the_middle_of_many) {
    OPENED(fixture, fixture);
    kvmem_layout *near = fixture.side.layout, *far = fixture.peer.model.layout;
    kvmem_transfer *const both[] = {kv_transfer(near, far, &move), kv_transfer(far, near, &move)};
    kv_peer_crash_under(&fixture.peer, both, 100, SOON);
    memcpy(fixture.side.expected, fixture.side.memory, fixture.side.size); /* whatever was read in time */
    expect_survivor_works(&fixture);
}

TEST(killed_under_many_in_a_queue) {
    OPENED(fixture, fixture);
    GET(kvmem_queue *, queue, kvmem_queue_create);
    kvmem_transfer *transfers[200];
    kvmem_transfer_options options = WITH(kv_transfer_options(&move), it.queue = queue);
    size_t submitted = 0;
    for (size_t i = 0; i < NUM(transfers); i++) {
        options.user_data = i;
        EXPECT_OK(kvmem_transfer_create(fixture.peer.model.layout, fixture.side.layout, &options,
                                        &transfers[i], ERR));
    }
    for (size_t i = 0; i < NUM(transfers); i++) {
        if (i == NUM(transfers) / 2) kv_peer_crash(&fixture.peer);
        submitted += kvmem_transfer_submit(transfers[i], ERR) == KVMEM_STATUS_OK;
    }
    size_t lost = 0;
    for (size_t taken = 0; taken < submitted; taken++) { /* none is missing, each with its own status */
        kvmem_completion completion;
        size_t count = 0;
        EXPECT_OK(kvmem_queue_wait(queue, SOON, &completion, 1, &count, ERR));
        lost += completion.status == KVMEM_STATUS_PEER_LOST;
        if (completion.status != KVMEM_STATUS_OK) CHECK_EQ(completion.status, KVMEM_STATUS_PEER_LOST);
    }
    CHECK(lost + (NUM(transfers) - submitted) > 0);
    for (size_t i = 0; i < NUM(transfers); i++) kvmem_transfer_destroy(transfers[i]);
    kvmem_queue_destroy(queue);
    memcpy(fixture.side.expected, fixture.side.memory, fixture.side.size); /* whatever was read in time */
    expect_survivor_works(&fixture);
}

TEST(a_lost_peer_is_not_notified_for_ever) {
    OPENED(fixture, fixture);
    EXPECT_OK(kvmem_agent_notify(fixture.agent, "victim", "x", 1, ERR));
    kv_peer_crash(&fixture.peer);
    const kvmem_status status = kvmem_agent_notify(fixture.agent, "victim", "y", 1, ERR);
    CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_PEER_LOST || status == KVMEM_STATUS_NIXL);
    expect_survivor_works(&fixture);
}
