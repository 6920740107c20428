// SPDX-License-Identifier: Apache-2.0
// Damaged or forged control blocks: every byte is changed, before the region is opened and while it is open.
// Opening and the functions that read the block return a value or an error, and mapped memory stays readable.
#include "forged.h"
#include "target.h"

KEEPING_HOLDER_ROLE

/* The offset of each word, see docs/share-manifest.md. The first file descriptor of a region is its control
   block. */
enum { VERSION = 8, GENERATION = 32, CLOSED = 40, RESERVED = 48, HEAD = 64 };
#define MAX_BYTES 4096

static const unsigned char changes[] = {0x01, 0x80, 0xFF};

/* A control block of the test that replaces the owner's: open and locked as the owner's is. */
typedef struct block {
    int file;
    unsigned char bytes[MAX_BYTES];
    size_t size;
} block;

static block block_of(const parcel *parcel) {
    block block = {.file = -1};
    struct stat stat;
    CHECK_EQ(fstat(parcel->fds[0], &stat), 0);
    block.size = (size_t)stat.st_size;
    CHECK(block.size >= HEAD && block.size <= sizeof(block.bytes));
    CHECK_EQ(pread(parcel->fds[0], block.bytes, block.size, 0), block.size);
    return block;
}

/* Puts the first `size` bytes of this block into the parcel. */
static void put_block(parcel *parcel, block *block, size_t size, int seals) {
    block->file = memfd_create("block", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(block->file >= 0);
    CHECK_EQ(pwrite(block->file, block->bytes, size, 0), size);
    CHECK_EQ(fcntl(block->file, F_ADD_SEALS, seals), 0);
    struct flock owner = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    CHECK_EQ(fcntl(block->file, F_OFD_SETLK, &owner), 0);
    close(parcel->fds[0]);
    parcel->fds[0] = reopen_fd(block->file, O_RDONLY);
    CHECK(parcel->fds[0] >= 0);
}

static void free_block(block *block) {
    close(block->file);
    block->file = -1;
}

typedef struct fixture {
    target target;
    parcel forged;
    block block;
} fixture;

static void fixture_open(fixture *fixture, memory_kind kind) {
    target_open(&fixture->target, kind, NULL);
    fixture->forged = parcel_copy(&fixture->target.parcel);
    fixture->block = block_of(&fixture->target.parcel);
}

static void fixture_close(fixture *fixture) {
    parcel_close(&fixture->forged);
    target_close(&fixture->target);
}

static void expect_one_of(kvmem_status status, kvmem_status first, kvmem_status second, const char *call,
                          size_t at) {
    if (status != first && status != second)
        FAIL("%s, byte %zu: %s: %s", call, at, kvmem_status_name(status), test_last_message());
}

/* Calls everything that reads the block. The owner lives unless the block says otherwise. */
static void read_everything(kvmem_region *region, memory_kind kind, size_t at) {
    const bool is_closed = at >= CLOSED && at < RESERVED;
    const kvmem_status lives = is_closed ? KVMEM_STATUS_PEER_LOST : KVMEM_STATUS_OK;
    expect_one_of(kvmem_region_check_owner(region, ERR), lives, lives, "check_owner", at);
    GET(kvmem_region_holders, holders, kvmem_region_get_holders, region);
    kvmem_region *view = NULL;
    const kvmem_status viewed = kvmem_region_create_view(region, 0, MEMORY_EXTENT, &view, ERR);
    expect_one_of(viewed, KVMEM_STATUS_OK, KVMEM_STATUS_STALE, "create_view", at);
    CALL(kvmem_region_destroy(view));
    if (memory_tier(kind) == KVMEM_TIER_ELASTIC) {
        CHECK_EQ(region_info(region).num_extents, MEMORY_SIZE / MEMORY_EXTENT);
    }
    unsigned char page[4096];
    memory_read(region, MEMORY_SIZE - sizeof(page), page, sizeof(page));
}

/* The fields that identify the block must match. A share by handle keeps no memory, so its owner must live
   and its extents must be unchanged. */
static void check_opening(kvmem_status status, memory_kind kind, size_t at) {
    if (at < GENERATION) {
        const bool is_version = at >= VERSION && at < VERSION + 4;
        const kvmem_status refusal = is_version ? KVMEM_STATUS_VERSION_MISMATCH : KVMEM_STATUS_CORRUPT;
        expect_one_of(status, refusal, refusal, "opening", at);
    } else if (at >= HEAD) {
        expect_one_of(status, KVMEM_STATUS_OK, KVMEM_STATUS_STALE, "opening", at);
    } else if (at >= CLOSED && at < RESERVED && memory_is_shared_by_handle(kind)) {
        expect_one_of(status, KVMEM_STATUS_PEER_LOST, KVMEM_STATUS_PEER_LOST, "opening", at);
    } else {
        expect_one_of(status, KVMEM_STATUS_OK, KVMEM_STATUS_OK, "opening", at);
    }
}

static kvmem_status open_forged(const parcel *parcel, kvmem_region **region) {
    OWNED(kvmem_share) share = parcel_share(parcel);
    return kvmem_share_open_region(share, NULL, region, ERR);
}

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

TEST_EACH_KIND(a_changed_byte_gives_an_error_or_a_value) {
    OPENED(fixture, fixture, kind);
    block *block = &fixture.block;
    for (size_t i = 0; i < block->size * NUM(changes); i++) {
        const size_t at = i / NUM(changes);
        block->bytes[at] ^= changes[i % NUM(changes)];
        put_block(&fixture.forged, block, block->size, SEALS);
        block->bytes[at] ^= changes[i % NUM(changes)];
        OWNED(kvmem_region) region = NULL;
        const kvmem_status status = open_forged(&fixture.forged, &region);
        check_opening(status, kind, at);
        if (status == KVMEM_STATUS_OK) read_everything(region, kind, at);
        free_block(block);
    }
}

TEST_EACH_KIND(bytes_changed_by_the_owner_while_open_give_an_error_or_a_value) {
    OPENED(fixture, fixture, kind);
    block *block = &fixture.block;
    put_block(&fixture.forged, block, block->size, SEALS);
    kvmem_region *region = NULL;
    EXPECT_OK(open_forged(&fixture.forged, &region));
    for (size_t i = 0; i < block->size * NUM(changes); i++) {
        const size_t at = i / NUM(changes);
        const unsigned char changed = block->bytes[at] ^ changes[i % NUM(changes)];
        CHECK_EQ(pwrite(block->file, &changed, 1, (off_t)at), 1);
        read_everything(region, kind, at);
        CHECK_EQ(pwrite(block->file, &block->bytes[at], 1, (off_t)at), 1);
    }
    read_everything(region, kind, GENERATION);
    CALL(kvmem_region_destroy(region));
    free_block(block);
}

static void refuse_block(fixture *fixture, size_t size, int seals) {
    put_block(&fixture->forged, &fixture->block, size, seals);
    kvmem_region *region = NULL;
    const kvmem_status status = open_forged(&fixture->forged, &region);
    expect_one_of(status, KVMEM_STATUS_CORRUPT, KVMEM_STATUS_CORRUPT, "opening with another size", size);
    CHECK(region == NULL);
    free_block(&fixture->block);
}

TEST_EACH_KIND(a_block_of_another_size_is_corrupt) {
    OPENED(fixture, fixture, kind);
    const size_t size = fixture.block.size;
    for (size_t cut = 0; cut < size; cut++) refuse_block(&fixture, cut, SEALS);
    for (size_t more = 1; more <= HEAD; more++) refuse_block(&fixture, size + more, SEALS);
    refuse_block(&fixture, size, F_SEAL_GROW);
}
