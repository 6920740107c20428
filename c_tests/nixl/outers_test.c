// SPDX-License-Identifier: Apache-2.0
// Transfers of some outer slots (keys or values alone) through NIXL, to and from another process and files,
// byte by byte. The other slot is unchanged.
#include "harness.h"

KV_PEER_ROLE

static const kvmem_block_pair scattered[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}, {4, 4}, {2, 1}};
static const kv_move all_layers = {scattered, NUM(scattered), 0, 0, 3};
static const kv_move some_layers = {scattered, NUM(scattered), 1, 0, 2};
/* Keys, values, keys to the place of values, values to the place of keys, and both. */
static const kv_outers outers[] = {{0, 0, 1}, {1, 1, 1}, {0, 1, 1}, {1, 0, 1}, {0, 0, 2}};

static void check_info(const kvmem_transfer_info *info, const kv_side *source, const kv_move *move,
                       kv_outers slots, uint32_t method) {
    CHECK_EQ(info->method, method);
    CHECK_EQ(info->num_pieces, move->num_pairs * move->num_layers * slots.count);
    CHECK_EQ(info->bytes, info->num_pieces * kv_piece_size(&source->config));
    CHECK(info->num_requests >= 1);
}

static void write_to_peer(kv_side *local, kv_peer *peer, const kv_move *move, kv_outers slots,
                          uint64_t flags) {
    kv_job options = WITH(kv_outers_job(move, slots), it.transfer.flags = flags,
                                          it.transfer.method = KVMEM_METHOD_NIXL);
    const kvmem_transfer_info info = kv_run_with(local->layout, peer->model.layout, &options);
    check_info(&info, local, move, slots, KVMEM_METHOD_NIXL);
    kv_expect_outers_moved(&peer->model, local, move, slots);
    kv_peer_check(peer);
    kv_side_check(local);
}

/* The received bytes are compared with the checksums of the peer's slots. */
static void read_from_peer(kv_side *local, kv_peer *peer, const kv_move *move, kv_outers slots,
                           uint64_t flags) {
    uint32_t checksums[64];
    CHECK(move->num_pairs <= NUM(checksums));
    for (size_t i = 0; i < move->num_pairs; i++)
        checksums[i] = crc_of_slots(&peer->model, move->pairs[i].source, move->source_layer,
                                    move->num_layers, slots.source, slots.count);
    kv_job options = WITH(kv_outers_job(move, slots), it.transfer.flags = flags,
                                          it.run.checksums = flags == 0 ? checksums : NULL,
                                          it.transfer.method = KVMEM_METHOD_NIXL);
    const kvmem_transfer_info info = kv_run_with(peer->model.layout, local->layout, &options);
    check_info(&info, local, move, slots, KVMEM_METHOD_NIXL);
    kv_expect_outers_moved(local, &peer->model, move, slots);
    kv_side_check(local);
    kv_peer_check(peer);
}

static void to_and_from_peer(kv_side *local, kv_peer *peer) {
    for (size_t i = 0; i < NUM(outers); i++) {
        write_to_peer(local, peer, &all_layers, outers[i], 0);
        read_from_peer(local, peer, &some_layers, outers[i], 0);
        read_from_peer(local, peer, &all_layers, outers[i], KVMEM_TRANSFER_BY_LAYER);
        write_to_peer(local, peer, &some_layers, outers[i], KVMEM_TRANSFER_BY_LAYER);
    }
}

TEST_CALL(slots_are_read_from_a_peer_and_written_there, kv_peer_each_kind(to_and_from_peer))

/* A layout of keys alone, and one of keys and values, with so many blocks that NIXL gets a descriptor
   list. */
TEST(slots_move_to_and_from_layouts_of_keys) {
    kvmem_block_pair run[60];
    for (uint32_t i = 0; i < NUM(run); i++) run[i] = (kvmem_block_pair){i, i + 4};
    const kv_move in_order = {run, NUM(run), 0, 0, 3};
    OWNED(kvmem_agent) agent = agent_open("near");
    for (size_t kind = 0; kind < KV_NUM_KINDS; kind++) {
        kvmem_layout_config both = WITH(kv_config(&kv_kinds[kind]), it.num_blocks = 64);
        kvmem_layout_config one = both;
        one.outer_dim = 1;
        kv_peer peer;
        kv_side side;
        kv_peer_open(&peer, kv_kinds[kind].name, &both, 100);
        kv_peer_meet(&peer, agent);
        kv_side_open(&side, &one, agent, 7);
        write_to_peer(&side, &peer, &in_order, (kv_outers){0, 1, 1}, 0);
        read_from_peer(&side, &peer, &in_order, (kv_outers){0, 0, 1}, 0);
        write_to_peer(&side, &peer, &some_layers, (kv_outers){0, 0, 1}, 0);
        read_from_peer(&side, &peer, &all_layers, (kv_outers){1, 0, 1}, 0);
        kv_side_close(&side);
        kv_peer_close(&peer);
        EXPECT_OK(kvmem_agent_invalidate_remote_metadata(agent, kv_kinds[kind].name, NULL, ERR));
    }
}

static void out_and_back(kvmem_agent *agent, const scratch *directory, const kv_kind *here,
                         const kv_kind *there, kv_outers slots) {
    OPENED(kv_side, host, REF(kv_aligned_config(here)), agent, 1);
    OPENED(file_side, file, REF(kv_aligned_config(there)), agent, directory, 0, 2);
    kv_job options = kv_outers_job(&all_layers, slots);
    options.transfer.method = KVMEM_METHOD_NIXL;
    kvmem_transfer_info info = kv_run_with(host.layout, file.model.layout, &options);
    check_info(&info, &host, &all_layers, slots, KVMEM_METHOD_NIXL);
    kv_expect_outers_moved(&file.model, &host, &all_layers, slots);
    file_side_check(&file);
    options = kv_outers_job(&some_layers, slots);
    options.transfer.method = KVMEM_METHOD_NIXL;
    info = kv_run_with(file.model.layout, host.layout, &options);
    check_info(&info, &host, &some_layers, slots, KVMEM_METHOD_NIXL);
    kv_expect_outers_moved(&host, &file.model, &some_layers, slots);
    kv_side_check(&host);
    file_side_check(&file);
}

TEST(slots_move_to_files_and_back) {
    OWNED(kvmem_agent) agent = agent_open("offload");
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    SCRATCH(directory);
    size_t number = 0;
    EACH_TWO_KV_KINDS(here, there)
        out_and_back(agent, &directory, here, there, outers[number++ % NUM(outers)]);
}
