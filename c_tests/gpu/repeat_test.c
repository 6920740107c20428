// SPDX-License-Identifier: Apache-2.0
// Transfers of many small blocks, created once and submitted many times with other bytes, compared byte by
// byte in each round. They detect blocks that are sometimes not moved.
//
// Optional arguments: the number of rounds, and the number of blocks of a side, a power of two. Default: 12
// and 16384.
#include "sides.h"
#include "caller_context.h"

static uint32_t rounds = 12;
static uint32_t blocks = 16384;

static kvmem_layout_config many_blocks(void) {
    return WITH(kv_config(&kv_kinds[0]), it.num_blocks = blocks, it.num_layers = 1, it.outer_dim = 1,
                it.page_size = 16, it.inner_dim = 128);
}

/* With an odd factor, a permutation of the blocks without adjacent neighbours. */
static uint32_t scattered(uint32_t index, uint32_t factor) { return index * factor % blocks; }

static void repeat(place from, place to, uint32_t method, bool host_contiguous) {
    const kvmem_layout_config config = many_blocks();
    const uint32_t moved = blocks / 2 + blocks / 8;
    CLEANUP(test_free) kvmem_block_pair *pairs = test_allocate(moved * sizeof(*pairs));
    for (uint32_t i = 0; i < moved; i++) {
        pairs[i] = (kvmem_block_pair){scattered(i, 5), scattered(i, 7)};
        if (host_contiguous) *(place_is_device(from) ? &pairs[i].destination : &pairs[i].source) = i;
    }
    const kv_move move = {pairs, moved, 0, 0, 1};
    kv_job options = WITH(kv_job_of(&move), it.transfer.method = method);
    OPENED(side, source, from, 0, &config, NULL, 1);
    OPENED(side, destination, to, 0, &config, NULL, 2);
    OWN(kvmem_transfer, transfer, kv_prepare, source.model.layout, destination.model.layout,
        &options);
    for (uint32_t round = 0; round < rounds; round++) {
        side_refill(&source, 10 + round);
        RUN(transfer);
        side_check_moved(&destination, &source, &move);
    }
}

/* To the device and back, with scattered and with contiguous host blocks. */
static void repeat_all(uint32_t method) {
    RETAIN_DEVICE(0);
    for (int contiguous = 0; contiguous < 2; contiguous++) {
        repeat(PLACE_PINNED, PLACE_DEVICE, method, contiguous);
        repeat(PLACE_DEVICE, PLACE_PINNED, method, contiguous);
    }
}

TEST_CALL(on_the_kernel_path, repeat_all(KVMEM_METHOD_CUDA_KERNEL))
TEST_CALL(on_the_staged_path, repeat_all(KVMEM_METHOD_CUDA_STAGED))
TEST_CALL(on_the_batch_path, repeat_all(KVMEM_METHOD_CUDA_BATCH))

int main(int argc, char **argv) {
    if (argc == 3) {
        rounds = (uint32_t)strtoul(argv[1], NULL, 10);
        blocks = (uint32_t)strtoul(argv[2], NULL, 10);
        argc = 1;
    }
    return test_main(argc, argv, test_registered()); /* without a current context only, to save time */
}
