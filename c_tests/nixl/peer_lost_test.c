// SPDX-License-Identifier: Apache-2.0
// A peer that is killed: before a transfer, before the first contact, during many transfers. Each ends with
// an error in time, the process survives, and other peers are served.
#include "harness.h"

#include <fcntl.h>
#include <sched.h>

/* A transfer with a dead peer must fail within this time. A timeout fails the test. */

KV_PEER_ROLE

static const kv_move move = KV_MOVE(3, {6, 0}, {0, 5}, {3, 3});

typedef kv_meeting fixture;
#define fixture_close kv_meeting_close

static void fixture_open(fixture *fixture) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    kv_meeting_open(fixture, "survivor", "victim", &config, &config);
}

/* The agent still works: bytes and notifications of another peer arrive. */
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
    expect_peer_lost(submit_and_wait(write, PATIENCE));
    expect_peer_lost(submit_and_wait(read, PATIENCE));
    expect_peer_lost(submit_and_wait(write, PATIENCE)); /* it stays lost */
    kvmem_transfer_destroy(write);
    kvmem_transfer_destroy(read);
    expect_survivor_works(&fixture);
}

TEST(killed_before_the_first_contact) {
    OPENED(fixture, fixture);
    kv_peer_crash(&fixture.peer);
    kvmem_transfer *transfer = NULL;
    kvmem_status status = kv_prepare(fixture.side.layout, fixture.peer.model.layout,
                                                KV_JOB(&move), &transfer, ERR);
    THEN(status, submit_and_wait(transfer, PATIENCE));
    expect_peer_lost(status);
    kvmem_transfer_destroy(transfer);
    expect_survivor_works(&fixture);
}

TEST(killed_during_many_transfers) {
    OPENED(fixture, fixture);
    kvmem_layout *near = fixture.side.layout, *far = fixture.peer.model.layout;
    kvmem_transfer *const both[] = {kv_transfer(near, far, &move), kv_transfer(far, near, &move)};
    kv_peer_crash_under(&fixture.peer, both, 100, PATIENCE);
    memcpy(fixture.side.expected, fixture.side.memory, fixture.side.size); /* any part may have been read */
    expect_survivor_works(&fixture);
}

TEST(killed_during_many_transfers_with_a_queue) {
    OPENED(fixture, fixture);
    GET(kvmem_queue *, queue, kvmem_queue_create);
    kvmem_transfer *transfers[200];
    kv_job options = WITH(kv_job_of(&move), it.transfer.queue = queue);
    size_t submitted = 0;
    for (size_t i = 0; i < NUM(transfers); i++) {
        options.run.user_data = i;
        EXPECT_OK(kv_prepare(fixture.peer.model.layout, fixture.side.layout, &options,
                                        &transfers[i], ERR));
    }
    for (size_t i = 0; i < NUM(transfers); i++) {
        if (i == NUM(transfers) / 2) kv_peer_crash(&fixture.peer);
        submitted += kvmem_transfer_submit(transfers[i], NULL, ERR) == KVMEM_STATUS_OK;
    }
    size_t lost = 0;
    for (size_t taken = 0; taken < submitted; taken++) { /* each has one completion with its own status */
        kvmem_completion completion;
        GET(size_t, count, kvmem_queue_wait, queue, PATIENCE, &completion, 1);
        lost += completion.status == KVMEM_STATUS_PEER_LOST;
        if (completion.status != KVMEM_STATUS_OK) CHECK_EQ(completion.status, KVMEM_STATUS_PEER_LOST);
    }
    CHECK(lost + (NUM(transfers) - submitted) > 0);
    for (size_t i = 0; i < NUM(transfers); i++) kvmem_transfer_destroy(transfers[i]);
    kvmem_queue_destroy(queue);
    memcpy(fixture.side.expected, fixture.side.memory, fixture.side.size); /* any part may have been read */
    expect_survivor_works(&fixture);
}

TEST(notifying_a_lost_peer_fails_in_time) {
    OPENED(fixture, fixture);
    EXPECT_OK(kvmem_agent_notify(fixture.agent, "victim", "x", 1, ERR));
    kv_peer_crash(&fixture.peer);
    const kvmem_status status = kvmem_agent_notify(fixture.agent, "victim", "y", 1, ERR);
    CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_PEER_LOST || status == KVMEM_STATUS_NIXL);
    expect_survivor_works(&fixture);
}

/* As in another container. Its end is not visible here, but that of the connection is. */
TEST(a_killed_peer_in_another_pid_namespace_is_lost) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OWNED(kvmem_agent) agent = agent_open("survivor");
    OPENED(kv_side, side, &config, agent, 1);
    const int own = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    CHECK(own >= 0);
    if (unshare(CLONE_NEWPID) != 0) FAIL("this machine allows no PID namespace: %s", strerror(errno));
    OPENED(kv_peer, victim, "victim", &config, 2);
    CHECK_EQ(setns(own, CLONE_NEWPID), 0);
    close(own);
    kv_peer_meet(&victim, agent);
    OWNED(kvmem_transfer) read = kv_transfer(victim.model.layout, side.layout, &move);
    EXPECT_OK(submit_and_wait(read, PATIENCE));
    kv_peer_crash(&victim);
    for (int i = 0; i < 2; i++) {
        expect_peer_lost(submit_and_wait(read, PATIENCE));
        CHECK_HAS(test_last_message(), "another machine, or in another PID namespace");
    }
}
