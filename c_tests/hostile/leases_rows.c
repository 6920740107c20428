// SPDX-License-Identifier: Apache-2.0
// Importers that lease blocks. The victim owns a layout, and asks who uses its blocks. The healthy importer reads a block that it has
// leased, if it gets a lease: another importer can take all of them, which docs/epochs.md says.
#include "hostile.h"

#include <fcntl.h>

HOSTILE_CASES

#define BLOCKS 64
#define HEALTHY_BLOCK 5
/* Where locks of leases are: docs/share-manifest.md. */
#define FIRST_LEASE (INT64_C(1) << 62)
#define HEADER_SIZE (INT64_C(1) << 47)
#define LONG_AFTER ((INT64_C(1) << 46) + (INT64_C(1) << 45)) /* an end in a header */
#define FIRST_LEVEL (FIRST_LEASE + (INT64_C(1) << 61))
#define CELL_SIZE (INT64_C(1) << 17)
#define NUM_SLOTS 8191

static const uint32_t healthy_block = HEALTHY_BLOCK;

/* ---- the victim ---- */

static kvmem_broker *broker;
static kvmem_layout *layout;

static kvmem_layout *build(uint64_t flags) {
    const kvmem_layout_config config = WITH(kv_config(&kv_kinds[0]), it.num_blocks = BLOCKS);
    const kvmem_system_options system = {.struct_size = sizeof(system), .flags = flags};
    return MADE(kvmem_layout, kvmem_layout_build,
                REF(OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_ALLOCATE, it.system = &system)));
}

static void open_victim(void) {
    kvmem_token token;
    layout = build(KVMEM_SYSTEM_SHAREABLE);
    EXPECT_OK(kvmem_layout_create_epochs(layout, NULL, ERR));
    OWN(kvmem_share, share, kvmem_share_create_layout, layout, NULL);
    EXPECT_OK(kvmem_broker_create(REF(OPTIONS(kvmem_broker_options, it.path = hostile_path("owner socket"))), &broker, ERR));
    EXPECT_OK(kvmem_broker_publish(broker, "kv", share, NULL, &token, ERR));
    hostile_put("owner token", &token, sizeof(token));
}

/* The question ends, whatever importers have locked; who holds a lease of a block is one of them, or unknown. */
static void ask(void) {
    kvmem_block_access found[256];
    uint32_t blocks[BLOCKS];
    size_t count = 0;
    for (uint32_t i = 0; i < BLOCKS; i++) blocks[i] = i;
    EXPECT_OK(kvmem_layout_get_accesses(layout, blocks, BLOCKS, found, NUM(found), &count, ERR));
    for (size_t i = 0; i < count && i < NUM(found); i++) {
        CHECK(found[i].block < BLOCKS);
        CHECK_EQ(found[i].accessor, KVMEM_ACCESSOR_LEASE);
        CHECK_EQ(found[i].reads, 1);
    }
}

static void close_victim(void) {
    kvmem_broker_destroy(broker);
    kvmem_layout_destroy(layout);
}

/* ---- importers ---- */

static kvmem_share *share;
static kvmem_layout *mapped;

static void fetch(void) {
    kvmem_token token;
    CLEANUP(message_free) message taken = hostile_take("owner token");
    memcpy(&token, taken.data, sizeof(token));
    share = MADE(kvmem_share, kvmem_share_fetch,
                 REF(OPTIONS(kvmem_fetch_options, it.path = hostile_path("owner socket"), it.name = "kv", it.token = &token)), PATIENCE);
    mapped = MADE(kvmem_layout, kvmem_share_open_layout, share, NULL);
}

static kvmem_layout *own;
static kvmem_transfer *transfer;

static void open_healthy(void) {
    fetch();
    own = build(0);
    transfer = MADE(kvmem_transfer, kvmem_transfer_create, mapped, own, NULL);
}

static void read_leased(void) {
    OWNED(kvmem_lease) lease = NULL;
    const kvmem_status status = kvmem_lease_create(mapped, &healthy_block, 1, NULL, &lease, ERR);
    if (status != KVMEM_STATUS_OK) CHECK_EQ(status, KVMEM_STATUS_BUSY);
    const uint64_t epoch = 0;
    const kvmem_submit_options run = {.struct_size = sizeof(run), .pairs = REF(((kvmem_block_pair){HEALTHY_BLOCK, 0})),
                                      .num_pairs = 1, .epochs = &epoch};
    RUN_WITH(transfer, &run);
}

static void close_healthy(void) {
    kvmem_transfer_destroy(transfer);
    kvmem_layout_destroy(own);
    kvmem_layout_destroy(mapped);
    kvmem_share_destroy(share);
}

/* ---- the hostile importer ---- */

static int control; /* an open of the control block of its own */
static kvmem_lease *leases[400];

static void open_hostile(void) {
    char path[64];
    fetch();
    GET(kvmem_share_info, info, kvmem_share_get_info, share);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", info.fds[0]);
    control = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(control >= 0);
}

static void lock_bytes(int64_t first, int64_t count) {
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = first, .l_len = count};
    CHECK_EQ(fcntl(control, F_OFD_SETLK, &lock), 0);
}

static void lock_everything(unsigned turn) {
    (void)turn;
    lock_bytes(1 << 20, 0);
}

/* An end in each slot: leases of nothing. */
static void lock_ends(unsigned turn) {
    for (int64_t i = 0; i < 200; i++) lock_bytes(FIRST_LEASE + (turn * 200 + i) % NUM_SLOTS * HEADER_SIZE + LONG_AFTER, 1);
}

static void lock_many_bytes(unsigned turn) {
    lock_bytes(FIRST_LEASE + LONG_AFTER, 1);
    for (int64_t i = 0; i < 200; i++) lock_bytes(FIRST_LEVEL + 2 * (turn * 200 + i), 1);
}

/* Bytes of all slots, of which there is no lease, and some that hide each other. */
static void lock_many_cells(unsigned turn) {
    for (int64_t i = 0; i < 200; i++) lock_bytes(FIRST_LEVEL + (turn * 200 + i) * CELL_SIZE + i, 100 + i % 7 / 6 * CELL_SIZE);
}

/* As many as the library gives it, of all blocks. */
static void lease_everything(unsigned turn) {
    uint32_t blocks[BLOCKS];
    for (uint32_t i = 0; i < BLOCKS; i++) blocks[i] = i;
    for (size_t i = 0; i < NUM(leases); i++) {
        if (turn % 2 == 1) DESTROYED(kvmem_lease, leases[i]);
        else (void)kvmem_lease_create(mapped, blocks, BLOCKS, NULL, &leases[i], ERR);
    }
}

static void renew_without_end(unsigned turn) {
    if (turn == 0) EXPECT_OK(kvmem_lease_create(mapped, &healthy_block, 1, NULL, &leases[0], ERR));
    for (int i = 0; i < 2000; i++) EXPECT_OK(kvmem_lease_renew(leases[0], 1 + hostile_random() % 1000000000 + 60000000000, ERR));
}

static const hostile_row rows[] = {
    {.does = "locks everything, once", .act = lock_everything},
    {.does = "locks the ends of leases in all slots", .act = lock_ends, .turns = 20},
    {.does = "locks many bytes of one lease", .act = lock_many_bytes, .turns = 20},
    {.does = "locks bytes of all leases, and none of them", .act = lock_many_cells, .turns = 20},
    {.does = "leases all blocks as often as it can", .act = lease_everything},
    {.does = "renews a lease without end", .act = renew_without_end},
    {.does = "leases all blocks, and stops", .act = lease_everything, .turns = 1, .stops = true},
};

const hostile_form hostile_form_here = {
    .victim = {.open = open_victim, .deal = ask, .close = close_victim},
    .healthy = {.open = open_healthy, .round = read_leased, .close = close_healthy},
    .open_hostile = open_hostile,
    HOSTILE_ROWS_OF_LITTLE,
    .bounds = {.longest_ms = 1000, .share = 0.005, .processors = 0.25},
};
