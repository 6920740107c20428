// SPDX-License-Identifier: Apache-2.0
// Repeated runs of a transfer with a peer: after the first runs, the library allocates no memory on any
// thread. NIXL's allocations for a request are not counted.
#include "allocations.h"
#include "harness.h"

KV_PEER_ROLE

#define NUM_BLOCKS 500

static kvmem_block_pair backwards[NUM_BLOCKS];
static const kv_move all_layers = {backwards, NUM_BLOCKS, 0, 0, 3};

/* A request to an owner names at most about 21,800 spans of blocks. */
#define MANY_BLOCKS 50000

static kvmem_block_pair many_backwards[MANY_BLOCKS];
static const kv_move many_blocks = {many_backwards, MANY_BLOCKS, 0, 0, 1};

/* The library allocates when a transfer is created, not when it is repeated. */
static void check_path(const kvmem_layout *source, const kvmem_layout *destination,
                       const kvmem_transfer_options *options, uint32_t path) {
    const unsigned before = allocations_counted();
    OWN(kvmem_transfer, transfer, kvmem_transfer_create, source, destination, options);
    CHECK(allocations_counted() > before); /* allocations are counted */
    RUN(transfer);
    GET(kvmem_transfer_info, info, kvmem_transfer_get_info, transfer);
    CHECK_EQ(info.path, path);
    char what[32];
    snprintf(what, sizeof(what), "path %u", path);
    check_repeats(transfer, what);
}

static kvmem_layout_config config_of(const kv_kind *kind) {
    return WITH(kv_config(kind), it.num_blocks = NUM_BLOCKS, it.inner_dim = 64);
}

/* With an arena of `arena_size`, in both directions. */
static void check_paths(uint64_t arena_size) {
    kv_meeting meeting;
    const kvmem_serve_options serve =
        OPTIONS(kvmem_serve_options, it.flags = KVMEM_SERVE_WRITE, it.arena_size = arena_size);
    for (uint32_t i = 0; i < NUM_BLOCKS; i++) backwards[i] = (kvmem_block_pair){i, NUM_BLOCKS - 1 - i};
    kv_meeting_open_served(&meeting, "near", "far", REF(config_of(&kv_kinds[1])),
                           REF(config_of(&kv_kinds[0])), &serve);
    const kvmem_layout *near = meeting.side.layout, *far = meeting.peer.model.layout;
    allocations_count();
#define CHECK_PATH(direction, from, to)                                                              \
    check_path(from, to,                                                                          \
                  KV_OPTIONS(&all_layers, it.path = KVMEM_PATH_NIXL_##direction, it.staging_size = arena_size), \
                  KVMEM_PATH_NIXL_##direction)
    CHECK_PATH(READ, far, near);
    CHECK_PATH(WRITE, near, far);
    CHECK_PATH(READ_STAGED, far, near);
    CHECK_PATH(WRITE_STAGED, near, far);
    CHECK_PATH(READ_SERVED, far, near);
    CHECK_PATH(WRITE_SERVED, near, far);
    kv_meeting_close(&meeting);
}

TEST(runs_of_one_chunk_allocate_nothing) { check_paths(0); }

TEST(runs_of_many_chunks_allocate_nothing) { check_paths(8 * 64 * 4096); }

TEST(runs_of_several_requests_to_an_owner_allocate_nothing) {
    kv_meeting meeting;
    for (uint32_t i = 0; i < MANY_BLOCKS; i++) many_backwards[i] = (kvmem_block_pair){i, MANY_BLOCKS - 1 - i};
    const kvmem_layout_config config =
        WITH(kv_config(&kv_kinds[0]), it.num_blocks = MANY_BLOCKS, it.num_layers = 1, it.page_size = 1);
    kv_meeting_open_served(&meeting, "near", "far", &config, &config,
                           REF(OPTIONS(kvmem_serve_options, it.flags = KVMEM_SERVE_WRITE)));
    const kvmem_layout *near = meeting.side.layout, *far = meeting.peer.model.layout;
    allocations_count();
    check_path(far, near, KV_OPTIONS(&many_blocks, it.path = KVMEM_PATH_NIXL_READ_SERVED),
               KVMEM_PATH_NIXL_READ_SERVED);
    check_path(near, far, KV_OPTIONS(&many_blocks, it.path = KVMEM_PATH_NIXL_WRITE_SERVED),
               KVMEM_PATH_NIXL_WRITE_SERVED);
    kv_meeting_close(&meeting);
}
