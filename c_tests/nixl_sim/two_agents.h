// SPDX-License-Identifier: Apache-2.0
// Two agents of this process with the stand-in for NIXL, and transfers between them.
#pragma once

#include "stand_in.h"

#define NUM_BLOCKS 128
/* A request has at most 8192 descriptors, and 65536 descriptors are kept between runs. */
#define MANY_BLOCKS (10 * 8192)

/* 32 MiB, which need two requests. */
static inline kvmem_layout_config two_requests(void) {
    return WITH(kv_large_config(&kv_kinds[0]), it.num_blocks = NUM_BLOCKS);
}

/* All blocks in reverse order, by a method or by any. */
static inline kvmem_transfer *create_by(uint32_t method, const kvmem_layout *source,
                                        const kvmem_layout *destination,
                                        uint64_t num_blocks, uint64_t num_layers) {
    static kvmem_block_pair pairs[MANY_BLOCKS];
    for (uint64_t i = 0; i < num_blocks; i++) pairs[i] = (kvmem_block_pair){i, num_blocks - 1 - i};
    const kv_move all = {pairs, num_blocks, 0, 0, num_layers};
    return MADE(kvmem_transfer, kv_prepare, source, destination, KV_JOB(&all, it.transfer.method = method));
}

static inline kvmem_transfer *create(const kvmem_layout *source, const kvmem_layout *destination,
                                     uint64_t num_blocks, uint64_t num_layers) {
    return create_by(0, source, destination, num_blocks, num_layers);
}

/* Two agents of this process, and a transfer of one or two requests between them. */
typedef struct pair {
    kvmem_agent *near, *far;
    kv_side near_side, far_side;
    kvmem_region *region; /* of the near side */
    kvmem_layout *local, *remote;
    kvmem_transfer *transfer;
} pair;

static inline void pair_open(pair *pair, const kvmem_layout_config *config) {
    nixl_find_stand_in();
    pair->near = agent_open("near");
    pair->far = agent_open("far");
    kv_model_open(&pair->near_side, config, 1);
    kv_side_open(&pair->far_side, config, pair->far, 2);
    unsigned char *memory = pair->near_side.memory + pair->near_side.starts[0];
    pair->region = region_adopt_noting_release(memory, kv_region_size(config));
    pair->local = regions_lay_out(config, &pair->region, 1, pair->near);
    CLEANUP(message_free) message metadata = agent_metadata(pair->far);
    agent_load(pair->near, &metadata);
    CLEANUP(message_free) message descriptor = layout_descriptor(pair->far_side.layout);
    EXPECT_OK(kvmem_layout_import(pair->near, descriptor.data, descriptor.size, &pair->remote, ERR));
    pair->transfer = create(pair->remote, pair->local, config->num_blocks, config->num_layers);
}

static inline void pair_destroy_handles(pair *pair) {
    kvmem_transfer_destroy(pair->transfer);
    kvmem_layout_destroy(pair->local);
    kvmem_layout_destroy(pair->remote);
    kvmem_region_destroy(pair->region);
    kvmem_agent_destroy(pair->near);
}

static inline void pair_close(pair *pair) {
    const int releases = releases_count();
    pair_destroy_handles(pair);
    await_releases(releases + 1);
    kv_side_close(&pair->near_side);
    kv_side_close(&pair->far_side);
    kvmem_agent_destroy(pair->far);
}

/* A transfer of ten requests with a descriptor per block. */
static inline void pair_open_many(pair *pair) {
    pair_open(pair, REF(WITH(kv_config(&kv_kinds[0]), it.num_blocks = MANY_BLOCKS, it.num_layers = 1,
                             it.page_size = 1)));
    kvmem_transfer_destroy(pair->transfer);
    pair->transfer = create_by(KVMEM_METHOD_NIXL, pair->remote, pair->local, MANY_BLOCKS, 1);
}

static inline kvmem_status run(kvmem_transfer *transfer) {
    const kvmem_status status = kvmem_transfer_submit(transfer, NULL, ERR);
    return status == KVMEM_STATUS_OK ? kvmem_transfer_wait(transfer, PATIENCE, ERR) : status;
}

static inline nixl_sim_requests requests(void) { return NIXL(nixl_sim_get_requests()); }
                                         
                                         /* 128 KiB. */
                                         static inline kvmem_layout_config many_chunks(void) {
    return WITH(kv_config(&kv_kinds[0]), it.num_blocks = NUM_BLOCKS, it.inner_dim = 24);
}

/* A transfer of some layers of all blocks through an arena of eight pages, with one page per chunk. */
static inline kvmem_transfer *create_staged_layers(const pair *pair, const kvmem_layout_config *config,
                                                   uint64_t layer, uint64_t num_layers, uint64_t stall_timeout_ns) {
    kvmem_block_pair pairs[NUM_BLOCKS];
    for (uint64_t i = 0; i < config->num_blocks; i++)
        pairs[i] = (kvmem_block_pair){i, config->num_blocks - 1 - i};
    const kv_move move = {pairs, config->num_blocks, layer, layer, num_layers};
    return MADE(kvmem_transfer, kv_prepare, pair->remote, pair->local,
                KV_JOB(&move, it.transfer.method = KVMEM_METHOD_NIXL_STAGED,
                       it.transfer.staging_size = 8 * 4096,
                           it.transfer.stall_timeout_ns = stall_timeout_ns));
}

static inline kvmem_transfer *create_staged(const pair *pair, const kvmem_layout_config *config,
                                            uint64_t stall_timeout_ns) {
    return create_staged_layers(pair, config, 0, config->num_layers, stall_timeout_ns);
}

static inline kvmem_transfer *create_limited(const pair *pair, const kvmem_layout_config *config,
                                             uint32_t method,
                                             bool reads, uint64_t timeout_ns) {
    kvmem_block_pair pairs[NUM_BLOCKS];
    for (uint64_t i = 0; i < config->num_blocks; i++)
        pairs[i] = (kvmem_block_pair){i, config->num_blocks - 1 - i};
    const kv_move all = {pairs, config->num_blocks, 0, 0, config->num_layers};
    const bool is_staged = method == KVMEM_METHOD_NIXL_STAGED;
    return MADE(kvmem_transfer, kv_prepare, reads ? pair->remote : pair->local,
                reads ? pair->local : pair->remote,
                KV_JOB(&all, it.transfer.method = method, it.transfer.staging_size = is_staged ? 8 * 4096 : 0,
                           it.run.run_timeout_ns = timeout_ns));
}
