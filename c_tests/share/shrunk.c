// SPDX-License-Identifier: Apache-2.0
// The owner is a holder with a fully contiguous layout, the same for all cases.
#include "shrunk.h"

#include "opened.h"

void shrunk_open(shrunk *shrunk, uint64_t num_blocks) {
    shrunk->config = blocks_config(&kv_kinds[0]);
    shrunk->owner = holder_in_common();
    holder_build(&shrunk->owner, MEMORY_ELASTIC, 0, BLOCKS_TOGETHER, NULL, 1);
    CHECK_EQ(holder_resize(&shrunk->owner, num_blocks), KVMEM_STATUS_OK);
    shrunk->parcel = holder_share(&shrunk->owner, NULL);
    kv_model_open(&shrunk->there, &shrunk->config, 1);
    kv_model_open(&shrunk->here, &shrunk->config, 2);
    shrunk->own = blocks_build(MEMORY_SYSTEM, &shrunk->config, BLOCKS_TOGETHER, NULL);
    blocks_write(shrunk->own, &shrunk->here);
    shrunk->mapped = open_layout(&shrunk->parcel, 0, NULL);
}

void shrunk_close(shrunk *shrunk) {
    kvmem_layout_destroy(shrunk->mapped);
    kvmem_layout_destroy(shrunk->own);
    kv_side_close(&shrunk->there);
    kv_side_close(&shrunk->here);
    parcel_close(&shrunk->parcel);
    holder_clear(&shrunk->owner);
}

kvmem_transfer *shrunk_transfer(const shrunk *shrunk, const kvmem_layout *from, uint32_t block) {
    const kvmem_block_pair pair = {block, block};
    const kv_move move = {&pair, 1, 0, 0, 3};
    const kvmem_transfer_options options = kv_transfer_options(&move);
    GET(kvmem_transfer *, transfer, kvmem_transfer_create, from, shrunk->own, &options);
    return transfer;
}

kvmem_status shrunk_run(kvmem_transfer *transfer) {
    const kvmem_status status = kvmem_transfer_submit(transfer, ERR);
    return status == KVMEM_STATUS_OK ? kvmem_transfer_wait(transfer, PATIENCE, ERR) : status;
}

kvmem_status shrunk_fetch(shrunk *shrunk, const kvmem_layout *from, uint32_t block) {
    const kvmem_block_pair pair = {block, block};
    const kv_move move = {&pair, 1, 0, 0, 3};
    kvmem_transfer *transfer = shrunk_transfer(shrunk, from, block);
    const kvmem_status status = shrunk_run(transfer);
    kvmem_transfer_destroy(transfer);
    if (status == KVMEM_STATUS_OK) {
        kv_expect_moved(&shrunk->here, &shrunk->there, &move);
        blocks_check(shrunk->own, &shrunk->here);
    }
    return status;
}
