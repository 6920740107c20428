// SPDX-License-Identifier: Apache-2.0
// Repeated runs of a transfer with a peer that use no staging memory: after the first runs, the library
// allocates no memory on any thread. NIXL's allocations for a request are not counted.
#include "allocations.h"
#include "harness.h"

KV_PEER_ROLE

#define NUM_BLOCKS 500

static kvmem_block_pair backwards[NUM_BLOCKS];
static const kv_move all_layers = {backwards, NUM_BLOCKS, 0, 0, 3};

/* The library allocates when a transfer is created, not when it is repeated. */
static void check_method(const kvmem_layout *source, const kvmem_layout *destination,
                         const kv_job *options, uint32_t method) {
    const unsigned before = allocations_counted();
    OWN(kvmem_transfer, transfer, kv_prepare, source, destination, options);
    CHECK(allocations_counted() > before); /* allocations are counted */
    RUN(transfer);
    GET(kvmem_transfer_info, info, kvmem_transfer_get_info, transfer);
    CHECK_EQ(info.method, method);
    char what[32];
    snprintf(what, sizeof(what), "method %u", method);
    check_repeats(transfer, what);
}

static kvmem_layout_config config_of(const kv_kind *kind) {
    return WITH(kv_config(kind), it.num_blocks = NUM_BLOCKS, it.inner_dim = 64);
}

TEST(runs_between_the_layouts_allocate_nothing) {
    kv_meeting meeting;
    for (uint32_t i = 0; i < NUM_BLOCKS; i++) backwards[i] = (kvmem_block_pair){i, NUM_BLOCKS - 1 - i};
    kv_meeting_open(&meeting, "near", "far", REF(config_of(&kv_kinds[1])), REF(config_of(&kv_kinds[0])));
    const kvmem_layout *near = meeting.side.layout, *far = meeting.peer.model.layout;
    allocations_count();
    const kv_job *const direct = KV_JOB(&all_layers, it.transfer.method = KVMEM_METHOD_NIXL);
    check_method(far, near, direct, KVMEM_METHOD_NIXL);
    check_method(near, far, direct, KVMEM_METHOD_NIXL);
    kv_meeting_close(&meeting);
}
