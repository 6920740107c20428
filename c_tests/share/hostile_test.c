// SPDX-License-Identifier: Apache-2.0
// Hostile senders and importers: the descriptors that they hold neither stall nor end the other process.
#include "blocks.h"
#include "foreign.h"
#include "offer.h"
#include "opened.h"
#include "served_file.h"

#include <time.h>

HOLDER_ROLE
SERVED_FILE_ROLE

typedef offer exporter;

static void exporter_open(exporter *offer, const kvmem_share_options *options) {
    offer_open(offer, MEMORY_SYSTEM, options);
}

/* The share is still usable. */
static void exporter_close(exporter *offer) {
    OWNED(kvmem_region) region = open_parcel(&offer->parcel, 0);
    memory_check(region, 1);
    offer_close(offer);
}

/* Waiting until the kernel breaks the lease would take 45 s, and then succeed. */
TEST(a_leased_control_block_fails) {
    CHECK(signal(SIGIO, SIG_IGN) != SIG_ERR); /* sent to the holder of a lease */
    OPENED(exporter, fixture, NULL);
    CLEANUP(parcel_close) parcel odd = parcel_copy(&fixture.parcel);
    const int control = foreign_reopen(foreign_control(&odd, 1, 0, 64), O_RDWR);
    CHECK_EQ(fcntl(control, F_SETLEASE, F_WRLCK), 0);
    foreign_put(&odd, 0, control);
    refuse_parcel(&odd, 0, KVMEM_STATUS_CORRUPT, "lease");
}

/* Their owner can remove them while they are mapped. No page is touched, so the machine needs none. */
TEST(reserved_huge_pages_need_trust) {
    OPENED(exporter, fixture, NULL);
    trust_owners(false);
    parcel odd = parcel_copy(&fixture.parcel);
    foreign_put(&odd, 1, foreign_huge_memory(MEMORY_SIZE));
    refuse_parcel(&odd, 0, KVMEM_STATUS_UNSUPPORTED, "KVMEM_OPEN_TRUST_OWNER");
    refuse_parcel(&odd, KVMEM_OPEN_READ_ONLY, KVMEM_STATUS_UNSUPPORTED, "SIGBUS");
    const kvmem_status trusted = try_parcel(&odd, KVMEM_OPEN_TRUST_OWNER);
    CHECK(trusted == KVMEM_STATUS_OK || trusted == KVMEM_STATUS_OUT_OF_MEMORY); /* depends on the pool */
    parcel_close(&odd);
    trust_owners(true);
}

/* This holds with trust too: control blocks are read at times that the caller does not choose. */
TEST(a_control_block_has_no_reserved_huge_pages) {
    OPENED(exporter, fixture, NULL);
    CLEANUP(parcel_close) parcel odd = parcel_copy(&fixture.parcel);
    foreign_put(&odd, 0, foreign_huge_memory(2 * MIB));
    refuse_parcel(&odd, KVMEM_OPEN_TRUST_OWNER, KVMEM_STATUS_CORRUPT, "reserved huge pages");
}

static void expect_no_seal(int fd, int seal) {
    CHECK_EQ(fcntl(fd, F_ADD_SEALS, seal), -1);
    CHECK_EQ(errno, EPERM);
}

/* With such a seal the memory could not be opened for writing any more. */
TEST(importers_add_no_seals) {
    OPENED(exporter, fixture, NULL);
    const int memory = fixture.parcel.fds[1];
    CHECK_EQ(fcntl(memory, F_GETFL) & O_ACCMODE, O_RDWR);
    expect_no_seal(memory, F_SEAL_FUTURE_WRITE);
    expect_no_seal(memory, F_SEAL_WRITE);
    OWNED(kvmem_region) region = open_parcel(&fixture.parcel, KVMEM_OPEN_READ_WRITE);
    memory_check(region, 1);
}

static void expect_no_lease(int fd, int lease) {
    CHECK_EQ(fcntl(fd, F_SETLEASE, lease), -1);
    CHECK_EQ(errno, EAGAIN);
}

/* While a lease is held, the owner cannot open the file again for a read-only share. */
TEST(importers_take_no_leases) {
    static const kvmem_share_options to_be_read = {.struct_size = sizeof(to_be_read),
                                                   .flags = KVMEM_SHARE_READ_ONLY};
    for (int read_only = 0; read_only < 2; read_only++) {
        OPENED(exporter, fixture, read_only ? &to_be_read : NULL);
        for (size_t i = 0; i < fixture.parcel.num_fds; i++) {
            expect_no_lease(fixture.parcel.fds[i], F_WRLCK);
            if (i == 0 || read_only) expect_no_lease(fixture.parcel.fds[i], F_RDLCK);
        }
        CLEANUP(parcel_close) parcel narrowed = holder_share(&fixture.owner, &to_be_read);
    }
}

/* More fstat calls than opening a share makes. */
#define MAX_REPLIES 8

/* What threads do while the server of the file does not reply to fstat. */
typedef struct stalled {
    const parcel *parcel;
    _Atomic bool is_opened;
} stalled;

static void *open_it(void *argument) {
    stalled *stalled = argument;
    const kvmem_status status = try_parcel(stalled->parcel, 0);
    CHECK(status == KVMEM_STATUS_OK);
    test_forget_error();
    stalled->is_opened = true;
    return NULL;
}

/* This needs the locks that all shares of the process use. */
static void *share_another(void *unused) {
    (void)unused;
    kvmem_region *region = memory_create(MEMORY_SYSTEM, MEMORY_SIZE, NULL);
    GET(kvmem_share *, share, kvmem_share_create_region, region, NULL);
    GET(kvmem_region_holders, holders, kvmem_region_get_holders, region);
    kvmem_share_destroy(share);
    kvmem_region_destroy(region);
    test_forget_error();
    return NULL;
}

static void check_ends(pthread_t thread) {
    struct timespec deadline;
    CHECK_EQ(clock_gettime(CLOCK_REALTIME, &deadline), 0);
    deadline.tv_sec += (time_t)(PATIENCE / SECONDS(1));
    CHECK_EQ(pthread_timedjoin_np(thread, NULL, &deadline), 0);
}

/* A sender may stall the thread that opens its file, but no other share of that process. */
TEST(a_file_served_by_its_sender_stalls_no_other_share) {
    require_served_files();
    CLEANUP(peer_finish) peer owner = holder_start();
    holder_make(&owner, MEMORY_DISK, NULL, 1);
    CLEANUP(parcel_close) parcel parcel = holder_share(&owner, NULL);
    OWNED(kvmem_region) known = open_parcel(&parcel,
                                            0); /* so that the file is compared with that of a known region */
    int fd = -1;
    CLEANUP(peer_finish) peer server = served_file_start(MEMORY_SIZE, &fd);
    for (uint64_t replies = 0; replies < MAX_REPLIES; replies++) {
        CLEANUP(parcel_close) struct parcel served = parcel_copy(&parcel);
        foreign_put(&served, 1, fcntl(fd, F_DUPFD_CLOEXEC, 0));
        served_file_stall_after(&server, replies);
        stalled stalled = {.parcel = &served};
        pthread_t opener, sharer;
        CHECK_EQ(pthread_create(&opener, NULL, open_it, &stalled), 0);
        while (!served_file_stalls(&server) && !stalled.is_opened) sched_yield();
        CHECK_EQ(pthread_create(&sharer, NULL, share_another, NULL), 0);
        check_ends(sharer);
        served_file_resume(&server);
        check_ends(opener);
    }
    close(fd);
}

/* A transfer between two layouts, which a thread creates. */
typedef struct creation {
    const kvmem_layout *source, *destination;
    _Atomic bool has_ended;
} creation;

static void *create_transfer(void *argument) {
    creation *creation = argument;
    const kv_move move = KV_MOVE(1, {0, 0});
    kvmem_transfer_destroy(kv_transfer(creation->source, creation->destination, &move));
    test_forget_error();
    creation->has_ended = true;
    return NULL;
}

/* A layout over a file that a process serves, and layouts that are to remain usable. */
typedef struct layouts {
    peer owner, server;
    parcel parcel;
    kvmem_layout_config config;
    kvmem_region *region;
    kvmem_layout *served, *file, *memory;
} layouts;

static void layouts_open(layouts *layouts) {
    int fd = -1;
    layouts->owner = holder_start();
    holder_make(&layouts->owner, MEMORY_DISK, NULL, 1);
    layouts->parcel = holder_share(&layouts->owner, NULL);
    layouts->server = served_file_start(MEMORY_SIZE, &fd);
    foreign_put(&layouts->parcel, 1, fd);
    layouts->config = blocks_config(&kv_kinds[0]);
    layouts->region = open_parcel(&layouts->parcel, 0);
    layouts->served = regions_lay_out(&layouts->config, &layouts->region, 1, NULL);
    layouts->file = blocks_build(MEMORY_DISK, &layouts->config, BLOCKS_TOGETHER, NULL);
    layouts->memory = blocks_build(MEMORY_SYSTEM, &layouts->config, BLOCKS_TOGETHER, NULL);
}

static void layouts_close(layouts *layouts) {
    kvmem_layout_destroy(layouts->memory);
    kvmem_layout_destroy(layouts->file);
    kvmem_layout_destroy(layouts->served);
    kvmem_region_destroy(layouts->region);
    peer_finish(&layouts->server);
    parcel_close(&layouts->parcel);
    peer_finish(&layouts->owner);
}

/* The same for transfers: their methods have records that all of them use. */
TEST(a_file_served_by_its_sender_stalls_no_other_transfer) {
    require_served_files();
    OPENED(layouts, layouts);
    for (uint64_t replies = 0; replies < MAX_REPLIES; replies++) {
        creation stalled = {.source = layouts.served, .destination = layouts.memory};
        creation other = {.source = layouts.file, .destination = layouts.memory};
        pthread_t waiting, creating;
        served_file_stall_after(&layouts.server, replies);
        CHECK_EQ(pthread_create(&waiting, NULL, create_transfer, &stalled), 0);
        while (!served_file_stalls(&layouts.server) && !stalled.has_ended) sched_yield();
        CHECK_EQ(pthread_create(&creating, NULL, create_transfer, &other), 0);
        check_ends(creating);
        served_file_resume(&layouts.server);
        check_ends(waiting);
    }
}

/* More than the threads of a pool for files. */
#define NUM_STUCK 20

/* Transfers that read the file use threads of their own, so that others, and checks of what these have moved,
   find some. */
TEST(a_file_whose_bytes_are_withheld_delays_no_transfer_of_other_files) {
    require_served_files();
    OPENED(layouts, layouts);
    const kv_move move = KV_MOVE(2, {0, 0}, {1, 1});
    kvmem_layout *destinations[NUM_STUCK];
    kvmem_transfer *stuck[NUM_STUCK];
    served_file_withhold_bytes(&layouts.server);
    for (size_t i = 0; i < NUM_STUCK; i++) {
        destinations[i] = blocks_build(MEMORY_SYSTEM, &layouts.config, BLOCKS_TOGETHER, NULL);
        stuck[i] = MADE(kvmem_transfer, kv_prepare, layouts.served, destinations[i],
                        KV_JOB(&move, it.transfer.method = KVMEM_METHOD_PREAD));
        EXPECT_OK(kvmem_transfer_submit(stuck[i], NULL, ERR));
    }
    while (!served_file_stalls(&layouts.server)) sched_yield();
    for (int is_verified = 0; is_verified < 2; is_verified++) {
        kvmem_transfer *other = MADE(kvmem_transfer, kv_prepare, layouts.file, layouts.memory,
                                     KV_JOB(&move, it.transfer.method = KVMEM_METHOD_PREAD,
                                                it.run.flags = is_verified ? KVMEM_SUBMIT_VERIFY : 0));
        EXPECT_OK(kvmem_transfer_submit(other, NULL, ERR));
        EXPECT_OK(kvmem_transfer_wait(other, PATIENCE, ERR));
        DESTROYED(kvmem_transfer, other);
    }
    for (size_t i = 0; i < NUM_STUCK; i++)
        EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(stuck[i], ERR));
    served_file_resume(&layouts.server);
    for (size_t i = 0; i < NUM_STUCK; i++) {
        EXPECT_OK(kvmem_transfer_wait(stuck[i], PATIENCE, ERR));
        DESTROYED(kvmem_transfer, stuck[i]);
        DESTROYED(kvmem_layout, destinations[i]);
    }
}
