// SPDX-License-Identifier: Apache-2.0
// Shares between two processes over a socket of the engine: what arrives, and what fails.
#include "sample.h"
#include "wire.h"

#include <sys/un.h>

/* More file descriptors than one message carries. */
#define MANY 130
#define ONE_MESSAGE 253

enum { TAG_PLACE = 1, TAG_THERE };

static int open_socket(int kind) {
    const int opened = socket(AF_UNIX, kind | SOCK_CLOEXEC, 0);
    CHECK(opened >= 0);
    return opened;
}

static kvmem_share *receive(int socket) { return MADE(kvmem_share, kvmem_share_receive, socket, PATIENCE); }

/* Role: receives a share from the socket, and sets its mark. */
ROLE(importer) {
    OWNED(kvmem_share) share = receive(socket);
    kvmem_statistics statistics = OPTIONS(kvmem_statistics);
    EXPECT_OK(kvmem_statistics_get(&statistics, ERR));
    CHECK_EQ(statistics.mapped_bytes, 0);
    OWNED(kvmem_region) region = sample_import(share);
    EXPECT_OK(kvmem_statistics_get(&statistics, ERR));
    CHECK_EQ(statistics.mapped_bytes, region_info(region).size);
    sample_mark(region);
}

TEST(another_process_maps_a_received_share) {
    KEEPS_FILES;
    OPENED(sample, sample);
    CLEANUP(peer_finish) peer peer = peer_start("importer");
    EXPECT_OK(kvmem_share_send(sample.share, peer.socket, PATIENCE, ERR));
    sample_await_mark(&sample);
}

/* Role: receives a layout from a packet socket at the given path. */
ROLE(packet_importer) {
    message place = frame_expect(socket, TAG_PLACE);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    CHECK(place.size < sizeof(address.sun_path));
    memcpy(address.sun_path, place.data, place.size);
    free(place.data);
    CLEANUP(test_close) const int packets = open_socket(SOCK_SEQPACKET);
    CHECK_EQ(connect(packets, (struct sockaddr *)&address, sizeof(address)), 0);
    OWNED(kvmem_share) share = receive(packets);
    CHECK(share_info(share).num_fds > ONE_MESSAGE);
    OWN(kvmem_layout, layout, kvmem_share_open_layout, share, NULL);
}

TEST(more_files_than_one_message_carries_arrive_on_packets) {
    SCRATCH_FILE(path, "packets");
    CLEANUP(test_close) const int listener = bind_raw(path, SOCK_SEQPACKET);
    CHECK_EQ(listen(listener, 1), 0);
    OPENED(large_share, sample, MANY);
    CHECK(sample.num_fds > ONE_MESSAGE);
    CLEANUP(peer_finish) peer peer = peer_start("packet_importer");
    frame_send(peer.socket, TAG_PLACE, path, strlen(path) + 1);
    CLEANUP(test_close) const int packets = accept(listener, NULL, NULL);
    CHECK(packets >= 0);
    EXPECT_OK(kvmem_share_send(sample.share, packets, PATIENCE, ERR));
}

TEST(a_non_blocking_socket_stays_non_blocking) {
    OPENED(sample, sample);
    OPENED(socket_pair, ends, SOCK_STREAM | SOCK_NONBLOCK);
    kvmem_share *received = NULL;
    EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, "try again", kvmem_share_receive(ends.fds[1], 0, &received, ERR));
    CHECK(received == NULL);
    EXPECT_OK(kvmem_share_send(sample.share, ends.fds[0], PATIENCE, ERR));
    received = receive(ends.fds[1]);
    for (int i = 0; i < 2; i++) CHECK(fcntl(ends.fds[i], F_GETFL) & O_NONBLOCK);
    CHECK(fcntl(share_info(received).fds[0], F_GETFD) & FD_CLOEXEC);
    kvmem_share_destroy(received);
}

/* A buffer so small that a share is sent in parts. */
static void shrink(int socket) {
    const int least = 1;
    CHECK_EQ(setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &least, sizeof(least)), 0);
}

/* Role: sends a share that is not read, until it is killed. */
ROLE(stuck_sender) {
    large_share sample;
    large_share_open(&sample, MANY);
    shrink(socket);
    EXPECT_OK(kvmem_share_send(sample.share, socket, KVMEM_TIMEOUT_FOREVER, ERR));
    FAIL("all of it was sent");
}

TEST(a_receive_fails_if_the_sender_is_killed) {
    KEEPS_FILES;
    peer peer = peer_start("stuck_sender");
    struct pollfd begun = {.fd = peer.socket, .events = POLLIN};
    CHECK_EQ(poll(&begun, 1, PATIENCE_MS), 1);
    CLEANUP(test_close) const int socket = dup(peer.socket);
    peer_kill(&peer);
    REFUSE(KVMEM_STATUS_PEER_LOST, "", kvmem_share_receive, socket, PATIENCE);
}

/* Role: reads the beginning of a share, and no more. */
ROLE(stuck_receiver) {
    char begin[100];
    CHECK_EQ(recv(socket, begin, sizeof(begin), MSG_WAITALL), (ssize_t)sizeof(begin));
    frame_send(socket, TAG_THERE, NULL, 0);
    pause();
}

TEST(a_send_fails_if_the_receiver_is_killed) {
    OPENED(large_share, sample, MANY);
    peer peer = peer_start("stuck_receiver");
    shrink(peer.socket);
    EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, "close the socket",
                   kvmem_share_send(sample.share, peer.socket, MILLISECONDS(10), ERR));
    frame_await(peer.socket, TAG_THERE);
    CLEANUP(test_close) const int socket = dup(peer.socket);
    peer_kill(&peer);
    EXPECT(KVMEM_STATUS_PEER_LOST, kvmem_share_send(sample.share, socket, PATIENCE, ERR));
}

TEST(invalid_bytes_are_corrupt) {
    static const char rubbish[] = "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";
    const int kinds[] = {SOCK_STREAM, SOCK_SEQPACKET};
    for (size_t i = 0; i < NUM(kinds); i++) {
        OPENED(socket_pair, ends, kinds[i]);
        CHECK_EQ(write(ends.fds[0], rubbish, sizeof(rubbish)), (ssize_t)sizeof(rubbish));
        REFUSE(KVMEM_STATUS_CORRUPT, "", kvmem_share_receive, ends.fds[1], PATIENCE);
    }
}

static void expect_refused(const kvmem_share *share, int fd, const char *part) {
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, part, kvmem_share_receive, fd, PATIENCE);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, part, kvmem_share_send(share, fd, PATIENCE, ERR));
    close(fd);
}

TEST(descriptors_other_than_connected_unix_sockets_fail) {
    OPENED(sample, sample);
    int ends[2];
    CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    expect_refused(sample.share, ends[0], "is not a socket; pass");
    expect_refused(sample.share, ends[1], "is not a socket; pass");
    OPENED(socket_pair, datagrams, SOCK_DGRAM);
    expect_refused(sample.share, dup(datagrams.fds[0]), "neither SOCK_STREAM nor SOCK_SEQPACKET");
    expect_refused(sample.share, open_socket(SOCK_STREAM), "is not connected");
    const int listening = open_socket(SOCK_STREAM);
    const struct sockaddr_un unnamed = {.sun_family = AF_UNIX};
    CHECK_EQ(bind(listening, (const struct sockaddr *)&unnamed, sizeof(sa_family_t)), 0);
    CHECK_EQ(listen(listening, 1), 0);
    expect_refused(sample.share, listening, "listens");
    expect_refused(sample.share, listening, "is not open in this process"); /* closed above */
    expect_refused(sample.share, socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "is not a Unix socket");
    expect_refused(sample.share, socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "is not a Unix socket");
    expect_refused(sample.share, open("/dev/null", O_RDWR | O_CLOEXEC), "is not a socket; pass");
}

TEST(too_few_file_descriptors_name_the_limit) {
    OPENED(large_share, sample, 20);
    OPENED(socket_pair, ends, SOCK_STREAM);
    EXPECT_OK(kvmem_share_send(sample.share, ends.fds[0], PATIENCE, ERR));
    struct rlimit before;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    const size_t open = count_open_files();
    const struct rlimit small = {.rlim_cur = open + 5, .rlim_max = before.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &small), 0);
    kvmem_share *share = NULL;
    const kvmem_status status = kvmem_share_receive(ends.fds[1], PATIENCE, &share, ERR);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_MEMORY, "RLIMIT_NOFILE", status);
    CHECK_EQ(count_open_files(), open);
}
