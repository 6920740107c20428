// SPDX-License-Identifier: Apache-2.0
// Each step of sending over a socket: slow readers, peers that are killed, and limits of open files.
#include "sample.h"
#include "wire.h"

#include <sys/ioctl.h>

enum { TAG_STEP = 1, TAG_THERE };

static const int kinds[] = {SOCK_STREAM, SOCK_SEQPACKET};

static kvmem_share *receive(int socket) { return MADE(kvmem_share, kvmem_share_receive, socket, PATIENCE); }

static void open_layout(const kvmem_share *share) {
    OWN(kvmem_layout, layout, kvmem_share_open_layout, share, NULL);
}

/* Sends more files than one message carries, over any type of socket. The flags of the socket stay
   unchanged. */
TEST(no_flag_of_a_socket_changes) {
    KEEPS_FILES;
    OPENED(large_share, sample, 200);
    CHECK_EQ(sample.num_fds, 400);
    for (size_t i = 0; i < NUM(kinds) * 2; i++) {
        OPENED(socket_pair, ends, kinds[i / 2] | (i % 2 == 0 ? SOCK_NONBLOCK : 0));
        const int flags = fcntl(ends.fds[0], F_GETFL);
        EXPECT_OK(kvmem_share_send(sample.share, ends.fds[0], PATIENCE, ERR));
        OWNED(kvmem_share) share = receive(ends.fds[1]);
        for (size_t end = 0; end < 2; end++) {
            CHECK_EQ(fcntl(ends.fds[end], F_GETFL), flags);
            CHECK_EQ(fcntl(ends.fds[end], F_GETFD), FD_CLOEXEC);
        }
        open_layout(share);
    }
}

/* Role: sends more than a socket buffer holds, and reports the end. */
ROLE(waiting_sender) {
    CLEANUP(large_share_close) large_share large;
    large_share_open_parts(&large);
    EXPECT_OK(kvmem_share_send(large.share, socket, PATIENCE, ERR));
    frame_send(socket, TAG_THERE, NULL, 0);
}

static void await_bytes(int socket, int count) {
    int there = 0;
    while (there < count) {
        CHECK_EQ(ioctl(socket, FIONREAD, &there), 0);
        sched_yield();
    }
}

TEST(a_sender_waits_for_a_slow_reader) {
    CLEANUP(peer_finish) peer peer = peer_start("waiting_sender");
    await_bytes(peer.socket, 100000);
    peer_freeze(&peer);
    /* Bytes that were not sent never arrive. */
    kvmem_share *share = NULL;
    EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, "only a part",
                   kvmem_share_receive(peer.socket, MILLISECONDS(10), &share, ERR));
    CHECK(share == NULL);
    peer_kill(&peer);

    peer = peer_start("waiting_sender");
    await_bytes(peer.socket, 100000); /* the sender waits for the reader now, or will soon */
    share = receive(peer.socket);
    open_layout(share);
    kvmem_share_destroy(share);
    frame_await(peer.socket, TAG_THERE);
}

/* Role: receives a truncated share after it is resumed. */
ROLE(frozen_receiver) {
    frame_send(socket, TAG_THERE, NULL, 0);
    REFUSE(KVMEM_STATUS_PEER_LOST, "", kvmem_share_receive, socket, PATIENCE);
}

TEST(sending_to_a_stopped_reader_times_out) {
    CLEANUP(large_share_close) large_share large;
    large_share_open_parts(&large);
    CLEANUP(peer_finish) peer peer = peer_start("frozen_receiver");
    frame_await(peer.socket, TAG_THERE);
    peer_freeze(&peer);
    EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, "close the socket",
                   kvmem_share_send(large.share, peer.socket, MILLISECONDS(10), ERR));
    shutdown(peer.socket, SHUT_WR);
    peer_thaw(&peer);
}

/* A packet is sent whole or not at all. */
TEST(a_send_that_did_not_fit_can_be_repeated) {
    OPENED(sample, sample);
    OPENED(socket_pair, ends, SOCK_SEQPACKET);
    size_t sent = 0;
    while (kvmem_share_send(sample.share, ends.fds[0], 0, ERR) == KVMEM_STATUS_OK) sent++;
    CHECK_EQ(kvmem_error_status(test_last_error()), KVMEM_STATUS_TIMED_OUT);
    CHECK_HAS(test_last_message(), "try again");
    kvmem_share_destroy(receive(ends.fds[1]));
    EXPECT_OK(kvmem_share_send(sample.share, ends.fds[0], PATIENCE, ERR));
    for (size_t i = 0; i < sent; i++) {
        OWNED(kvmem_share) share = receive(ends.fds[1]);
        kvmem_region_destroy(sample_import(share));
    }
}

/* Role: sends a number of bytes and files of a share, and stays connected. */
ROLE(part_sender) {
    size_t size = 0;
    frame_expect_into(socket, TAG_STEP, &size, sizeof(size));
    sample sample;
    sample_open(&sample);
    wire sent = wire_capture(sample.share);
    frame_send(socket, TAG_THERE, NULL, 0);
    if (size > 0) wire_send(socket, &sent, size < sent.size ? size : sent.size, sent.num_fds);
    pause();
}

TEST(a_receive_fails_if_the_sender_is_killed_at_any_step) {
    static const size_t sizes[] = {0, 1, 20, WIRE_HEADER, WIRE_HEADER + 1, WIRE_HEADER + 100};
    for (size_t i = 0; i < NUM(sizes); i++) {
        KEEPS_FILES;
        peer peer = peer_start("part_sender");
        frame_send(peer.socket, TAG_STEP, &sizes[i], sizeof(sizes[i]));
        frame_await(peer.socket, TAG_THERE);
        await_bytes(peer.socket, (int)sizes[i]);
        CLEANUP(test_close) const int socket = dup(peer.socket);
        peer_kill(&peer);
        REFUSE(KVMEM_STATUS_PEER_LOST, "", kvmem_share_receive, socket, PATIENCE);
    }
}

/* A complete share outlives its sender: the file descriptors hold the memory. */
TEST(a_complete_share_outlives_its_sender) {
    KEEPS_FILES;
    const size_t all = SIZE_MAX;
    peer peer = peer_start("part_sender");
    frame_send(peer.socket, TAG_STEP, &all, sizeof(all));
    frame_await(peer.socket, TAG_THERE);
    await_bytes(peer.socket, WIRE_HEADER + 1);
    CLEANUP(test_close) const int socket = dup(peer.socket);
    peer_kill(&peer);
    OWNED(kvmem_share) share = receive(socket);
    OWNED(kvmem_region) region = sample_import(share);
    EXPECT(KVMEM_STATUS_PEER_LOST, kvmem_region_check_owner(region, ERR));
}

/* Role: reads a number of bytes, and stays connected. */
ROLE(part_receiver) {
    size_t size = 0;
    frame_expect_into(socket, TAG_STEP, &size, sizeof(size));
    char bytes[4096];
    while (size > 0) {
        const ssize_t got = recv(socket, bytes, size < sizeof(bytes) ? size : sizeof(bytes), 0);
        CHECK(got > 0);
        size -= (size_t)got;
    }
    frame_send(socket, TAG_THERE, NULL, 0);
    pause();
}

TEST(a_send_fails_if_the_receiver_is_killed_at_any_step) {
    static const size_t sizes[] = {0, 1, WIRE_HEADER, WIRE_HEADER + 32768, 3 * (WIRE_HEADER + 32768) + 7};
    CLEANUP(large_share_close) large_share large;
    large_share_open_parts(&large);
    for (size_t i = 0; i < NUM(sizes); i++) {
        KEEPS_FILES;
        peer peer = peer_start("part_receiver");
        frame_send(peer.socket, TAG_STEP, &sizes[i], sizeof(sizes[i]));
        EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_share_send(large.share, peer.socket, MILLISECONDS(10), ERR));
        frame_await(peer.socket, TAG_THERE);
        CLEANUP(test_close) const int socket = dup(peer.socket);
        peer_kill(&peer);
        EXPECT(KVMEM_STATUS_PEER_LOST, kvmem_share_send(large.share, socket, PATIENCE, ERR));
    }
}

/* Role: receives, opens the share if requested, and stays connected. */
ROLE(stuck_importer) {
    message asked = frame_expect(socket, TAG_STEP);
    const bool opens = asked.data[0] != 0;
    free(asked.data);
    kvmem_share *share = receive(socket);
    OWNED(kvmem_region) region = opens ? sample_import(share) : NULL;
    frame_send(socket, TAG_THERE, NULL, 0);
    pause();
}

TEST(an_importer_killed_before_or_after_opening_is_not_counted) {
    for (unsigned char opens = 0; opens < 2; opens++) {
        OPENED(sample, sample);
        peer peer = peer_start("stuck_importer");
        frame_send(peer.socket, TAG_STEP, &opens, 1);
        EXPECT_OK(kvmem_share_send(sample.share, peer.socket, PATIENCE, ERR));
        frame_await(peer.socket, TAG_THERE);
        CHECK_EQ(region_holders(sample.region).importers, opens);
        peer_kill(&peer);
        CHECK_EQ(region_holders(sample.region).importers, 0);
    }
}

/* For each number of free file descriptors: the receiver reports that there are too few, and keeps none. */
TEST(too_few_file_descriptors_leak_none) {
    OPENED(large_share, sample, 140);
    for (size_t i = 0; i < NUM(kinds); i++) {
        const size_t files = count_open_files();
        kvmem_status status = KVMEM_STATUS_OUT_OF_MEMORY;
        for (size_t left = 0; status != KVMEM_STATUS_OK; left = left < 250 ? left + 50 : left + 1) {
            KEEPS_FILES;
            CHECK(left <= sample.num_fds);
            OPENED(socket_pair, ends, kinds[i]);
            EXPECT_OK(kvmem_share_send(sample.share, ends.fds[0], PATIENCE, ERR));
            struct rlimit before;
            CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
            const struct rlimit few = {.rlim_cur = files + 2 + left, .rlim_max = before.rlim_max};
            CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
            OWNED(kvmem_share) share = NULL;
            status = kvmem_share_receive(ends.fds[1], PATIENCE, &share, ERR);
            CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
            CHECK_EQ(status, left < sample.num_fds ? KVMEM_STATUS_OUT_OF_MEMORY : KVMEM_STATUS_OK);
        }
    }
}
