// SPDX-License-Identifier: Apache-2.0
// Processes that have forked, as Python's multiprocessing does. After an owner or importer has ended, its
// surviving child counts as neither.
#include "kinds.h"
#include "offer.h"
#include "opened.h"

HOLDER_ROLE

typedef struct fixture {
    offer offer;
    peer importer;
} fixture;

static void fixture_open(fixture *fixture, memory_kind kind) {
    offer_open(&fixture->offer, kind, NULL);
    fixture->importer = holder_start();
    CHECK_EQ(holder_open(&fixture->importer, &fixture->offer.parcel, 0), KVMEM_STATUS_OK);
    CHECK_EQ(offer_importers(&fixture->offer), 1);
}

/* Ends the processes that the case has not ended. */
static void fixture_close(fixture *fixture) {
    peer_finish(&fixture->importer);
    offer_close(&fixture->offer);
}

/* Kills a process, but keeps the test's end of its socket, so that its child lives until `child_end` is
   closed. */
static int kill_but_not_its_child(peer *peer) {
    const int child_end = fcntl(peer->socket, F_DUPFD_CLOEXEC, 0);
    CHECK(child_end >= 0);
    peer_kill(peer);
    return child_end;
}

static const memory_kind kinds[] = {MEMORY_SYSTEM, MEMORY_PART, MEMORY_DISK};

TEST(an_importer_that_ended_is_not_counted) {
    for (size_t i = 0; i < NUM(kinds); i++) {
        OPENED(fixture, fixture, kinds[i]);
        holder_fork(&fixture.importer, false);
        CHECK_EQ(offer_importers(&fixture.offer), 1); /* the parent still has it open */
        const int child = kill_but_not_its_child(&fixture.importer);
        CHECK_EQ(offer_importers(&fixture.offer), 0);
        close(child);
    }
}

TEST(an_importer_that_closed_is_not_counted) {
    for (int by_clone = 0; by_clone < 2; by_clone++) {
        OPENED(fixture, fixture, MEMORY_SYSTEM);
        holder_fork(&fixture.importer, by_clone != 0);
        holder_close(&fixture.importer);
        CHECK_EQ(offer_importers(&fixture.offer), 0);
        CHECK_EQ(holder_open(&fixture.importer, &fixture.offer.parcel, 0), KVMEM_STATUS_OK);
        CHECK_EQ(offer_importers(&fixture.offer), 1);
        peer_finish(&fixture.importer);
        CHECK_EQ(offer_importers(&fixture.offer), 0);
    }
}

/* The lock of the owner on the control block, see docs/share-manifest.md. */
static bool owner_has_its_lock(const parcel *parcel) {
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    CHECK_EQ(fcntl(parcel->fds[0], F_OFD_GETLK, &lock), 0);
    return lock.l_type != F_UNLCK;
}

/* Its lock too must be released: importers in other containers see only the lock. */
TEST(an_owner_that_ended_is_lost) {
    for (size_t i = 0; i < NUM(kinds); i++) {
        OPENED(fixture, fixture, kinds[i]);
        holder_fork(&fixture.offer.owner, false);
        CHECK_EQ(holder_check_owner(&fixture.importer), KVMEM_STATUS_OK);
        CHECK(owner_has_its_lock(&fixture.offer.parcel));
        const int child = kill_but_not_its_child(&fixture.offer.owner);
        CHECK(!owner_has_its_lock(&fixture.offer.parcel));
        CHECK_EQ(holder_check_owner(&fixture.importer), KVMEM_STATUS_PEER_LOST);
        holder_check(&fixture.importer, HOLDING_OPENED, 1);
        close(child);
    }
}

TEST(an_owner_that_freed_is_lost) {
    for (int by_clone = 0; by_clone < 2; by_clone++) {
        OPENED(fixture, fixture, MEMORY_SYSTEM);
        holder_fork(&fixture.offer.owner, by_clone != 0);
        holder_end_shares(&fixture.offer.owner);
        holder_destroy(&fixture.offer.owner);
        CHECK(!owner_has_its_lock(&fixture.offer.parcel));
        CHECK_EQ(holder_check_owner(&fixture.importer), KVMEM_STATUS_PEER_LOST);
    }
}
