// SPDX-License-Identifier: Apache-2.0
// A holder builds one layout, and this process the other.
#include "exchange.h"

void exchange_open(exchange *exchange, peer owner, const exchange_options *setup) {
    exchange->config = blocks_config(&kv_kinds[setup->layout_kind]);
    exchange->owner = owner;
    holder_build(&exchange->owner, setup->there, setup->layout_kind, setup->placement, setup->agent_there, 1);
    if (setup->num_blocks != 0) CHECK_EQ(holder_resize(&exchange->owner, setup->num_blocks), KVMEM_STATUS_OK);
    exchange->parcel = holder_share(&exchange->owner, setup->options);
    kv_model_open(&exchange->there, &exchange->config, 1);
    kv_model_open(&exchange->here, &exchange->config, 2);
    exchange->own = blocks_build(setup->here, &exchange->config, BLOCKS_TOGETHER, setup->agent);
    blocks_write(exchange->own, &exchange->here);
    exchange->mapped = NULL;
}

void exchange_close(exchange *exchange) {
    kvmem_layout_destroy(exchange->mapped);
    kvmem_layout_destroy(exchange->own);
    kv_side_close(&exchange->there);
    kv_side_close(&exchange->here);
    parcel_close(&exchange->parcel);
}

kvmem_transfer_info exchange_pull(exchange *exchange, const kvmem_layout *theirs, const kv_move *move,
                                  uint32_t path) {
    const kvmem_transfer_info info = kv_run_by(theirs, exchange->own, move, path);
    kv_expect_moved(&exchange->here, &exchange->there, move);
    blocks_check(exchange->own, &exchange->here);
    return info;
}

kvmem_transfer_info exchange_push(exchange *exchange, const kvmem_layout *theirs, const kv_move *move,
                                  uint32_t path) {
    const kvmem_transfer_info info = kv_run_by(exchange->own, theirs, move, path);
    kv_expect_moved(&exchange->there, &exchange->here, move);
    holder_check_model(&exchange->owner, &exchange->there);
    return info;
}

void exchange_check(const exchange *exchange) {
    holder_check_model(&exchange->owner, &exchange->there);
    blocks_check(exchange->mapped, &exchange->there);
    blocks_check(exchange->own, &exchange->here);
}
