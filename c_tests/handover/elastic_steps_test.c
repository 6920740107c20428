// SPDX-License-Identifier: Apache-2.0
// Elastic memory is sent over a socket in several messages. One side is killed after and within each message:
// the other side gets an error, leaks nothing, and completes the next transfer. Needs the stand-in driver.
#include "extents.h"
#include "caller_context.h"
#include "steps.h"
#include "survivor.h"

enum { TAG_STEP = 1, TAG_READY };

static const int kinds[] = {SOCK_STREAM, SOCK_SEQPACKET};

static bool has_step(int kind, const step *step) { return kind == SOCK_STREAM || step->bytes == 0; }

/* Starts a peer in this role with one end of a new socket pair of this type. Returns the other end. */
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
    const int transport = receive_fd(socket);
    frame_expect_into(socket, TAG_STEP, step, sizeof(*step));
    return transport;
}

/* ---- the sender is killed ---- */

/* Role: sends the messages of elastic memory up to a step, and dies. */
ROLE(dying_sender) {
    step step;
    const int transport = begin(socket, &step);
    extents extents;
    extents_open(&extents);
    wire messages[ALL];
    CHECK_EQ(wire_capture_all(extents.share, messages, ALL), ALL);
    step_send(transport, messages, &step);
    step_die();
}

/* Role: sends elastic memory once per task. */
ROLE(sender) {
    extents_allow_files();
    extents extents;
    extents_open(&extents);
    while (frame_arrives(socket)) {
        step step;
        CLEANUP(test_close) const int transport = begin(socket, &step);
        EXPECT_OK(kvmem_share_send(extents.share, transport, PATIENCE, ERR));
    }
    extents_close(&extents);
}

static void receive_whole(int socket, kvmem_status owner) {
    GET(kvmem_share *, share, kvmem_share_receive, socket, PATIENCE);
    OWNED(kvmem_layout) layout = extents_import(share);
    CALL(kvmem_share_destroy(share));
    CHECK_EQ(extents_check_owner(layout), owner);
}

/* Receives a whole share from a live peer. */
static void receive_from_live_peer(int kind) {
    const step none = {0};
    OPENED(socket_pair, ends, kind);
    const peer sender = peer_shared("sender");
    send_fd(sender.socket, ends.fds[1]);
    socket_pair_end(&ends, 1);
    frame_send(sender.socket, TAG_STEP, &none, sizeof(none));
    receive_whole(ends.fds[0], KVMEM_STATUS_OK);
}

static void receive_from_killed_sender(int kind, const step *step) {
    peer peer;
    CLEANUP(test_close) const int socket = start(&peer, "dying_sender", kind, step);
    if (step->messages == ALL) {
        peer_await_kill(&peer);
        receive_whole(socket, KVMEM_STATUS_PEER_LOST); /* a complete share outlives its sender */
    } else {
        REFUSE(KVMEM_STATUS_PEER_LOST, step_error(step), kvmem_share_receive, socket, PATIENCE);
        peer_await_kill(&peer);
    }
}

TEST(a_receive_fails_if_the_sender_is_killed_at_any_step) {
    extents_allow_files();
    keep_device();
    for (size_t k = 0; k < NUM(kinds); k++) {
        receive_from_live_peer(kinds[k]); /* warm-up: creates per-process state */
        for (size_t i = 0; i < NUM_STEPS; i++) {
            if (has_step(kinds[k], &steps[i])) {
                const survivor before = survivor_now();
                receive_from_killed_sender(kinds[k], &steps[i]);
                survivor_check(&before);
                receive_from_live_peer(kinds[k]);
                survivor_check(&before);
            }
        }
    }
}

/* ---- the receiver is killed ---- */

/* Role: reads some messages, and dies. */
ROLE(dying_reader) {
    step step;
    const int transport = begin(socket, &step);
    for (size_t i = 0; i < step.messages; i++) wire_receive(transport);
    step_die();
}

/* Role: receives a share, opens it if the step says so, reports that and waits to be killed. */
ROLE(importing_receiver) {
    step step;
    const int transport = begin(socket, &step);
    GET(kvmem_share *, share, kvmem_share_receive, transport, PATIENCE);
    if (step.opens) extents_import(share);
    frame_send(socket, TAG_READY, NULL, 0);
    pause();
}

/* Role: receives elastic memory and opens it, once per task. */
ROLE(receiver) {
    extents_allow_files();
    while (frame_arrives(socket)) {
        step step;
        const int transport = begin(socket, &step);
        receive_whole(transport, KVMEM_STATUS_OK);
        close(transport);
        frame_send(socket, TAG_READY, NULL, 0);
    }
}

/* Sends a whole share to a live peer. */
static void send_to_live_peer(const extents *extents, int kind) {
    const step none = {0};
    OPENED(socket_pair, ends, kind);
    const peer receiver = peer_shared("receiver");
    send_fd(receiver.socket, ends.fds[1]);
    socket_pair_end(&ends, 1);
    frame_send(receiver.socket, TAG_STEP, &none, sizeof(none));
    EXPECT_OK(kvmem_share_send(extents->share, ends.fds[0], PATIENCE, ERR));
    socket_pair_end(&ends, 0);
    frame_await(receiver.socket, TAG_READY);
    CHECK_EQ(extents_importers(extents), 0);
}

/* The socket holds one message at most, so more than one remains unsent when the reader dies. */
static void shrink_buffer(int socket, int kind) {
    const int bytes = kind == SOCK_STREAM ? 1 : 17000; /* the kernel doubles the value, or uses its minimum */
    CHECK_EQ(setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
}

TEST(a_send_fails_if_the_receiver_is_killed_after_any_message) {
    extents_allow_files();
    extents extents;
    extents_open(&extents);
    for (size_t k = 0; k < NUM(kinds); k++) {
        send_to_live_peer(&extents, kinds[k]);
        for (size_t messages = 0; messages <= ALL; messages++) {
            const survivor before = survivor_now();
            const step step = {messages, 0, false};
            peer peer;
            const int socket = start(&peer, "dying_reader", kinds[k], &step);
            shrink_buffer(socket, kinds[k]);
            const kvmem_status status = kvmem_share_send(extents.share, socket, PATIENCE, ERR);
            /* The last messages may fit in the socket's buffer, whether or not they are read. */
            const bool may_be_sent = messages >= (kinds[k] == SOCK_STREAM ? ALL - 1 : 1);
            if (status != KVMEM_STATUS_OK || !may_be_sent) {
                CHECK_EQ(status, KVMEM_STATUS_PEER_LOST);
                CHECK_HAS(test_last_message(), "the peer has closed the socket");
            }
            peer_await_kill(&peer);
            close(socket);
            survivor_check(&before);
            send_to_live_peer(&extents, kinds[k]);
        }
    }
    extents_check_free(&extents);
    extents_close(&extents);
}

/* The peer runs kvmem_share_receive. It has read `step` of the messages, and waits for the rest, when it is
   killed. */
static void kill_receiver_at(const extents *extents, const wire *messages, int kind, const step *step) {
    peer peer;
    const int socket = start(&peer, "importing_receiver", kind, step);
    step_send(socket, messages, step);
    step_await_read(socket);
    if (step->messages == ALL) frame_await(peer.socket, TAG_READY);
    CHECK_EQ(extents_importers(extents), step->opens);
    peer_kill(&peer);
    close(socket);
    CHECK_EQ(extents_importers(extents), 0);
}

TEST(the_imports_of_a_killed_receiver_are_released) {
    static const step opened = {ALL, 0, true};
    extents_allow_files();
    extents extents;
    extents_open(&extents);
    wire messages[ALL];
    CHECK_EQ(wire_capture_all(extents.share, messages, ALL), ALL);
    for (size_t k = 0; k < NUM(kinds); k++) {
        send_to_live_peer(&extents, kinds[k]);
        const survivor before = survivor_now();
        for (size_t i = 0; i < NUM_STEPS; i++) {
            if (has_step(kinds[k], &steps[i])) {
                kill_receiver_at(&extents, messages, kinds[k], &steps[i]);
                survivor_check(&before);
            }
        }
        kill_receiver_at(&extents, messages, kinds[k], &opened);
        survivor_check(&before);
        send_to_live_peer(&extents, kinds[k]);
        survivor_check(&before);
    }
    for (size_t i = 0; i < ALL; i++) wire_close(&messages[i]);
    extents_check_free(&extents);
    extents_close(&extents);
}

TEST_MAIN_ONCE
