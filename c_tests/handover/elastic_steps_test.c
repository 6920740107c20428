// SPDX-License-Identifier: Apache-2.0
// Elastic memory goes over a socket in several messages, and one side is killed after each of them and amid
// each: the other is told, keeps nothing of it, and hands over the next. Needs the stand-in.
#include "extents.h"
#include "stance.h"
#include "steps.h"
#include "survivor.h"

enum { TAG_STEP = 1, TAG_THERE };

static const int kinds[] = {SOCK_STREAM, SOCK_SEQPACKET};

static bool has_step(int kind, const step *step) { return kind == SOCK_STREAM || step->bytes == 0; }

/* A peer in that role, with a socket of this kind to hand over on; answers the end that stays here. */
static int start(peer *peer, const char *role, int kind, const step *step) {
    OPENED(socket_pair, ends, kind);
    *peer = peer_start(role);
    send_fd(peer->socket, ends.fds[1]);
    socket_pair_end(&ends, 1);
    frame_send(peer->socket, TAG_STEP, step, sizeof(*step));
    const int kept = ends.fds[0];
    ends.fds[0] = -1;
    return kept;
}

static int begin(int socket, step *step) {
    extents_allow_files();
    const int hand_over = receive_fd(socket);
    frame_expect_into(socket, TAG_STEP, step, sizeof(*step));
    return hand_over;
}

/* ---- the sender dies ---- */

/* Role: sends as much as it is told of what kvmem sends of elastic memory, and dies there. */
ROLE(dying_sender) {
    step step;
    const int hand_over = begin(socket, &step);
    extents extents;
    extents_make(&extents);
    wire messages[ALL];
    CHECK_EQ(wire_capture_all(extents.share, messages, ALL), ALL);
    step_send(hand_over, messages, &step);
    step_die();
}

/* Role: hands elastic memory over for as long as somebody wants it. */
ROLE(sender) {
    extents_allow_files();
    extents extents;
    extents_make(&extents);
    while (frame_comes(socket)) {
        step step;
        CLEANUP(test_close) const int hand_over = begin(socket, &step);
        EXPECT_OK(kvmem_share_send(extents.share, hand_over, PATIENCE, ERR));
    }
    extents_give_up(&extents);
}

static void take_whole(int socket, kvmem_status owner) {
    GET(kvmem_share *, share, kvmem_share_receive, socket, PATIENCE);
    OWNED(kvmem_layout) layout = extents_open(share);
    CALL(kvmem_share_destroy(share));
    CHECK_EQ(extents_check_owner(layout), owner);
}

/* The next hand-over, of a peer that lives. */
static void take_next(int kind) {
    const step none = {0};
    OPENED(socket_pair, ends, kind);
    const peer giver = peer_in_common("sender");
    send_fd(giver.socket, ends.fds[1]);
    socket_pair_end(&ends, 1);
    frame_send(giver.socket, TAG_STEP, &none, sizeof(none));
    take_whole(ends.fds[0], KVMEM_STATUS_OK);
}

static void take_step(int kind, const step *step) {
    peer peer;
    CLEANUP(test_close) const int socket = start(&peer, "dying_sender", kind, step);
    if (step->messages == ALL) {
        peer_await_kill(&peer);
        take_whole(socket, KVMEM_STATUS_PEER_LOST); /* what is all there outlives its sender */
    } else {
        REFUSE(KVMEM_STATUS_PEER_LOST, step_told(step), kvmem_share_receive, socket, PATIENCE);
        peer_await_kill(&peer);
    }
}

TEST(a_sender_killed_at_any_step_is_lost) {
    extents_allow_files();
    keep_device();
    for (size_t k = 0; k < NUM(kinds); k++) {
        take_next(kinds[k]); /* what stays for good is there now */
        for (size_t i = 0; i < NUM_STEPS; i++) {
            if (has_step(kinds[k], &steps[i])) {
                const survivor before = survivor_now();
                take_step(kinds[k], &steps[i]);
                survivor_check(&before);
                take_next(kinds[k]);
                survivor_check(&before);
            }
        }
    }
}

/* ---- the receiver dies ---- */

/* Role: reads as many messages as it is told, and dies there. */
ROLE(dying_reader) {
    step step;
    const int hand_over = begin(socket, &step);
    for (size_t i = 0; i < step.messages; i++) wire_receive(hand_over);
    step_die();
}

/* Role: receives, opens if it is told to, says so and waits to be killed. */
ROLE(doomed_receiver) {
    step step;
    const int hand_over = begin(socket, &step);
    GET(kvmem_share *, share, kvmem_share_receive, hand_over, PATIENCE);
    if (step.opens) extents_open(share);
    frame_send(socket, TAG_THERE, NULL, 0);
    pause();
}

/* Role: receives elastic memory and opens it, for as long as it comes. */
ROLE(receiver) {
    extents_allow_files();
    while (frame_comes(socket)) {
        step step;
        const int hand_over = begin(socket, &step);
        take_whole(hand_over, KVMEM_STATUS_OK);
        close(hand_over);
        frame_send(socket, TAG_THERE, NULL, 0);
    }
}

/* The next hand-over, to a peer that lives. */
static void give_next(const extents *extents, int kind) {
    const step none = {0};
    OPENED(socket_pair, ends, kind);
    const peer taker = peer_in_common("receiver");
    send_fd(taker.socket, ends.fds[1]);
    socket_pair_end(&ends, 1);
    frame_send(taker.socket, TAG_STEP, &none, sizeof(none));
    EXPECT_OK(kvmem_share_send(extents->share, ends.fds[0], PATIENCE, ERR));
    socket_pair_end(&ends, 0);
    frame_await(taker.socket, TAG_THERE);
    CHECK_EQ(extents_importers(extents), 0);
}

/* Room for one message at most, so that more than one is left when the reader dies. */
static void make_narrow(int socket, int kind) {
    const int bytes = kind == SOCK_STREAM ? 1 : 17000; /* the kernel doubles it, or takes the least it may */
    CHECK_EQ(setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
}

TEST(a_receiver_killed_after_any_message_is_told_of) {
    extents_allow_files();
    extents extents;
    extents_make(&extents);
    for (size_t k = 0; k < NUM(kinds); k++) {
        give_next(&extents, kinds[k]);
        for (size_t messages = 0; messages <= ALL; messages++) {
            const survivor before = survivor_now();
            const step step = {messages, 0, false};
            peer peer;
            const int socket = start(&peer, "dying_reader", kinds[k], &step);
            make_narrow(socket, kinds[k]);
            const kvmem_status status = kvmem_share_send(extents.share, socket, PATIENCE, ERR);
            /* What is left by then may be small enough to be in the socket, whether or not it is read. */
            const bool may_be_out = messages >= (kinds[k] == SOCK_STREAM ? ALL - 1 : 1);
            if (status != KVMEM_STATUS_OK || !may_be_out) {
                CHECK_EQ(status, KVMEM_STATUS_PEER_LOST);
                CHECK_HAS(test_last_message(), "the peer has closed the socket");
            }
            peer_await_kill(&peer);
            close(socket);
            survivor_check(&before);
            give_next(&extents, kinds[k]);
        }
    }
    extents_check_free(&extents);
    extents_give_up(&extents);
}

/* kvmem itself receives there: it has read so much when it is killed, waiting for the rest. */
static void kill_receiver_at(const extents *extents, const wire *messages, int kind, const step *step) {
    peer peer;
    const int socket = start(&peer, "doomed_receiver", kind, step);
    step_send(socket, messages, step);
    step_await_read(socket);
    if (step->messages == ALL) frame_await(peer.socket, TAG_THERE);
    CHECK_EQ(extents_importers(extents), step->opens);
    peer_kill(&peer);
    close(socket);
    CHECK_EQ(extents_importers(extents), 0);
}

TEST(what_a_receiver_had_when_it_was_killed_is_free) {
    static const step opened = {ALL, 0, true};
    extents_allow_files();
    extents extents;
    extents_make(&extents);
    wire messages[ALL];
    CHECK_EQ(wire_capture_all(extents.share, messages, ALL), ALL);
    for (size_t k = 0; k < NUM(kinds); k++) {
        give_next(&extents, kinds[k]);
        const survivor before = survivor_now();
        for (size_t i = 0; i < NUM_STEPS; i++) {
            if (has_step(kinds[k], &steps[i])) {
                kill_receiver_at(&extents, messages, kinds[k], &steps[i]);
                survivor_check(&before);
            }
        }
        kill_receiver_at(&extents, messages, kinds[k], &opened);
        survivor_check(&before);
        give_next(&extents, kinds[k]);
        survivor_check(&before);
    }
    for (size_t i = 0; i < ALL; i++) wire_close(&messages[i]);
    extents_check_free(&extents);
    extents_give_up(&extents);
}

TEST_MAIN_ONCE
