// SPDX-License-Identifier: Apache-2.0
// Who lives how long: shares, owners and importers end in every order, by themselves or killed, and each side
// is told.
#include "crowd.h"
#include "kinds.h"
#include "offer.h"
#include "opened.h"

HOLDER_ROLE
CROWD_ROLE

TEST_EACH_KIND(what_was_opened_outlives_the_share) {
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

/* What is open here of an offer: its region, and a part of it. */
typedef struct visit {
    kvmem_region *region, *view;
} visit;

static visit visit_begin(const offer *offer) {
    kvmem_region *region = open_parcel(&offer->parcel, 0);
    return (visit){region, MADE(kvmem_region, kvmem_region_create_view, region, 4096, 4096)};
}

/* The owner is gone. Its memory can be read and written, and is known to be nobody's any more; opened now, a
   handle of it is worth nothing, and a file descriptor is the memory. */
static void visit_end(const visit *visit, const parcel *parcel, memory_kind kind) {
    EXPECT_MESSAGE(KVMEM_STATUS_PEER_LOST, "has freed it or has ended",
                   kvmem_region_check_owner(visit->region, ERR));
    EXPECT(KVMEM_STATUS_PEER_LOST, kvmem_region_check_owner(visit->view, ERR));
    memory_check(visit->region, 1);
    memory_fill(visit->region, 2);
    memory_check(visit->region, 2);
    CALL(kvmem_region_destroy(visit->view));
    CALL(kvmem_region_destroy(visit->region));
    if (memory_goes_by_handle(kind)) {
        refuse_parcel(parcel, 0, KVMEM_STATUS_PEER_LOST, "has freed it or has ended");
        return;
    }
    OWNED(kvmem_region) late = open_parcel(parcel, 0);
    EXPECT(KVMEM_STATUS_PEER_LOST, kvmem_region_check_owner(late, ERR));
}

TEST_EACH_KIND(an_owner_that_frees_is_known_to_have) {
    OPENED(offer, fixture, kind, NULL);
    const visit visit = visit_begin(&fixture);
    holder_destroy(&fixture.owner);
    EXPECT_OK(kvmem_region_check_owner(visit.region, ERR)); /* the share keeps it */
    holder_end_shares(&fixture.owner);
    visit_end(&visit, &fixture.parcel, kind);
}

TEST_EACH_KIND(an_owner_that_is_killed_leaves_its_memory) {
    OPENED(offer, fixture, kind, NULL);
    const visit visit = visit_begin(&fixture);
    peer_kill(&fixture.owner);
    visit_end(&visit, &fixture.parcel, kind);
}

/* Killed before, between and after the steps of the hand-over. */
TEST_EACH_KIND(an_owner_killed_on_the_way_does_no_harm) {
    OPENED(offer, fixture, kind, NULL);
    OWNED(kvmem_share) share = parcel_share(&fixture.parcel);
    peer_kill(&fixture.owner);
    OWNED(kvmem_region) region = NULL;
    if (memory_goes_by_handle(kind)) {
        EXPECT(KVMEM_STATUS_PEER_LOST, kvmem_share_open_region(share, NULL, &region, ERR));
        CHECK(region == NULL);
    } else {
        EXPECT_OK(kvmem_share_open_region(share, NULL, &region, ERR));
        memory_check(region, 1);
    }
}

static void expect_importers(const offer *offer, uint64_t count) { CHECK_EQ(offer_importers(offer), count); }

TEST_EACH_KIND(importers_are_counted_as_they_come_and_go) {
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

TEST_EACH_KIND(holders_tell_all_that_keeps_a_region) {
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
    CHECK_EQ(region_holders(view).shares, 0);
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
    for (size_t i = 0; i < MANY; i++) { /* and opened and closed as often */
        CALL(kvmem_region_destroy(open_parcel(&fixture.parcel, 0)));
    }
    CHECK_EQ(count_open_files(), files);
    expect_importers(&fixture, 0);
}

/* docs/share-manifest.md: the control block is the first file descriptor, and importers lock bytes from
 * here on. */
#define FIRST_IMPORTER_LOCK (INT64_C(1) << 20)

static int lock_as_an_importer(const parcel *parcel, off_t start, off_t length) {
    const int fd = reopen_fd(parcel->fds[0], O_RDONLY);
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    CHECK(fd >= 0);
    CHECK_EQ(fcntl(fd, F_OFD_SETLK, &lock), 0);
    return fd;
}

/* As importers that are not kvmem would lock, in no order. */
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

#define CROWD_OF_LOCKS 5000
#define MOST_COUNTED 1024 /* docs/share.md */

/* To find one lock the kernel passes those before it: to count them all takes the square of their number. */
TEST(more_locks_than_are_counted_stall_nobody) {
    OPENED(offer, fixture, FIRST_KIND, NULL);
    const int locks = lock_as_an_importer(&fixture.parcel, FIRST_IMPORTER_LOCK + 2 * CROWD_OF_LOCKS, 1);
    for (off_t i = CROWD_OF_LOCKS - 1; i > 0; i--) { /* apart from each other, the last first: that is quick */
        struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1};
        lock.l_start = FIRST_IMPORTER_LOCK + 2 * i;
        CHECK_EQ(fcntl(locks, F_OFD_SETLK, &lock), 0);
    }
    expect_importers(&fixture, MOST_COUNTED);
    close(locks);
    expect_importers(&fixture, 0);
}

#ifndef KVMEM_TEST_SHARE_GPU
/* A context for each of them would be more than a GPU has room for. */
TEST(a_thousand_processes_are_counted) {
    OPENED(offer, fixture, MEMORY_SYSTEM, NULL);
    peer crowd = crowd_start(&fixture.parcel, MANY, 1);
    expect_importers(&fixture, MANY);
    crowd_end(&crowd);
    expect_importers(&fixture, 0);
    holder_check(&fixture.owner, HOLDING_OWN, 1);
}
#endif

TEST(a_lock_on_everything_holds_nobody_up) {
    OPENED(offer, fixture, FIRST_KIND, NULL);
    const int lock = lock_as_an_importer(&fixture.parcel, FIRST_IMPORTER_LOCK, 0);
    expect_importers(&fixture, 1);
    close(lock);
    expect_importers(&fixture, 0);
}
