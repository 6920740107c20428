// SPDX-License-Identifier: Apache-2.0
// Each step of the way over a socket: slow readers, peers that are killed there, and no room for files.
#include "goods.h"
#include "wire.h"

#include <sys/ioctl.h>

enum { TAG_STEP = 1, TAG_THERE };

static const int kinds[] = {SOCK_STREAM, SOCK_SEQPACKET};

static kvmem_share *receive(int socket) { return MADE(kvmem_share, kvmem_share_receive, socket, PATIENCE); }

static void open_layout(const kvmem_share *share) {
    OWN(kvmem_layout, layout, kvmem_share_open_layout, share, NULL);
}

/* More files than a message carries go over, whatever the socket, and its flags stay. */
TEST(no_flag_of_a_socket_changes) {
    KEEPS_FILES;
    OPENED(many_goods, goods, 200);
    CHECK_EQ(goods.num_fds, 400);
    for (size_t i = 0; i < NUM(kinds) * 2; i++) {
        OPENED(socket_pair, ends, kinds[i / 2] | (i % 2 == 0 ? SOCK_NONBLOCK : 0));
        const int flags = fcntl(ends.fds[0], F_GETFL);
        EXPECT_OK(kvmem_share_send(goods.share, ends.fds[0], PATIENCE, ERR));
        OWNED(kvmem_share) share = receive(ends.fds[1]);
        for (size_t end = 0; end < 2; end++) {
            CHECK_EQ(fcntl(ends.fds[end], F_GETFL), flags);
            CHECK_EQ(fcntl(ends.fds[end], F_GETFD), FD_CLOEXEC);
        }
        open_layout(share);
    }
}

/* Role: sends more than a socket holds, and says when all is sent. */
ROLE(patient_sender) {
    CLEANUP(many_goods_close) many_goods large;
    large_goods_make(&large);
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

TEST(a_slow_reader_is_waited_for) {
    CLEANUP(peer_finish) peer peer = peer_start("patient_sender");
    await_bytes(peer.socket, 100000);
    peer_freeze(&peer);
    /* What it has not sent does not come by itself. */
    kvmem_share *share = NULL;
    EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, "only a part",
                   kvmem_share_receive(peer.socket, MILLISECONDS(10), &share, ERR));
    CHECK(share == NULL);
    peer_kill(&peer);

    peer = peer_start("patient_sender");
    await_bytes(peer.socket, 100000); /* it waits for the reader now, or soon */
    share = receive(peer.socket);
    open_layout(share);
    kvmem_share_destroy(share);
    frame_await(peer.socket, TAG_THERE);
}

/* Role: receives, once it is thawed, what is cut short. */
ROLE(frozen_receiver) {
    frame_send(socket, TAG_THERE, NULL, 0);
    REFUSE(KVMEM_STATUS_PEER_LOST, "", kvmem_share_receive, socket, PATIENCE);
}

TEST(a_frozen_reader_is_given_up) {
    CLEANUP(many_goods_close) many_goods large;
    large_goods_make(&large);
    CLEANUP(peer_finish) peer peer = peer_start("frozen_receiver");
    frame_await(peer.socket, TAG_THERE);
    peer_freeze(&peer);
    EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, "close the socket",
                   kvmem_share_send(large.share, peer.socket, MILLISECONDS(10), ERR));
    shutdown(peer.socket, SHUT_WR);
    peer_thaw(&peer);
}

/* A packet goes whole or not at all. */
TEST(what_found_no_room_may_be_tried_again) {
    OPENED(goods, goods);
    OPENED(socket_pair, ends, SOCK_SEQPACKET);
    size_t sent = 0;
    while (kvmem_share_send(goods.share, ends.fds[0], 0, ERR) == KVMEM_STATUS_OK) sent++;
    CHECK_EQ(kvmem_error_status(test_last_error()), KVMEM_STATUS_TIMED_OUT);
    CHECK_HAS(test_last_message(), "try again");
    kvmem_share_destroy(receive(ends.fds[1]));
    EXPECT_OK(kvmem_share_send(goods.share, ends.fds[0], PATIENCE, ERR));
    for (size_t i = 0; i < sent; i++) {
        OWNED(kvmem_share) share = receive(ends.fds[1]);
        kvmem_region_destroy(goods_region(share));
    }
}

/* Role: sends so many bytes of a share, and so many files, as it is told, and stays. */
ROLE(part_sender) {
    size_t size = 0;
    frame_expect_into(socket, TAG_STEP, &size, sizeof(size));
    goods goods;
    goods_open(&goods);
    wire sent = wire_capture(goods.share);
    frame_send(socket, TAG_THERE, NULL, 0);
    if (size > 0) wire_send(socket, &sent, size < sent.size ? size : sent.size, sent.num_fds);
    pause();
}

TEST(a_sender_killed_at_any_step_is_lost) {
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

/* A share that is all there outlives its sender: the file descriptors hold the memory. */
TEST(a_sender_killed_after_all_is_sent_has_shared) {
    KEEPS_FILES;
    const size_t all = SIZE_MAX;
    peer peer = peer_start("part_sender");
    frame_send(peer.socket, TAG_STEP, &all, sizeof(all));
    frame_await(peer.socket, TAG_THERE);
    await_bytes(peer.socket, WIRE_HEADER + 1);
    CLEANUP(test_close) const int socket = dup(peer.socket);
    peer_kill(&peer);
    OWNED(kvmem_share) share = receive(socket);
    OWNED(kvmem_region) region = goods_region(share);
    EXPECT(KVMEM_STATUS_PEER_LOST, kvmem_region_check_owner(region, ERR));
}

/* Role: reads so many bytes as it is told, and stays. */
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

TEST(a_receiver_killed_at_any_step_is_lost) {
    static const size_t sizes[] = {0, 1, WIRE_HEADER, WIRE_HEADER + 32768, 3 * (WIRE_HEADER + 32768) + 7};
    CLEANUP(many_goods_close) many_goods large;
    large_goods_make(&large);
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

/* Role: receives, and opens if it is told to, and stays. */
ROLE(stuck_importer) {
    message asked = frame_expect(socket, TAG_STEP);
    const bool opens = asked.data[0] != 0;
    free(asked.data);
    kvmem_share *share = receive(socket);
    OWNED(kvmem_region) region = opens ? goods_region(share) : NULL;
    frame_send(socket, TAG_THERE, NULL, 0);
    pause();
}

TEST(an_importer_killed_before_or_after_it_opens_holds_nothing) {
    for (unsigned char opens = 0; opens < 2; opens++) {
        OPENED(goods, goods);
        peer peer = peer_start("stuck_importer");
        frame_send(peer.socket, TAG_STEP, &opens, 1);
        EXPECT_OK(kvmem_share_send(goods.share, peer.socket, PATIENCE, ERR));
        frame_await(peer.socket, TAG_THERE);
        CHECK_EQ(region_holders(goods.region).importers, opens);
        peer_kill(&peer);
        CHECK_EQ(region_holders(goods.region).importers, 0);
    }
}

/* Whatever the number of those that are left, it is told when they are too few, and none is kept. */
TEST(with_any_number_of_files_left_none_is_lost) {
    OPENED(many_goods, goods, 140);
    for (size_t i = 0; i < NUM(kinds); i++) {
        const size_t files = count_open_files();
        kvmem_status status = KVMEM_STATUS_OUT_OF_MEMORY;
        for (size_t left = 0; status != KVMEM_STATUS_OK; left = left < 250 ? left + 50 : left + 1) {
            KEEPS_FILES;
            CHECK(left <= goods.num_fds);
            OPENED(socket_pair, ends, kinds[i]);
            EXPECT_OK(kvmem_share_send(goods.share, ends.fds[0], PATIENCE, ERR));
            struct rlimit before;
            CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
            const struct rlimit few = {.rlim_cur = files + 2 + left, .rlim_max = before.rlim_max};
            CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
            OWNED(kvmem_share) share = NULL;
            status = kvmem_share_receive(ends.fds[1], PATIENCE, &share, ERR);
            CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
            CHECK_EQ(status, left < goods.num_fds ? KVMEM_STATUS_OUT_OF_MEMORY : KVMEM_STATUS_OK);
        }
    }
}
