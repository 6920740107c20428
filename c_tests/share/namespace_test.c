// SPDX-License-Identifier: Apache-2.0
// Processes in different PID namespaces, as in different containers: they do not see each other's process
// ids.
#include "holder.h"
#include "kinds.h"
#include "opened.h"

HOLDER_ROLE

#ifdef KVMEM_TEST_SHARE_GPU
/* Kinds shared by file descriptor. A handle contains the process id of its exporter, which the stand-in does
   not resolve across namespaces. */
static const memory_kind kinds[] = {MEMORY_PINNED, MEMORY_ELASTIC, MEMORY_MAPPED};
#else
static const memory_kind kinds[] = {MEMORY_SYSTEM, MEMORY_PART, MEMORY_DISK};
#endif

/* Peers started after this are in a new namespace: the first has process id 1 there, and the others end with
   it. */
static int enter_new_namespace(void) {
    const int own = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    CHECK(own >= 0);
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0)
        FAIL("this machine allows no PID namespace: %s", strerror(errno));
    return own;
}

static void leave_namespace(int own) {
    CHECK_EQ(setns(own, CLONE_NEWPID), 0);
    close(own);
}

static peer start_in_new_namespace(void) {
    const int own = enter_new_namespace();
    const peer started = holder_start();
    leave_namespace(own);
    return started;
}

TEST(an_owner_in_another_namespace_is_checked) {
    for (size_t i = 0; i < NUM(kinds); i++) {
        peer owner = start_in_new_namespace();
        holder_make(&owner, kinds[i], NULL, 1);
        CLEANUP(parcel_close) parcel parcel = holder_share(&owner, NULL);
        kvmem_share *share = parcel_share(&parcel);
        CHECK_EQ(share_info(share).pid, 1); /* as in that namespace */
        kvmem_share_destroy(share);
        OWNED(kvmem_region) region = open_parcel(&parcel, 0);
        memory_check(region, 1);
        memory_fill(region, 2);
        holder_check(&owner, HOLDING_OWN, 2);
        EXPECT_OK(kvmem_region_check_owner(region, ERR));
        CHECK_EQ(holder_holders(&owner, HOLDING_OWN).importers, 1);
        peer_kill(&owner);
        EXPECT(KVMEM_STATUS_PEER_LOST, kvmem_region_check_owner(region, ERR));
        memory_check(region, 2);
    }
}

TEST(an_importer_in_another_namespace_is_counted_until_it_ends) {
    for (size_t i = 0; i < NUM(kinds); i++) {
        OWNED(kvmem_region) region = memory_create(kinds[i], MEMORY_SIZE, NULL);
        memory_fill(region, 1);
        OWN(kvmem_share, share, kvmem_share_create_region, region, NULL);
        CLEANUP(parcel_close) parcel parcel = parcel_of(share);
        peer importer = start_in_new_namespace();
        CHECK_EQ(holder_open(&importer, &parcel, 0), KVMEM_STATUS_OK);
        holder_check(&importer, HOLDING_OPENED, 1);
        CHECK_EQ(holder_check_owner(&importer), KVMEM_STATUS_OK);
        CHECK_EQ(region_holders(region).importers, 1);
        peer_kill(&importer);
        CHECK_EQ(region_holders(region).importers, 0);
    }
}

/* Its /proc is still that of the outer namespace, in which its process ids belong to other processes. */
TEST(a_proc_of_another_namespace_does_not_mislead_the_check) {
    for (size_t i = 0; i < NUM(kinds); i++) {
        const int own = enter_new_namespace();
        CLEANUP(peer_finish) peer owner = holder_start();
        CLEANUP(peer_finish) peer importer = holder_start();
        leave_namespace(own);
        holder_make(&owner, kinds[i], NULL, 1);
        CLEANUP(parcel_close) parcel parcel = holder_share(&owner, NULL);
        CHECK_EQ(holder_open(&importer, &parcel, 0), KVMEM_STATUS_OK);
        CHECK_EQ(holder_check_owner(&importer), KVMEM_STATUS_OK);
        CHECK_EQ(holder_open(&owner, &parcel, 0), KVMEM_STATUS_OK); /* its own */
        CHECK_EQ(holder_info(&owner, HOLDING_OPENED).address, holder_info(&owner, HOLDING_OWN).address);
        holder_end_shares(&owner);
        holder_close(&owner);
        holder_destroy(&owner);
        CHECK_EQ(holder_check_owner(&importer), KVMEM_STATUS_PEER_LOST);
    }
}

#ifdef KVMEM_TEST_SHARE_GPU
TEST(a_handle_from_another_namespace_fails) {
    CLEANUP(peer_finish) peer owner = start_in_new_namespace();
    holder_make(&owner, MEMORY_DEVICE, NULL, 1);
    CLEANUP(parcel_close) parcel parcel = holder_share(&owner, NULL);
    refuse_parcel(&parcel, 0, KVMEM_STATUS_UNSUPPORTED, "identifies no memory that can be opened here");
    refuse_parcel(&parcel, 0, KVMEM_STATUS_UNSUPPORTED,
                  "the handle was exported by process 1 in PID namespace");
    refuse_parcel(&parcel, 0, KVMEM_STATUS_UNSUPPORTED, "or share elastic memory");
    CHECK_EQ(holder_holders(&owner, HOLDING_OWN).importers, 0);
    holder_check(&owner, HOLDING_OWN, 1);
}
#endif
