// SPDX-License-Identifier: Apache-2.0
// The process forks before it calls kvmem, so each child is small and has no state of kvmem.
#include "importers.h"

enum { CROWD_ASSEMBLE = 1 };

#define READ_BYTES 4096

typedef struct importers_request {
    uint32_t count;
    uint32_t seed;
} importers_request;

/* Pipes: each child writes one byte when it is ready; the other pipe is closed when the children may end. */
typedef struct meeting {
    int arrivals[2];
    int gate[2];
} meeting;

static void open_and_read(const parcel *parcel, uint32_t seed) {
    kvmem_share *share = parcel_share(parcel);
    GET(kvmem_region *, region, kvmem_share_open_region, share, NULL);
    kvmem_share_destroy(share);
    unsigned char expected[READ_BYTES];
    kv_fill(expected, sizeof(expected), seed);
    CHECK_BYTES((const void *)(uintptr_t)region_info(region).address, expected, sizeof(expected));
}

/* The child ends with the region open, as processes do. */
static _Noreturn void run_child(const meeting *meeting, const parcel *parcel, uint32_t seed) {
    char byte = 1;
    test_leave_cases();
    close(meeting->gate[1]);
    open_and_read(parcel, seed);
    CHECK_EQ(write(meeting->arrivals[1], &byte, 1), 1);
    while (read(meeting->gate[0], &byte, 1) < 0 && errno == EINTR) {
    }
    _exit(0);
}

static void await_all(const meeting *meeting, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        struct pollfd arrived = {.fd = meeting->arrivals[0], .events = POLLIN};
        char byte;
        CHECK_EQ(poll(&arrived, 1, PATIENCE_MS), 1);
        if (read(meeting->arrivals[0], &byte, 1) != 1)
            FAIL("%u of %u children are ready, and the others have ended", i, count);
    }
}

static void end_all(meeting *meeting, const pid_t *children, uint32_t count) {
    for (uint32_t i = 1; i < count; i += 2) CHECK_EQ(kill(children[i], SIGKILL), 0);
    close(meeting->gate[1]);
    for (uint32_t i = 0; i < count; i++) {
        const int state = child_end(children[i]);
        CHECK(i % 2 == 1 ? WIFSIGNALED(state) : WIFEXITED(state) && WEXITSTATUS(state) == 0);
    }
}

void importers_role(int socket) {
    importers_request request;
    frame_expect_into(socket, CROWD_ASSEMBLE, &request, sizeof(request));
    CLEANUP(parcel_close) parcel parcel = parcel_receive(socket);
    CLEANUP(test_free) pid_t *children = test_allocate(request.count * sizeof(*children));
    meeting meeting;
    CHECK_EQ(pipe2(meeting.arrivals, O_CLOEXEC), 0);
    CHECK_EQ(pipe2(meeting.gate, O_CLOEXEC), 0);
    for (uint32_t i = 0; i < request.count; i++) {
        children[i] = fork();
        if (children[i] == 0) run_child(&meeting, &parcel, request.seed);
        if (children[i] < 0) {
            FAIL("this machine cannot run %u processes: %s", request.count, strerror(errno));
        }
    }
    close(meeting.arrivals[1]);
    await_all(&meeting, request.count);
    frame_send(socket, CROWD_ASSEMBLE, NULL, 0);
    CHECK(!frame_arrives(socket));
    end_all(&meeting, children, request.count);
}

peer importers_start(const parcel *parcel, uint32_t count, uint32_t seed) {
    const peer importers = peer_start("importers");
    const importers_request request = {count, seed};
    frame_send(importers.socket, CROWD_ASSEMBLE, &request, sizeof(request));
    parcel_send(importers.socket, parcel);
    free(frame_expect(importers.socket, CROWD_ASSEMBLE).data);
    return importers;
}

void importers_end(peer *importers) { peer_finish(importers); }
