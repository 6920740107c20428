// SPDX-License-Identifier: Apache-2.0
// Transfers through staging memory whose requests NIXL does not release.
#include "stand_in.h"

#define NUM_BLOCKS 128

static kvmem_layout_config config_of(void) {
    return WITH(kv_config(&kv_kinds[0]), it.num_blocks = NUM_BLOCKS, it.inner_dim = 24);
}

/* The request is complete, and its chunk is in the slot: it is not copied, because NIXL may still write to the slot. */
TEST(a_chunk_whose_request_is_not_released_fails_the_run) {
    nixl_find_stand_in();
    const kvmem_layout_config config = config_of();
    OWNED(kvmem_agent) near = agent_open("near");
    OWNED(kvmem_agent) far = agent_open("far");
    kv_side here, there;
    kv_side_open(&here, &config, near, 1);
    kv_side_open(&there, &config, far, 2);
    agents_introduce(near, far);
    kvmem_layout *remote = layout_import(near, there.layout);
    kvmem_block_pair pairs[NUM_BLOCKS];
    for (uint32_t i = 0; i < NUM_BLOCKS; i++) pairs[i] = (kvmem_block_pair){i, NUM_BLOCKS - 1 - i};
    const kv_move all = {pairs, NUM_BLOCKS, 0, 0, config.num_layers};
    kvmem_transfer *staged =
        MADE(kvmem_transfer, kv_prepare, remote, here.layout,
             KV_JOB(&all, it.transfer.method = KVMEM_METHOD_NIXL_STAGED, it.transfer.staging_size = 8 * 4096));
    RUN(staged);
    /* The stand-in moves nothing, and slots are new memory: they have no such bytes. */
    memset(here.memory + here.starts[0], 0xAA, kv_region_size(&config));
    NIXL(nixl_sim_fail_release(3));
    RUN_ENDS(KVMEM_STATUS_NIXL, "release a request", staged);
    /* A slot is lost, and not the arena. */
    for (int i = 0; i < 20; i++) RUN(staged);
    const unsigned char *memory = here.memory + here.starts[0];
    for (size_t i = 0; i < kv_region_size(&config); i++) CHECK(memory[i] != 0xAA);
    DESTROYED(kvmem_transfer, staged);
    DESTROYED(kvmem_layout, remote);
    kv_side_close(&here);
    kv_side_close(&there);
}
