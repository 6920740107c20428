// SPDX-License-Identifier: Apache-2.0
// Elastic memory that others have open grows and shrinks at its owner's, and they are told. Needs a GPU.
#include "forged.h"
#include "kept_context.h"
#include "kinds.h"
#include "opened.h"
#include "shrunk.h"
#include "usage.h"

KEEPING_HOLDER_ROLE

static void open_shrunk(shrunk *shrunk, uint64_t num_blocks) {
    keep_context();
    shrunk_open(shrunk, num_blocks);
}

#define FETCH(status, from, block) CHECK_EQ(shrunk_fetch(&shrunk, from, block), status)

TEST(a_share_keeps_its_extents) {
    CLEANUP(shrunk_close) shrunk shrunk;
    open_shrunk(&shrunk, 7);
    CHECK_EQ(holder_resize(&shrunk.owner, 4), KVMEM_STATUS_BUSY);
    FETCH(KVMEM_STATUS_OK, shrunk.mapped, 6);
    holder_end_shares(&shrunk.owner);
    FETCH(KVMEM_STATUS_OK, shrunk.mapped, 5);
    CHECK_EQ(holder_resize(&shrunk.owner, 4), KVMEM_STATUS_OK);
}

TEST(what_was_taken_back_is_stale) {
    CLEANUP(shrunk_close) shrunk shrunk;
    open_shrunk(&shrunk, 7);
    OWNED(kvmem_transfer) before = shrunk_transfer(&shrunk, shrunk.mapped, 6);
    CHECK_EQ(shrunk_run(before), KVMEM_STATUS_OK);
    const kvmem_block_pair pair = {6, 6};
    kv_expect_moved(&shrunk.here, &shrunk.there, &(kv_move){&pair, 1, 0, 0, 3});
    holder_end_shares(&shrunk.owner);
    CHECK_EQ(holder_resize(&shrunk.owner, 4), KVMEM_STATUS_OK);
    CHECK_EQ(shrunk_run(before), KVMEM_STATUS_STALE);
    CHECK_HAS(test_last_message(), "share them again");
    FETCH(KVMEM_STATUS_STALE, shrunk.mapped, 6);
    FETCH(KVMEM_STATUS_OK, shrunk.mapped, 3); /* that extent is as it was */
    CHECK_EQ(holder_resize(&shrunk.owner, 7), KVMEM_STATUS_OK);
    FETCH(KVMEM_STATUS_STALE, shrunk.mapped, 6); /* other memory is there now */
    FETCH(KVMEM_STATUS_OK, shrunk.mapped, 0);
}

/* Nothing is written either into memory that is nobody's. */
TEST(what_was_taken_back_is_no_destination) {
    CLEANUP(shrunk_close) shrunk shrunk;
    open_shrunk(&shrunk, 7);
    const kv_move move = KV_MOVE(3, {0, 6});
    OWN(kvmem_transfer, transfer, kvmem_transfer_create, shrunk.own, shrunk.mapped, KV_OPTIONS(&move));
    holder_end_shares(&shrunk.owner);
    CHECK_EQ(holder_resize(&shrunk.owner, 1), KVMEM_STATUS_OK);
    EXPECT(KVMEM_STATUS_STALE, kvmem_transfer_submit(transfer, ERR));
}

TEST(growth_leaves_what_was_there) {
    CLEANUP(shrunk_close) shrunk shrunk;
    open_shrunk(&shrunk, 4);
    FETCH(KVMEM_STATUS_OK, shrunk.mapped, 3);
    FETCH(KVMEM_STATUS_INVALID_STATE, shrunk.mapped, 6); /* no memory yet */
    CHECK_EQ(holder_resize(&shrunk.owner, 7), KVMEM_STATUS_OK);
    FETCH(KVMEM_STATUS_OK, shrunk.mapped, 3);
    FETCH(KVMEM_STATUS_INVALID_STATE, shrunk.mapped, 6);
}

TEST(shared_again_it_has_grown_here_too) {
    CLEANUP(shrunk_close) shrunk shrunk;
    open_shrunk(&shrunk, 4);
    CHECK_EQ(holder_resize(&shrunk.owner, 7), KVMEM_STATUS_OK);
    CLEANUP(parcel_close) parcel grown = holder_share(&shrunk.owner, NULL);
    CHECK_EQ(grown.num_fds, shrunk.parcel.num_fds + 1);
    OWNED(kvmem_layout) larger = open_layout(&grown, 0, NULL);
    OWNED(kvmem_layout) again = open_layout(&shrunk.parcel, 0,
                                            NULL); /* either has what the first share has */
    const kv_move move = KV_MOVE(3, {1, 6});
    kv_run(shrunk.own, larger, &move);
    kv_expect_moved(&shrunk.there, &shrunk.here, &move);
    FETCH(KVMEM_STATUS_OK, larger, 6);
    FETCH(KVMEM_STATUS_OK, larger, 0);
    FETCH(KVMEM_STATUS_OK, shrunk.mapped, 1);
    FETCH(KVMEM_STATUS_OK, again, 2);
}

TEST(taken_back_and_shared_again_it_is_new_memory) {
    CLEANUP(shrunk_close) shrunk shrunk;
    open_shrunk(&shrunk, 7);
    holder_end_shares(&shrunk.owner);
    CHECK_EQ(holder_resize(&shrunk.owner, 4), KVMEM_STATUS_OK);
    CHECK_EQ(holder_resize(&shrunk.owner, 7), KVMEM_STATUS_OK);
    CLEANUP(parcel_close) parcel again = holder_share(&shrunk.owner, NULL);
    OWNED(kvmem_layout) fresh = open_layout(&again, 0, NULL);
    const kvmem_block_pair pair = {0, 6};
    kv_run(shrunk.own, fresh, &(kv_move){&pair, 1, 0, 0, 3});
    kv_expect_moved(&shrunk.there, &shrunk.here, &(kv_move){&pair, 1, 0, 0, 3});
    FETCH(KVMEM_STATUS_OK, fresh, 6);
    FETCH(KVMEM_STATUS_STALE, shrunk.mapped, 6);
}

/* Opened after its extents were taken back. */
TEST(a_share_that_comes_late_is_stale) {
    CLEANUP(shrunk_close) shrunk shrunk;
    open_shrunk(&shrunk, 7);
    CALL(kvmem_layout_destroy(shrunk.mapped));
    holder_end_shares(&shrunk.owner);
    CHECK_EQ(holder_resize(&shrunk.owner, 4), KVMEM_STATUS_OK);
    shrunk.mapped = open_layout(&shrunk.parcel, 0, NULL);
    FETCH(KVMEM_STATUS_STALE, shrunk.mapped, 6);
    FETCH(KVMEM_STATUS_OK, shrunk.mapped, 0);
}

static kvmem_elastic_info elastic_info(const kvmem_region *region) {
    GET(kvmem_elastic_info, info, kvmem_region_get_elastic_info, region);
    return info;
}

TEST(it_grows_and_shrinks_at_its_owners_only) {
    keep_context();
    CLEANUP(holder_clear) peer owner = holder_in_common();
    holder_make(&owner, MEMORY_ELASTIC, NULL, 1);
    CLEANUP(parcel_close) parcel parcel = holder_share(&owner, NULL);
    OWNED(kvmem_region) region = open_parcel(&parcel, 0);
    const kvmem_elastic_info before = elastic_info(region);
    CHECK_EQ(before.extent_size, MEMORY_EXTENT);
    CHECK_EQ(before.num_committed, MEMORY_SIZE / MEMORY_EXTENT);
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "belongs to another process",
                   kvmem_region_commit(region, 0, MEMORY_SIZE, ERR));
    EXPECT(KVMEM_STATUS_UNSUPPORTED, kvmem_region_decommit(region, 0, MEMORY_EXTENT, ERR));
    CHECK_EQ(holder_decommit(&owner, 0, MEMORY_EXTENT), KVMEM_STATUS_BUSY);
    holder_end_shares(&owner);
    CHECK_EQ(holder_decommit(&owner, 0, MEMORY_EXTENT), KVMEM_STATUS_OK);
    CHECK_EQ(elastic_info(region).generation, before.generation + 1);
    CHECK_EQ(holder_commit(&owner, 0, MEMORY_EXTENT), KVMEM_STATUS_OK);
    CHECK_EQ(elastic_info(region).generation, before.generation + 2);
    memory_check(region, 1); /* what was mapped stays until it is let go of */
}

/* The most extents that a control block tells of. */
#define MOST_EXTENTS (UINT64_C(1) << 24)

/* A control block that claims them, and takes no memory itself. */
static int sparse_block(const unsigned char *id) {
    struct {
        char magic[8];
        uint32_t version;
        uint32_t extents;
        unsigned char id[16];
        uint64_t rest[4];
    } head = {.magic = "KVMEMCT", .version = 1, .extents = MOST_EXTENTS};
    head.magic[7] = 'L';
    memcpy(head.id, id, sizeof(head.id));
    const int fd = memfd_create("block", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, &head, sizeof(head)), sizeof(head));
    CHECK_EQ(ftruncate(fd, (off_t)(sizeof(head) + MOST_EXTENTS * 4)), 0);
    CHECK_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    return fd;
}

/* What is claimed to be there some day costs who opens it nothing now. */
TEST(extents_that_are_only_claimed_take_no_memory) {
    keep_context();
    CLEANUP(holder_clear) peer owner = holder_in_common();
    holder_make(&owner, MEMORY_ELASTIC, NULL, 1);
    CLEANUP(parcel_close) parcel parcel = holder_share(&owner, NULL);
    CALL(kvmem_region_destroy(open_parcel(&parcel, 0))); /* what stays for good is there now */
    const int block = sparse_block(forged_bytes(&parcel, "id", 16));
    const uint64_t control = forged_integer(&parcel, "control");
    CHECK(control < parcel.num_fds);
    CHECK_EQ(dup3(block, parcel.fds[control], O_CLOEXEC), parcel.fds[control]);
    close(block);
    forge_integer(&parcel, "size", MOST_EXTENTS * MEMORY_EXTENT);
    /* A driver may have fewer addresses than that. */
    OWNED(kvmem_share) share = parcel_share(&parcel);
    const uint64_t before = resident_memory();
    OWNED(kvmem_region) region = NULL;
    const kvmem_status status = kvmem_share_open_region(share, NULL, &region, ERR);
    CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_OUT_OF_MEMORY || status == KVMEM_STATUS_CUDA);
    CHECK(resident_memory() < before + 32 * MIB);
}
