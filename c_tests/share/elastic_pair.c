// SPDX-License-Identifier: Apache-2.0
// The owner is a holder with a fully contiguous layout, which is the same in all cases.
#include "elastic_pair.h"

#include "opened.h"

void elastic_pair_open(elastic_pair *elastic_pair, uint64_t num_blocks) {
    exchange_open(elastic_pair, holder_shared(),
                  &(exchange_options){.there = MEMORY_ELASTIC, .num_blocks = num_blocks});
    elastic_pair->mapped = open_layout(&elastic_pair->parcel, 0, NULL);
}

void elastic_pair_close(elastic_pair *elastic_pair) {
    exchange_close(elastic_pair);
    holder_clear(&elastic_pair->owner);
}

kvmem_transfer *elastic_pair_transfer(const elastic_pair *elastic_pair, const kvmem_layout *from,
                                      uint32_t block) {
    const kv_move move = KV_MOVE(3, {block, block});
    return kv_transfer(from, elastic_pair->own, &move);
}

kvmem_status elastic_pair_run(kvmem_transfer *transfer) {
    const kvmem_status status = kvmem_transfer_submit(transfer, NULL, ERR);
    return status == KVMEM_STATUS_OK ? kvmem_transfer_wait(transfer, PATIENCE, ERR) : status;
}

kvmem_status elastic_pair_fetch(elastic_pair *elastic_pair, const kvmem_layout *from, uint32_t block) {
    const kv_move move = KV_MOVE(3, {block, block});
    OWNED(kvmem_transfer) transfer = elastic_pair_transfer(elastic_pair, from, block);
    const kvmem_status status = elastic_pair_run(transfer);
    if (status == KVMEM_STATUS_OK) {
        kv_expect_moved(&elastic_pair->here, &elastic_pair->there, &move);
        blocks_check(elastic_pair->own, &elastic_pair->here);
    }
    return status;
}
