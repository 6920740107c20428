// SPDX-License-Identifier: Apache-2.0
// Elastic memory that a peer has opened: the owner commits and decommits, and the peer's transfers report it.
// Needs a GPU.
#include "elastic_pair.h"
#include "forged.h"
#include "kept_context.h"
#include "kinds.h"
#include "opened.h"
#include "usage.h"

KEEPING_HOLDER_ROLE

static void open_exchange(elastic_pair *elastic_pair, uint64_t num_blocks) {
    keep_context();
    elastic_pair_open(elastic_pair, num_blocks);
}

#define FETCH(status, from, block) CHECK_EQ(elastic_pair_fetch(&elastic_pair, from, block), status)

TEST(a_share_keeps_its_extents) {
    CLEANUP(elastic_pair_close) elastic_pair elastic_pair;
    open_exchange(&elastic_pair, 7);
    CHECK_EQ(holder_resize(&elastic_pair.owner, 4), KVMEM_STATUS_BUSY);
    FETCH(KVMEM_STATUS_OK, elastic_pair.mapped, 6);
    holder_end_shares(&elastic_pair.owner);
    FETCH(KVMEM_STATUS_OK, elastic_pair.mapped, 5);
    CHECK_EQ(holder_resize(&elastic_pair.owner, 4), KVMEM_STATUS_OK);
}

TEST(decommitted_extents_are_stale) {
    CLEANUP(elastic_pair_close) elastic_pair elastic_pair;
    open_exchange(&elastic_pair, 7);
    OWNED(kvmem_transfer) before = elastic_pair_transfer(&elastic_pair, elastic_pair.mapped, 6);
    CHECK_EQ(elastic_pair_run(before), KVMEM_STATUS_OK);
    const kvmem_block_pair pair = {6, 6};
    kv_expect_moved(&elastic_pair.here, &elastic_pair.there, &(kv_move){&pair, 1, 0, 0, 3});
    holder_end_shares(&elastic_pair.owner);
    CHECK_EQ(holder_resize(&elastic_pair.owner, 4), KVMEM_STATUS_OK);
    CHECK_EQ(elastic_pair_run(before), KVMEM_STATUS_STALE);
    CHECK_HAS(test_last_message(), "share them again");
    FETCH(KVMEM_STATUS_STALE, elastic_pair.mapped, 6);
    FETCH(KVMEM_STATUS_OK, elastic_pair.mapped, 3); /* this extent is unchanged */
    CHECK_EQ(holder_resize(&elastic_pair.owner, 7), KVMEM_STATUS_OK);
    FETCH(KVMEM_STATUS_STALE, elastic_pair.mapped, 6); /* other memory is mapped there now */
    FETCH(KVMEM_STATUS_OK, elastic_pair.mapped, 0);
}

/* Writes to memory without an owner fail too. */
TEST(writes_to_decommitted_extents_fail) {
    CLEANUP(elastic_pair_close) elastic_pair elastic_pair;
    open_exchange(&elastic_pair, 7);
    const kv_move move = KV_MOVE(3, {0, 6});
    OWN(kvmem_transfer, transfer, kv_prepare, elastic_pair.own, elastic_pair.mapped, KV_JOB(&move));
    holder_end_shares(&elastic_pair.owner);
    CHECK_EQ(holder_resize(&elastic_pair.owner, 1), KVMEM_STATUS_OK);
    EXPECT(KVMEM_STATUS_STALE, kvmem_transfer_submit(transfer, NULL, ERR));
}

TEST(committing_more_extents_keeps_the_others) {
    CLEANUP(elastic_pair_close) elastic_pair elastic_pair;
    open_exchange(&elastic_pair, 4);
    FETCH(KVMEM_STATUS_OK, elastic_pair.mapped, 3);
    FETCH(KVMEM_STATUS_INVALID_STATE, elastic_pair.mapped, 6); /* no memory yet */
    CHECK_EQ(holder_resize(&elastic_pair.owner, 7), KVMEM_STATUS_OK);
    FETCH(KVMEM_STATUS_OK, elastic_pair.mapped, 3);
    FETCH(KVMEM_STATUS_INVALID_STATE, elastic_pair.mapped, 6);
}

TEST(a_new_share_has_the_new_extents) {
    CLEANUP(elastic_pair_close) elastic_pair elastic_pair;
    open_exchange(&elastic_pair, 4);
    CHECK_EQ(holder_resize(&elastic_pair.owner, 7), KVMEM_STATUS_OK);
    CLEANUP(parcel_close) parcel grown = holder_share(&elastic_pair.owner, NULL);
    CHECK_EQ(grown.num_fds, elastic_pair.parcel.num_fds + 1);
    OWNED(kvmem_layout) larger = open_layout(&grown, 0, NULL);
    OWNED(kvmem_layout) again = open_layout(&elastic_pair.parcel, 0,
                                            NULL); /* both have the extents of the first share */
    const kv_move move = KV_MOVE(3, {1, 6});
    kv_run(elastic_pair.own, larger, &move);
    kv_expect_moved(&elastic_pair.there, &elastic_pair.here, &move);
    FETCH(KVMEM_STATUS_OK, larger, 6);
    FETCH(KVMEM_STATUS_OK, larger, 0);
    FETCH(KVMEM_STATUS_OK, elastic_pair.mapped, 1);
    FETCH(KVMEM_STATUS_OK, again, 2);
}

TEST(a_new_share_after_a_decommit_has_the_new_memory) {
    CLEANUP(elastic_pair_close) elastic_pair elastic_pair;
    open_exchange(&elastic_pair, 7);
    holder_end_shares(&elastic_pair.owner);
    CHECK_EQ(holder_resize(&elastic_pair.owner, 4), KVMEM_STATUS_OK);
    CHECK_EQ(holder_resize(&elastic_pair.owner, 7), KVMEM_STATUS_OK);
    CLEANUP(parcel_close) parcel again = holder_share(&elastic_pair.owner, NULL);
    OWNED(kvmem_layout) fresh = open_layout(&again, 0, NULL);
    const kvmem_block_pair pair = {0, 6};
    kv_run(elastic_pair.own, fresh, &(kv_move){&pair, 1, 0, 0, 3});
    kv_expect_moved(&elastic_pair.there, &elastic_pair.here, &(kv_move){&pair, 1, 0, 0, 3});
    FETCH(KVMEM_STATUS_OK, fresh, 6);
    FETCH(KVMEM_STATUS_STALE, elastic_pair.mapped, 6);
}

/* Opened after its extents were decommitted. */
TEST(a_share_opened_after_a_decommit_is_stale) {
    CLEANUP(elastic_pair_close) elastic_pair elastic_pair;
    open_exchange(&elastic_pair, 7);
    CALL(kvmem_layout_destroy(elastic_pair.mapped));
    holder_end_shares(&elastic_pair.owner);
    CHECK_EQ(holder_resize(&elastic_pair.owner, 4), KVMEM_STATUS_OK);
    elastic_pair.mapped = open_layout(&elastic_pair.parcel, 0, NULL);
    FETCH(KVMEM_STATUS_STALE, elastic_pair.mapped, 6);
    FETCH(KVMEM_STATUS_OK, elastic_pair.mapped, 0);
}

TEST(only_the_owner_commits_and_decommits) {
    keep_context();
    CLEANUP(holder_clear) peer owner = holder_shared();
    holder_make(&owner, MEMORY_ELASTIC, NULL, 1);
    CLEANUP(parcel_close) parcel parcel = holder_share(&owner, NULL);
    OWNED(kvmem_region) region = open_parcel(&parcel, 0);
    const kvmem_region_info before = region_info(region);
    CHECK_EQ(before.memory_page_size, MEMORY_EXTENT);
    CHECK_EQ(before.num_committed, MEMORY_SIZE / MEMORY_EXTENT);
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "belongs to another process",
                   kvmem_region_commit(region, 0, MEMORY_SIZE, ERR));
    EXPECT(KVMEM_STATUS_UNSUPPORTED, kvmem_region_decommit(region, 0, MEMORY_EXTENT, ERR));
    CHECK_EQ(holder_decommit(&owner, 0, MEMORY_EXTENT), KVMEM_STATUS_BUSY);
    holder_end_shares(&owner);
    CHECK_EQ(holder_decommit(&owner, 0, MEMORY_EXTENT), KVMEM_STATUS_OK);
    CHECK_EQ(region_info(region).generation, before.generation + 1);
    CHECK_EQ(holder_commit(&owner, 0, MEMORY_EXTENT), KVMEM_STATUS_OK);
    CHECK_EQ(region_info(region).generation, before.generation + 2);
    memory_check(region, 1); /* mappings stay until the region is destroyed */
}

/* The maximum number of extents of a control block. */
#define MAX_EXTENTS (UINT64_C(1) << 24)

/* A control block that claims that many, in a sparse file. */
static int sparse_block(const unsigned char *id) {
    struct {
        char magic[8];
        uint32_t version;
        uint32_t extents;
        unsigned char id[16];
        uint64_t rest[4];
    } head = {.magic = "KVMEMCT", .version = 1, .extents = MAX_EXTENTS};
    head.magic[7] = 'L';
    memcpy(head.id, id, sizeof(head.id));
    const int fd = memfd_create("block", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, &head, sizeof(head)), sizeof(head));
    CHECK_EQ(ftruncate(fd, (off_t)(sizeof(head) + MAX_EXTENTS * 4)), 0);
    CHECK_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    return fd;
}

/* Extents that are not committed cost the importer nothing. */
TEST(forged_numbers_of_extents_allocate_nothing) {
    keep_context();
    CLEANUP(holder_clear) peer owner = holder_shared();
    holder_make(&owner, MEMORY_ELASTIC, NULL, 1);
    CLEANUP(parcel_close) parcel parcel = holder_share(&owner, NULL);
    CALL(kvmem_region_destroy(open_parcel(&parcel, 0))); /* warm-up: creates per-process state */
    const int block = sparse_block(forged_bytes(&parcel, "id", 16));
    const uint64_t control = forged_integer(&parcel, "control");
    CHECK(control < parcel.num_fds);
    CHECK_EQ(dup3(block, parcel.fds[control], O_CLOEXEC), parcel.fds[control]);
    close(block);
    forge_integer(&parcel, "size", MAX_EXTENTS * MEMORY_EXTENT);
    /* The driver may have too few addresses for that. */
    OWNED(kvmem_share) share = parcel_share(&parcel);
    const uint64_t before = resident_memory();
    OWNED(kvmem_region) region = NULL;
    const kvmem_status status = kvmem_share_open_region(share, NULL, &region, ERR);
    CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_OUT_OF_MEMORY || status == KVMEM_STATUS_CUDA);
    CHECK(resident_memory() < before + 32 * MIB);
}
