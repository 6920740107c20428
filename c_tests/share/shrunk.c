// SPDX-License-Identifier: Apache-2.0
// The owner is a holder with a fully contiguous layout, the same for all cases.
#include "shrunk.h"

#include "opened.h"

void shrunk_open(shrunk *shrunk, uint64_t num_blocks) {
    exchange_open(shrunk, holder_in_common(),
                  &(exchange_terms){.there = MEMORY_ELASTIC, .num_blocks = num_blocks});
    shrunk->mapped = open_layout(&shrunk->parcel, 0, NULL);
}

void shrunk_close(shrunk *shrunk) {
    exchange_close(shrunk);
    holder_clear(&shrunk->owner);
}

kvmem_transfer *shrunk_transfer(const shrunk *shrunk, const kvmem_layout *from, uint32_t block) {
    const kv_move move = KV_MOVE(3, {block, block});
    return kv_transfer(from, shrunk->own, &move);
}

kvmem_status shrunk_run(kvmem_transfer *transfer) {
    const kvmem_status status = kvmem_transfer_submit(transfer, ERR);
    return status == KVMEM_STATUS_OK ? kvmem_transfer_wait(transfer, PATIENCE, ERR) : status;
}

kvmem_status shrunk_fetch(shrunk *shrunk, const kvmem_layout *from, uint32_t block) {
    const kv_move move = KV_MOVE(3, {block, block});
    OWNED(kvmem_transfer) transfer = shrunk_transfer(shrunk, from, block);
    const kvmem_status status = shrunk_run(transfer);
    if (status == KVMEM_STATUS_OK) {
        kv_expect_moved(&shrunk->here, &shrunk->there, &move);
        blocks_check(shrunk->own, &shrunk->here);
    }
    return status;
}
