// SPDX-License-Identifier: Apache-2.0
// After the first runs of a transfer between a peer and GPU memory through staging memory, kvmem allocates no
// memory for further runs, on any thread. Allocations of the driver and of NIXL are not counted.
#include "allocations.h"
#include "caller_context.h"
#include "side_peer.h"

SIDE_PEER_ROLE

#define NUM_BLOCKS 500

static kvmem_block_pair backwards[NUM_BLOCKS];
static const kv_move all_layers = {backwards, NUM_BLOCKS, 0, 0, 3};

static kvmem_layout_config config_of(const kv_kind *kind) {
    return WITH(side_config(kind), it.num_blocks = NUM_BLOCKS);
}

/* Between memory of a GPU and a served layout in host memory of a peer, through arenas of `arena_size`. */
static void repeat_with(place here, uint64_t arena_size) {
    for (uint32_t i = 0; i < NUM_BLOCKS; i++) backwards[i] = (kvmem_block_pair){i, NUM_BLOCKS - 1 - i};
    OWNED(kvmem_agent) agent = agent_open("near");
    CLEANUP(kv_peer_close) kv_peer peer;
    side_peer_start_served(&peer, "far", PLACE_SYSTEM, 0, REF(config_of(&kv_kinds[1])), 100,
                           REF(OPTIONS(kvmem_serve_options, it.flags = KVMEM_SERVE_WRITE,
                                       it.arena_size = arena_size)));
    kv_peer_meet(&peer, agent);
    OPENED(side, own, here, 0, REF(config_of(&kv_kinds[0])), agent, 1);
    const kvmem_layout *near = own.model.layout, *far = peer.model.layout;
    const struct {
        const kvmem_layout *source, *destination;
        uint32_t path;
    } cases[] = {
        {far, near, KVMEM_PATH_NIXL_READ_STAGED},
        {near, far, KVMEM_PATH_NIXL_WRITE_STAGED},
        {far, near, KVMEM_PATH_NIXL_READ_SERVED},
        {near, far, KVMEM_PATH_NIXL_WRITE_SERVED},
    };
    allocations_count();
    for (size_t i = 0; i < NUM(cases); i++) {
        kvmem_transfer_options options = kv_transfer_options(&all_layers);
        options.path = cases[i].path;
        options.staging_size = arena_size;
        OWN(kvmem_transfer, transfer, kvmem_transfer_create, cases[i].source, cases[i].destination, &options);
        GET(kvmem_transfer_info, info, kvmem_transfer_get_info, transfer);
        CHECK_EQ(info.path, cases[i].path);
        char what[64];
        snprintf(what, sizeof(what), "path %u, place %d", cases[i].path, here);
        check_repeats(transfer, what);
    }
}

TEST_CALL(device_memory_in_one_chunk, repeat_with(PLACE_DEVICE, 0))
TEST_CALL(device_memory_in_many_chunks, repeat_with(PLACE_DEVICE, 8 * 64 * 4096))
TEST_CALL(elastic_memory_in_many_chunks, repeat_with(PLACE_ELASTIC, 8 * 64 * 4096))
