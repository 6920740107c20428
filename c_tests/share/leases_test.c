// SPDX-License-Identifier: Apache-2.0
// Leases of blocks that are mapped from their owner, this process, in another process, which ends, stops, forks or is late.
#include "opened.h"
#include "threads.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#define NUM_BLOCKS 8
#define MILLISECOND UINT64_C(1000000)
#define MINUTE (60000 * MILLISECOND)

enum { LEASE = 1, RENEW, END, READ, FORK, DONE };

/* What the reader is asked to do, and its reply. */
typedef struct order {
    uint64_t flags, duration_ns;
    uint32_t block;
    uint64_t epoch;
} order;

static kvmem_layout *build(uint64_t flags) {
    const kvmem_layout_config config =
        OPTIONS(kvmem_layout_config, it.num_blocks = NUM_BLOCKS, it.num_layers = 2, it.outer_dim = 2, it.page_size = 4,
                it.num_heads = 2, it.inner_dim = 64, it.dtype_width = 2, it.order = "L/OBNHC");
    kvmem_layout_options options =
        OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_ALLOCATE);
#ifdef KVMEM_TEST_SHARE_GPU
    const kvmem_device_options device = {.struct_size = sizeof(device)};
    (void)flags;
    options.device = &device;
#else
    const kvmem_system_options system = {.struct_size = sizeof(system), .flags = flags};
    options.system = &system;
#endif
    return MADE(kvmem_layout, kvmem_layout_build, &options);
}

/* Reads a block of the epoch that was published. */
static kvmem_status read_block(const kvmem_layout *mapped, uint32_t block, uint64_t epoch) {
    OWNED(kvmem_layout) own = build(0);
    OWN(kvmem_transfer, transfer, kvmem_transfer_create, mapped, own, NULL);
    const kvmem_submit_options run = {
        .struct_size = sizeof(run), .pairs = REF(((kvmem_block_pair){block, 0})), .num_pairs = 1, .epochs = &epoch};
    kvmem_status status = kvmem_transfer_submit(transfer, &run, ERR);
    THEN(status, kvmem_transfer_wait(transfer, PATIENCE, ERR));
    return status;
}

/* A child that lives until the test closes its end of the socket. */
static void fork_child(int socket) {
    int ready[2];
    char byte = 0;
    CHECK_EQ(pipe2(ready, O_CLOEXEC), 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct pollfd closed = {.fd = socket};
        if (write(ready[1], &byte, 1) != 1) _exit(1);
        while (poll(&closed, 1, -1) < 0) {}
        _exit(0);
    }
    CHECK_EQ(read(ready[0], &byte, 1), 1); /* its handlers of fork have run */
    close(ready[0]);
    close(ready[1]);
}

/* Role: opens a layout, and has one lease at a time. */
ROLE(reader) {
    CLEANUP(parcel_close) parcel shared = parcel_receive(socket);
    OWNED(kvmem_layout) mapped = open_layout(&shared, 0, NULL);
    OWNED(kvmem_lease) lease = NULL;
    uint32_t tag = 0;
    order order;
    while (frame_next_into(socket, &tag, &order, sizeof(order))) {
        kvmem_status status = KVMEM_STATUS_OK;
        const kvmem_lease_options options = {
            .struct_size = sizeof(options), .flags = order.flags, .duration_ns = order.duration_ns};
        if (tag == LEASE) status = kvmem_lease_create(mapped, &order.block, 1, &options, &lease, ERR);
        if (tag == RENEW) status = kvmem_lease_renew(lease, order.duration_ns, ERR);
        if (tag == END) DESTROYED(kvmem_lease, lease);
        if (tag == READ) status = read_block(mapped, order.block, order.epoch);
        if (tag == FORK) fork_child(socket);
        frame_send(socket, DONE, &status, sizeof(status));
    }
}

typedef struct fixture {
    kvmem_layout *layout;
    kvmem_share *share;
    peer reader;
} fixture;

static void fixture_open(fixture *fixture, uint64_t flags) {
    *fixture = (struct fixture){.layout = build(KVMEM_SYSTEM_SHAREABLE), .reader = peer_start("reader")};
    EXPECT_OK(kvmem_layout_create_epochs(fixture->layout, NULL, ERR));
    fixture->share = MADE(kvmem_share, kvmem_share_create_layout, fixture->layout,
                          REF(OPTIONS(kvmem_share_options, it.flags = flags)));
    CLEANUP(parcel_close) parcel shared = parcel_of(fixture->share);
    parcel_send(fixture->reader.socket, &shared);
}

static void fixture_close(fixture *fixture) {
    if (fixture->reader.pid > 0) peer_finish(&fixture->reader);
    kvmem_share_destroy(fixture->share);
    kvmem_layout_destroy(fixture->layout);
}

static kvmem_status tell(const fixture *fixture, uint32_t tag, order order) {
    kvmem_status status = KVMEM_STATUS_OK;
    frame_send(fixture->reader.socket, tag, &order, sizeof(order));
    frame_expect_into(fixture->reader.socket, DONE, &status, sizeof(status));
    return status;
}

static size_t accesses_of(const kvmem_layout *layout, kvmem_block_access found[4]) {
    const uint32_t blocks[] = {0, 1, 2, 3, 4, 5, 6, 7};
    GET(size_t, count, kvmem_layout_get_accesses, layout, blocks, NUM(blocks), found, 4);
    return count;
}

/* The only access, by the reader. */
static void expect_lease(const fixture *fixture, uint32_t block, bool writes, uint64_t max_remaining) {
    kvmem_block_access found[4];
    CHECK_EQ(accesses_of(fixture->layout, found), 1);
    CHECK_EQ(found[0].block, block);
    CHECK_EQ(found[0].accessor, KVMEM_ACCESSOR_LEASE);
    CHECK_EQ(found[0].reads, 1);
    CHECK_EQ(found[0].writes, writes);
    CHECK_EQ(found[0].pid, fixture->reader.pid);
    CHECK(found[0].user_data == 0 && found[0].reserved == 0 && found[0].agent[0] == 0);
    if (max_remaining == UINT64_MAX) CHECK_EQ(found[0].remaining_ns, UINT64_MAX);
    else CHECK(found[0].remaining_ns > 0 && found[0].remaining_ns <= max_remaining + MILLISECOND);
}

static bool is_leased(const fixture *fixture) {
    kvmem_block_access found[4];
    return accesses_of(fixture->layout, found) != 0;
}

TEST(the_owner_sees_who_has_leased_a_block_and_until_when) {
    OPENED(fixture, fixture, 0);
    CHECK(!is_leased(&fixture));
    for (uint64_t flags = 0; flags <= KVMEM_LEASE_WRITES; flags++) {
        CHECK_EQ(tell(&fixture, LEASE, (order){.block = 3, .flags = flags, .duration_ns = MINUTE}), KVMEM_STATUS_OK);
        expect_lease(&fixture, 3, flags != 0, MINUTE);
        CHECK_EQ(tell(&fixture, RENEW, (order){0}), KVMEM_STATUS_OK);
        expect_lease(&fixture, 3, flags != 0, UINT64_MAX);
        CHECK_EQ(tell(&fixture, RENEW, (order){.duration_ns = 2 * MINUTE}), KVMEM_STATUS_OK);
        expect_lease(&fixture, 3, flags != 0, 2 * MINUTE);
        CHECK_EQ(tell(&fixture, END, (order){0}), KVMEM_STATUS_OK);
        CHECK(!is_leased(&fixture));
    }
    CHECK_EQ(tell(&fixture, LEASE, (order){.block = NUM_BLOCKS}), KVMEM_STATUS_OUT_OF_RANGE);
}

TEST(memory_that_is_shared_for_reading_is_leased_for_reading) {
    OPENED(fixture, fixture, KVMEM_SHARE_READ_ONLY);
    CHECK_EQ(tell(&fixture, LEASE, (order){.block = 3, .flags = KVMEM_LEASE_WRITES}), KVMEM_STATUS_PERMISSION_DENIED);
    CHECK(!is_leased(&fixture));
    CHECK_EQ(tell(&fixture, LEASE, (order){.block = 3}), KVMEM_STATUS_OK);
    expect_lease(&fixture, 3, false, UINT64_MAX);
}

TEST(a_lease_ends_with_its_process) {
    OPENED(fixture, fixture, 0);
    CHECK_EQ(tell(&fixture, LEASE, (order){.block = 5}), KVMEM_STATUS_OK);
    peer_freeze(&fixture.reader);
    expect_lease(&fixture, 5, false, UINT64_MAX);
    peer_kill(&fixture.reader);
    fixture.reader.pid = 0;
    CHECK(!is_leased(&fixture));
}

TEST(a_forked_child_does_not_keep_a_lease) {
    OPENED(fixture, fixture, 0);
    CHECK_EQ(tell(&fixture, LEASE, (order){.block = 5}), KVMEM_STATUS_OK);
    CHECK_EQ(tell(&fixture, FORK, (order){0}), KVMEM_STATUS_OK);
    expect_lease(&fixture, 5, false, UINT64_MAX);
    const int end_of_child = fcntl(fixture.reader.socket, F_DUPFD_CLOEXEC, 0);
    CHECK(end_of_child >= 0);
    peer_kill(&fixture.reader);
    fixture.reader.pid = 0;
    CHECK(!is_leased(&fixture));
    close(end_of_child);
}

/* The last case of vllm#52234: the owner reuses the block when the lease of a reader that was stopped is over. */
TEST(a_reader_whose_lease_is_over_gets_no_other_block) {
    OPENED(fixture, fixture, 0);
    const uint32_t block = 2;
    GET(uint64_t, epoch, kvmem_layout_raise_epochs, fixture.layout, &block, 1);
    CHECK_EQ(tell(&fixture, LEASE, (order){.block = block, .duration_ns = MINUTE}), KVMEM_STATUS_OK);
    CHECK_EQ(tell(&fixture, READ, (order){.block = block, .epoch = epoch}), KVMEM_STATUS_OK);
    CHECK_EQ(tell(&fixture, RENEW, (order){.duration_ns = 20 * MILLISECOND}), KVMEM_STATUS_OK);
    peer_freeze(&fixture.reader);
    AWAIT(!is_leased(&fixture));
    EXPECT_OK(kvmem_layout_raise_epochs(fixture.layout, &block, 1, NULL, ERR));
    peer_thaw(&fixture.reader);
    CHECK_EQ(tell(&fixture, READ, (order){.block = block, .epoch = epoch}), KVMEM_STATUS_STALE);
    CHECK_EQ(tell(&fixture, RENEW, (order){.duration_ns = MINUTE}), KVMEM_STATUS_STALE);
    CHECK(!is_leased(&fixture));
}

/* An owner that cannot wait for a reader reuses the block, and the reader finds that. */
TEST(a_lease_does_not_hide_that_a_block_was_reused) {
    OPENED(fixture, fixture, 0);
    const uint32_t block = 2;
    CHECK_EQ(tell(&fixture, LEASE, (order){.block = block}), KVMEM_STATUS_OK);
    EXPECT_OK(kvmem_layout_raise_epochs(fixture.layout, &block, 1, NULL, ERR));
    CHECK_EQ(tell(&fixture, READ, (order){.block = block}), KVMEM_STATUS_STALE);
    expect_lease(&fixture, block, false, UINT64_MAX);
}

TEST(an_owner_that_has_freed_its_memory_grants_no_lease) {
    OPENED(fixture, fixture, 0);
    CHECK_EQ(tell(&fixture, LEASE, (order){.block = 1, .duration_ns = MINUTE}), KVMEM_STATUS_OK);
    DESTROYED(kvmem_share, fixture.share);
    DESTROYED(kvmem_layout, fixture.layout);
    CHECK_EQ(tell(&fixture, RENEW, (order){.duration_ns = MINUTE}), KVMEM_STATUS_PEER_LOST);
    CHECK_EQ(tell(&fixture, END, (order){0}), KVMEM_STATUS_OK);
    CHECK_EQ(tell(&fixture, LEASE, (order){.block = 1}), KVMEM_STATUS_PEER_LOST);
}

/* ---- Many processes ---- */

#define MANY_BLOCKS 1024
#define MANY_LEASES 250

static kvmem_layout *build_many(void) {
    const kvmem_layout_config config =
        OPTIONS(kvmem_layout_config, it.num_blocks = MANY_BLOCKS, it.num_layers = 4, it.outer_dim = 1, it.page_size = 4,
                it.num_heads = 2, it.inner_dim = 64, it.dtype_width = 2, it.order = "LBONHC");
    const kvmem_system_options system = OPTIONS(kvmem_system_options, it.flags = KVMEM_SYSTEM_SHAREABLE);
    return MADE(kvmem_layout, kvmem_layout_build,
                REF(OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_ALLOCATE, it.system = &system)));
}

/* Role: leases each fourth block, four ranges of bytes, until its end of the socket is closed. */
ROLE(crowd) {
    static kvmem_lease *leases[MANY_LEASES];
    CLEANUP(parcel_close) parcel shared = parcel_receive(socket);
    OWNED(kvmem_layout) mapped = open_layout(&shared, 0, NULL);
    uint32_t tag = 0, first = 0;
    while (frame_next_into(socket, &tag, &first, sizeof(first))) {
        for (uint32_t i = 0; i < MANY_LEASES; i++) {
            const uint32_t block = first + 4 * i;
            EXPECT_OK(kvmem_lease_create(mapped, &block, 1, REF(OPTIONS(kvmem_lease_options, it.duration_ns = 10 * MINUTE)), &leases[i], ERR));
        }
        frame_send(socket, DONE, NULL, 0);
    }
    for (uint32_t i = 0; i < MANY_LEASES; i++) kvmem_lease_destroy(leases[i]);
}

/* Each process is within its limits: the owner learns of each of its blocks who has it, and not that all of them may be leased. */
TEST(leases_of_many_processes_are_told_apart) {
    OWNED(kvmem_layout) layout = build_many();
    OWN(kvmem_share, share, kvmem_share_create_layout, layout, NULL);
    peer crowd[4];
    for (uint32_t i = 0; i < NUM(crowd); i++) {
        crowd[i] = peer_start("crowd");
        CLEANUP(parcel_close) parcel shared = parcel_of(share);
        parcel_send(crowd[i].socket, &shared);
        frame_send(crowd[i].socket, LEASE, &i, sizeof(i));
    }
    for (uint32_t i = 0; i < NUM(crowd); i++) {
        CLEANUP(message_free) message done = frame_expect(crowd[i].socket, DONE);
    }
    const uint32_t blocks[] = {3, 2, 498, 499, 500, 501, 4 * MANY_LEASES - 1, 4 * MANY_LEASES, MANY_BLOCKS - 1};
    kvmem_block_access found[NUM(blocks)];
    GET(size_t, count, kvmem_layout_get_accesses, layout, blocks, NUM(blocks), found, NUM(found));
    static const uint32_t leased[] = {2, 3, 498, 499, 500, 501, 4 * MANY_LEASES - 1};
    CHECK_EQ(count, NUM(leased));
    for (size_t i = 0; i < NUM(leased); i++) {
        CHECK_EQ(found[i].block, leased[i]);
        CHECK_EQ(found[i].pid, crowd[leased[i] % 4].pid);
        CHECK(found[i].remaining_ns > 9 * MINUTE && found[i].remaining_ns <= 10 * MINUTE + MILLISECOND);
    }
    for (uint32_t i = 0; i < NUM(crowd); i++) peer_finish(&crowd[i]);
    EXPECT_OK(kvmem_layout_get_accesses(layout, blocks, NUM(blocks), NULL, 0, &count, ERR));
    CHECK_EQ(count, 0);
}

/* ---- Threads ---- */

typedef struct user {
    kvmem_layout *layout;
    uint32_t block;
} user;

/* Leases a block of its own, again and again, and finds its leases, and no others of it. */
static void *lease_and_ask(void *argument) {
    const user *user = argument;
    for (int turn = 0; turn < 200; turn++) {
        size_t count = 0;
        OWN(kvmem_lease, one, kvmem_lease_create, user->layout, &user->block, 1, NULL);
        OWN(kvmem_lease, other, kvmem_lease_create, user->layout, &user->block, 1,
            REF(OPTIONS(kvmem_lease_options, it.duration_ns = MINUTE, it.flags = KVMEM_LEASE_WRITES)));
        EXPECT_OK(kvmem_lease_renew(one, MINUTE, ERR));
        EXPECT_OK(kvmem_layout_get_accesses(user->layout, &user->block, 1, NULL, 0, &count, ERR));
        CHECK_EQ(count, 2);
        DESTROYED(kvmem_lease, one);
        EXPECT_OK(kvmem_layout_get_accesses(user->layout, &user->block, 1, NULL, 0, &count, ERR));
        CHECK_EQ(count, 1);
    }
    return NULL;
}

/* Renews one lease, and asks how long it lasts. */
static void *renew(void *argument) {
    kvmem_lease *lease = argument;
    for (int turn = 0; turn < 500; turn++) {
        EXPECT_OK(kvmem_lease_renew(lease, MINUTE, ERR));
        GET(uint64_t, remaining, kvmem_lease_get_remaining, lease);
        CHECK(remaining > 0 && remaining <= MINUTE);
    }
    return NULL;
}

TEST(threads_use_leases_of_one_layout_concurrently) {
    OWNED(kvmem_layout) layout = build(KVMEM_SYSTEM_SHAREABLE);
    user users[4];
    for (uint32_t i = 0; i < NUM(users); i++) users[i] = (user){layout, i};
    threads_run(NUM(users), lease_and_ask, users, sizeof(users[0]));
    OWN(kvmem_lease, lease, kvmem_lease_create, layout, REF((uint32_t)7), 1, NULL);
    EXPECT_OK(kvmem_lease_renew(lease, MINUTE, ERR));
    threads_run(4, renew, lease, 0);
    kvmem_block_access found[4];
    CHECK_EQ(accesses_of(layout, found), 1);
}

TEST(a_lease_without_a_duration_has_no_end) {
    static const uint64_t durations[] = {0, KVMEM_TIMEOUT_FOREVER};
    OWNED(kvmem_layout) layout = build(KVMEM_SYSTEM_SHAREABLE);
    OWN(kvmem_lease, lease, kvmem_lease_create, layout, REF((uint32_t)7), 1, NULL);
    for (size_t i = 0; i < NUM(durations); i++) {
        EXPECT_OK(kvmem_lease_renew(lease, durations[i], ERR));
        GET(uint64_t, remaining, kvmem_lease_get_remaining, lease);
        CHECK_EQ(remaining, UINT64_MAX);
        kvmem_block_access found[4];
        CHECK_EQ(accesses_of(layout, found), 1);
        CHECK_EQ(found[0].remaining_ns, UINT64_MAX);
    }
}
