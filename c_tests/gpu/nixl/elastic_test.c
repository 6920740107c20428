// SPDX-License-Identifier: Apache-2.0
// Elastic memory that is registered with an agent is resized, and its blocks are read and written by NIXL.
// Needs a GPU.
#include "elastic_side.h"
#include "side_peer.h"
#include "caller_context.h"

REQUIRES(lacks_real_gpu)

SIDE_PEER_ROLE

/* Blocks of 1.5 MiB, so that a few of them fill several extents. */
static kvmem_layout_config block_config(void) {
    return WITH(kv_config(&kv_kinds[0]), it.page_size = 16, it.inner_dim = 8192);
}

/* Checks that a local block has the expected contents of the peer's block. */
static void check_block(const kvmem_layout *layout, uint32_t here, const kv_peer *peer, uint32_t there) {
    const kvmem_layout_config *config = &peer->model.config;
    const uint64_t size = kv_piece_size(config);
    unsigned char *bytes = test_allocate(size);
    for (uint64_t layer = 0; layer < config->num_layers; layer++) {
        for (uint64_t outer = 0; outer < config->outer_dim; outer++) {
            GET(kvmem_block, piece, kvmem_layout_get_block, layout, here, layer, outer);
            CHECK_EQ(piece.size, size);
            read_device(0, bytes, piece.address, size);
            const uint64_t at = peer->model.starts[0] + kv_offset(config, there, layer, outer);
            CHECK_BYTES(bytes, peer->model.expected + at, size);
        }
    }
    free(bytes);
}

static void fetch(const kv_peer *peer, uint32_t there, const kvmem_layout *layout, uint32_t here) {
    const kvmem_block_pair pair = {there, here};
    const kv_move move = {&pair, 1, 0, 0, 3};
    const kvmem_transfer_info info = kv_run(peer->model.layout, layout, &move);
    CHECK(info.method == KVMEM_METHOD_NIXL || info.method == KVMEM_METHOD_NIXL_STAGED);
    check_block(layout, here, peer, there);
}

TEST(blocks_are_read_into_newly_committed_memory) {
    const kvmem_layout_config config = block_config();
    OWNED(kvmem_agent) agent = agent_open("near");
    CLEANUP(kv_peer_close) kv_peer peer;
    side_peer_start(&peer, "far", PLACE_DEVICE, 0, &config, 1);
    kv_peer_meet(&peer, agent);
    OWNED(kvmem_layout) layout = elastic_layout(&config, 0, agent);
    EXPECT_OK(kvmem_layout_resize(layout, 2, ERR));
    fetch(&peer, 6, layout, 0);
    fetch(&peer, 5, layout, 1);
    EXPECT_OK(kvmem_layout_resize(layout, config.num_blocks, ERR));
    check_block(layout, 0, &peer, 6);
    fetch(&peer, 4, layout, 6);
    EXPECT_OK(kvmem_layout_resize(layout, 1, ERR));
    check_block(layout, 0, &peer, 6);
    EXPECT_OK(kvmem_layout_resize(layout, config.num_blocks, ERR));
    fetch(&peer, 3, layout, 6); /* new memory at the same address */
    check_block(layout, 0, &peer, 6);
    kv_peer_check(&peer);
}

TEST(blocks_are_written_from_newly_committed_memory) {
    const kv_move move = KV_MOVE(3, {6, 2});
    const kvmem_layout_config config = block_config();
    OWNED(kvmem_agent) agent = agent_open("near");
    CLEANUP(kv_peer_close) kv_peer peer;
    side_peer_start(&peer, "far", PLACE_PINNED, 0, &config, 1);
    kv_peer_meet(&peer, agent);
    OWNED(kvmem_layout) layout = elastic_layout(&config, 0, agent);
    EXPECT_OK(kvmem_layout_resize(layout, config.num_blocks, ERR));
    fetch(&peer, 5, layout, 6);
    const kvmem_transfer_info info = kv_run(layout, peer.model.layout, &move);
    CHECK(info.method == KVMEM_METHOD_NIXL || info.method == KVMEM_METHOD_NIXL_STAGED);
    const uint64_t block = 3 * 2 * kv_piece_size(&config);
    unsigned char *expected = peer.model.expected + peer.model.starts[0];
    memcpy(expected + 2 * block, expected + 5 * block, block);
    kv_peer_check(&peer);
}
