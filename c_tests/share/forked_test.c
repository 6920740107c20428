// SPDX-License-Identifier: Apache-2.0
// Processes that have forked, as Python's multiprocessing does: a child that lives on stands neither for an owner nor
// for an importer that has ended.
#include "holder.h"
#include "kinds.h"
#include "opened.h"

#include <fcntl.h>

HOLDER_ROLE

typedef struct fixture {
    peer owner;
    peer importer;
    parcel parcel;
} fixture;

static void set_up(fixture *fixture, memory_kind kind) {
    fixture->owner = holder_start();
    fixture->importer = holder_start();
    holder_make(&fixture->owner, kind, NULL, 1);
    fixture->parcel = holder_share(&fixture->owner, NULL);
    CHECK_EQ(holder_open(&fixture->importer, &fixture->parcel, 0), KVMEM_STATUS_OK);
    CHECK_EQ(holder_holders(&fixture->owner, HOLDING_OWN).importers, 1);
}

/* Kills a process, but keeps the test's end of its socket until `child_end` is closed: its child lives until then. */
static int kill_but_not_its_child(peer *peer) {
    const int child_end = fcntl(peer->socket, F_DUPFD_CLOEXEC, 0);
    CHECK(child_end >= 0);
    peer_kill(peer);
    return child_end;
}

static const memory_kind kinds[] = {MEMORY_SYSTEM, MEMORY_PART, MEMORY_DISK};

TEST(an_importer_that_ended_counts_no_more) {
    for (size_t i = 0; i < NUM(kinds); i++) {
        fixture fixture;
        set_up(&fixture, kinds[i]);
        holder_fork(&fixture.importer, false);
        CHECK_EQ(holder_holders(&fixture.owner, HOLDING_OWN).importers, 1); /* the parent has it still */
        const int child = kill_but_not_its_child(&fixture.importer);
        CHECK_EQ(holder_holders(&fixture.owner, HOLDING_OWN).importers, 0);
        close(child);
        parcel_close(&fixture.parcel);
        peer_finish(&fixture.owner);
    }
}

TEST(an_importer_that_closed_counts_no_more) {
    for (int by_clone = 0; by_clone < 2; by_clone++) {
        fixture fixture;
        set_up(&fixture, MEMORY_SYSTEM);
        holder_fork(&fixture.importer, by_clone != 0);
        holder_close(&fixture.importer);
        CHECK_EQ(holder_holders(&fixture.owner, HOLDING_OWN).importers, 0);
        CHECK_EQ(holder_open(&fixture.importer, &fixture.parcel, 0), KVMEM_STATUS_OK);
        CHECK_EQ(holder_holders(&fixture.owner, HOLDING_OWN).importers, 1);
        peer_finish(&fixture.importer);
        CHECK_EQ(holder_holders(&fixture.owner, HOLDING_OWN).importers, 0);
        parcel_close(&fixture.parcel);
        peer_finish(&fixture.owner);
    }
}

/* docs/share-manifest.md: what the owner has locked in the control block. */
static bool owner_has_its_lock(const parcel *parcel) {
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    CHECK_EQ(fcntl(parcel->fds[0], F_OFD_GETLK, &lock), 0);
    return lock.l_type != F_UNLCK;
}

/* By its lock too, which alone tells importers in other containers. */
TEST(an_owner_that_ended_is_gone) {
    for (size_t i = 0; i < NUM(kinds); i++) {
        fixture fixture;
        set_up(&fixture, kinds[i]);
        holder_fork(&fixture.owner, false);
        CHECK_EQ(holder_check_owner(&fixture.importer), KVMEM_STATUS_OK);
        CHECK(owner_has_its_lock(&fixture.parcel));
        const int child = kill_but_not_its_child(&fixture.owner);
        CHECK(!owner_has_its_lock(&fixture.parcel));
        CHECK_EQ(holder_check_owner(&fixture.importer), KVMEM_STATUS_PEER_LOST);
        holder_check(&fixture.importer, HOLDING_OPENED, 1);
        close(child);
        parcel_close(&fixture.parcel);
        peer_finish(&fixture.importer);
    }
}

TEST(an_owner_that_freed_is_gone) {
    for (int by_clone = 0; by_clone < 2; by_clone++) {
        fixture fixture;
        set_up(&fixture, MEMORY_SYSTEM);
        holder_fork(&fixture.owner, by_clone != 0);
        holder_end_shares(&fixture.owner);
        holder_destroy(&fixture.owner);
        CHECK(!owner_has_its_lock(&fixture.parcel));
        CHECK_EQ(holder_check_owner(&fixture.importer), KVMEM_STATUS_PEER_LOST);
        parcel_close(&fixture.parcel);
        peer_finish(&fixture.importer);
        peer_finish(&fixture.owner);
    }
}
