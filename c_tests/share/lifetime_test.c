// SPDX-License-Identifier: Apache-2.0
// Lifetimes: shares, owners and importers end in every order, normally or killed, and the other side reports
// it.
#include "importers.h"
#include "kinds.h"
#include "offer.h"
#include "opened.h"
#ifdef KVMEM_TEST_SHARE_GPU
#include "busy.h"
#include "patience.h"
#endif

HOLDER_ROLE
IMPORTERS_ROLE

TEST_EACH_KIND(an_opened_region_outlives_the_share) {
    OPENED(offer, fixture, kind, NULL);
    OWNED(kvmem_region) region = open_parcel(&fixture.parcel, 0);
    holder_end_shares(&fixture.owner);
    EXPECT_OK(kvmem_region_check_owner(region, ERR));
    holder_fill(&fixture.owner, HOLDING_OWN, 2);
    memory_check(region, 2);
    OWNED(kvmem_region) again = open_parcel(&fixture.parcel,
                                            0); /* its file descriptors are still open here */
    memory_check(again, 2);
}

/* A region and a part of it, opened from an offer. */
typedef struct opened_pair {
    kvmem_region *region, *view;
} opened_pair;

static opened_pair opened_pair_open(const offer *offer) {
    kvmem_region *region = open_parcel(&offer->parcel, 0);
    return (opened_pair){region, MADE(kvmem_region, kvmem_region_create_view, region, 4096, 4096)};
}

/* The owner has ended. Its memory can be read and written, and kvmem_region_check_owner fails. A handle
   cannot be opened any more; file descriptors can. */
static void opened_pair_check_lost(const opened_pair *opened_pair, const parcel *parcel, memory_kind kind) {
    EXPECT_MESSAGE(KVMEM_STATUS_PEER_LOST, "has freed it or has ended",
                   kvmem_region_check_owner(opened_pair->region, ERR));
    EXPECT(KVMEM_STATUS_PEER_LOST, kvmem_region_check_owner(opened_pair->view, ERR));
    memory_check(opened_pair->region, 1);
    memory_fill(opened_pair->region, 2);
    memory_check(opened_pair->region, 2);
    CALL(kvmem_region_destroy(opened_pair->view));
    CALL(kvmem_region_destroy(opened_pair->region));
    if (memory_is_shared_by_handle(kind)) {
        refuse_parcel(parcel, 0, KVMEM_STATUS_PEER_LOST, "has freed it or has ended");
        return;
    }
    OWNED(kvmem_region) late = open_parcel(parcel, 0);
    EXPECT(KVMEM_STATUS_PEER_LOST, kvmem_region_check_owner(late, ERR));
}

TEST_EACH_KIND(an_owner_that_frees_is_lost) {
    OPENED(offer, fixture, kind, NULL);
    const opened_pair opened_pair = opened_pair_open(&fixture);
    holder_destroy(&fixture.owner);
    EXPECT_OK(kvmem_region_check_owner(opened_pair.region, ERR)); /* the share keeps it */
    holder_end_shares(&fixture.owner);
    opened_pair_check_lost(&opened_pair, &fixture.parcel, kind);
}

TEST_EACH_KIND(memory_outlives_a_killed_owner) {
    OPENED(offer, fixture, kind, NULL);
    const opened_pair opened_pair = opened_pair_open(&fixture);
    peer_kill(&fixture.owner);
    opened_pair_check_lost(&opened_pair, &fixture.parcel, kind);
}

/* Killed before, between and after the steps of sharing. */
TEST_EACH_KIND(an_owner_killed_at_any_step_of_sharing_leaks_nothing) {
    OPENED(offer, fixture, kind, NULL);
    OWNED(kvmem_share) share = parcel_share(&fixture.parcel);
    peer_kill(&fixture.owner);
    OWNED(kvmem_region) region = NULL;
    if (memory_is_shared_by_handle(kind)) {
        EXPECT(KVMEM_STATUS_PEER_LOST, kvmem_share_open_region(share, NULL, &region, ERR));
        CHECK(region == NULL);
    } else {
        EXPECT_OK(kvmem_share_open_region(share, NULL, &region, ERR));
        memory_check(region, 1);
    }
}

static void expect_importers(const offer *offer, uint64_t count) { CHECK_EQ(offer_importers(offer), count); }

TEST_EACH_KIND(importers_are_counted_when_they_open_and_close) {
    OPENED(offer, fixture, kind, NULL);
    peer importers[5];
    for (size_t i = 0; i < NUM(importers); i++) {
        importers[i] = holder_start();
        CHECK_EQ(holder_open(&importers[i], &fixture.parcel, 0), KVMEM_STATUS_OK);
        CHECK_EQ(holder_open(&importers[i], &fixture.parcel, 0), KVMEM_STATUS_OK);
        expect_importers(&fixture, i + 1);
    }
    holder_close(&importers[1]);
    expect_importers(&fixture, 4);
    peer_kill(&importers[3]);
    expect_importers(&fixture, 3);
    peer_finish(&importers[1]);
    peer_finish(&importers[0]);
    expect_importers(&fixture, 2);
    holder_check(&importers[4], HOLDING_OPENED, 1);
    peer_kill(&importers[2]);
    peer_kill(&importers[4]);
    expect_importers(&fixture, 0);
}

TEST_EACH_KIND(holders_counts_everything_that_keeps_a_region) {
    SCRATCH(directory);
    OWNED(kvmem_region) region = memory_create(kind, MEMORY_SIZE, scratch_file(&directory, "region"));
    CHECK_EQ(region_holders(region).references, 1);
    CHECK_EQ(region_holders(region).shares, 0);
    GET(kvmem_region *, view, kvmem_region_create_view, region, 0, 4096);
    kvmem_share *shares[2];
    EXPECT_OK(kvmem_share_create_region(region, NULL, &shares[0], ERR));
    EXPECT_OK(kvmem_share_create_region(view, NULL, &shares[1], ERR));
    CHECK_EQ(region_holders(region).views, 1);
    CHECK_EQ(region_holders(region).shares, 2);
    CHECK_EQ(region_holders(view).shares, 2); /* of the whole region */
    CHECK_EQ(region_holders(region).importers, 0);
    CLEANUP(parcel_close) parcel parcel = parcel_of(shares[1]);
    peer importer = holder_start();
    CHECK_EQ(holder_open(&importer, &parcel, 0), KVMEM_STATUS_OK);
    const kvmem_region_holders full = region_holders(region);
    CHECK_EQ(full.importers, 1);
    CHECK_EQ(full.registrations, 0);
    CHECK(full.references >= 4); /* the handle, the view, two shares */
    CALL(kvmem_share_destroy(shares[0]));
    CHECK_EQ(region_holders(region).shares, 1);
    CALL(kvmem_share_destroy(shares[1]));
    CALL(kvmem_region_destroy(view));
    peer_kill(&importer);
    const kvmem_region_holders alone = region_holders(region);
    CHECK_EQ(alone.references, 1);
    CHECK_EQ(alone.views + alone.shares + alone.importers, 0);
}

#define MANY 1000
#ifdef KVMEM_TEST_SHARE_GPU
#define AGAIN 100 /* each is a call of the driver, which is slow beside other processes on the GPU */
#else
#define AGAIN MANY
#endif

TEST_EACH_KIND(a_thousand_openings_are_one_mapping) {
    OPENED(offer, fixture, kind, NULL);
    const size_t files = count_open_files();
    static kvmem_region *opened[MANY];
    opened[0] = open_parcel(&fixture.parcel, 0);
    const size_t mappings = count_file_mappings();
    const size_t files_of_one = count_open_files();
    for (size_t i = 1; i < MANY; i++) opened[i] = open_parcel(&fixture.parcel, 0);
    CHECK_EQ(count_open_files(), files_of_one);
    CHECK_EQ(count_file_mappings(), mappings);
    expect_importers(&fixture, 1);
    for (size_t i = 0; i < MANY; i++) CALL(kvmem_region_destroy(opened[i]));
    CHECK_EQ(count_open_files(), files);
    expect_importers(&fixture, 0);
    for (size_t i = 0; i < AGAIN; i++) { /* and many opens and closes of the mapping */
        CALL(kvmem_region_destroy(open_parcel(&fixture.parcel, 0)));
    }
    CHECK_EQ(count_open_files(), files);
    expect_importers(&fixture, 0);
}

/* Importers lock bytes of the control block, the first file descriptor, from this offset on; see
   docs/share-manifest.md. */
#define FIRST_IMPORTER_LOCK (INT64_C(1) << 20)

static int lock_as_an_importer(const parcel *parcel, off_t start, off_t length) {
    const int fd = reopen_fd(parcel->fds[0], O_RDONLY);
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    CHECK(fd >= 0);
    CHECK_EQ(fcntl(fd, F_OFD_SETLK, &lock), 0);
    return fd;
}

/* Locks in no order, as importers other than kvmem may take them. */
TEST(a_thousand_locks_are_counted) {
    OPENED(offer, fixture, FIRST_KIND, NULL);
    static int locks[MANY];
    for (size_t i = 0; i < MANY; i++) {
        const off_t place = (off_t)(i * 7919 % MANY) * 10;
        locks[i] = lock_as_an_importer(&fixture.parcel, FIRST_IMPORTER_LOCK + place, 1);
    }
    expect_importers(&fixture, MANY);
    for (size_t i = 0; i < MANY; i++) close(locks[i]);
    expect_importers(&fixture, 0);
}

#define MANY_LOCKS 5000
#define MAX_COUNTED 1024 /* docs/share.md */

/* To find a lock the kernel passes all locks before it, so counting all takes quadratic time. */
TEST(more_locks_than_are_counted_stall_no_caller) {
    OPENED(offer, fixture, FIRST_KIND, NULL);
    const int locks = lock_as_an_importer(&fixture.parcel, FIRST_IMPORTER_LOCK + 2 * MANY_LOCKS, 1);
    for (off_t i = MANY_LOCKS - 1; i > 0; i--) { /* last first, which is fast */
        struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1};
        lock.l_start = FIRST_IMPORTER_LOCK + 2 * i;
        CHECK_EQ(fcntl(locks, F_OFD_SETLK, &lock), 0);
    }
    expect_importers(&fixture, MAX_COUNTED);
    close(locks);
    expect_importers(&fixture, 0);
}

#ifdef KVMEM_TEST_SHARE_GPU
/* CUDA forbids the owner to free memory that is open elsewhere, and the driver closes it when the GPU has
   finished its work. */
static void close_beside_work(memory_kind kind) {
    OPENED(offer, fixture, kind, NULL);
    kvmem_region *region = open_parcel(&fixture.parcel, 0);
    busy busy = {0};
    busy_begin(&busy, BUSY_ONE);
    DESTROYED(kvmem_region, region);
    expect_importers(&fixture, 1);
    busy_end(&busy);
    const uint64_t end = patience_end();
    while (offer_importers(&fixture) != 0) patience_wait(end, "the memory to be closed when the GPU is idle");
}
TEST(device_memory_has_its_importer_until_the_driver_has_closed_it) { close_beside_work(MEMORY_DEVICE); }
TEST(adopted_memory_has_its_importer_until_the_driver_has_closed_it) { close_beside_work(MEMORY_ADOPTED); }
#endif

#ifndef KVMEM_TEST_SHARE_GPU
/* A context per process would exceed the memory of a GPU. */
TEST(a_thousand_processes_are_counted) {
    OPENED(offer, fixture, MEMORY_SYSTEM, NULL);
    peer importers = importers_start(&fixture.parcel, MANY, 1);
    expect_importers(&fixture, MANY);
    importers_end(&importers);
    expect_importers(&fixture, 0);
    holder_check(&fixture.owner, HOLDING_OWN, 1);
}
#endif

TEST(a_lock_on_the_whole_file_stalls_no_caller) {
    OPENED(offer, fixture, FIRST_KIND, NULL);
    const int lock = lock_as_an_importer(&fixture.parcel, FIRST_IMPORTER_LOCK, 0);
    expect_importers(&fixture, 1);
    close(lock);
    expect_importers(&fixture, 0);
}
