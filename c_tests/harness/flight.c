// SPDX-License-Identifier: Apache-2.0
// Two sides, a queue and a transfer.
#include "flight.h"

#include "harness.h"

kvmem_transfer *flight_transfer(const flight *flight, const kv_move *move, uint64_t flags,
                                uint64_t user_data) {
    return MADE(kvmem_transfer, kv_prepare, flight->source.layout, flight->destination.layout,
                KV_JOB(move, KV_SET_FLAGS(flags), it.transfer.queue = flight->queue, it.run.user_data = user_data));
}

void flight_open(flight *flight, const kv_move *move, uint64_t flags) {
    kv_side_open(&flight->source, REF(kv_large_config(&kv_kinds[0])), NULL, 7);
    kv_side_open(&flight->destination, REF(kv_large_config(&kv_kinds[1])), NULL, 8);
    EXPECT_OK(kvmem_queue_create(&flight->queue, ERR));
    flight->transfer = flight_transfer(flight, move, flags, FLIGHT_USER_DATA);
}

void flight_close(flight *flight) {
    kvmem_transfer_destroy(flight->transfer);
    kvmem_queue_destroy(flight->queue);
    kv_side_close(&flight->source);
    kv_side_close(&flight->destination);
}

void flight_hold(flight *flight, uint64_t block, uint64_t layer) {
    gate_close(kv_side_piece(&flight->source, block, layer, 0), 4096);
    EXPECT_OK(kvmem_transfer_submit(flight->transfer, NULL, ERR));
    gate_await();
}

void flight_hold_late(flight *flight, const kv_move *move) {
    gate_close(kv_side_piece(&flight->source, move->pairs[0].source, 0, 0), 4096);
    const kvmem_submit_options late = OPTIONS(kvmem_submit_options, it.pairs = move->pairs, it.num_pairs = move->num_pairs,
                                              it.user_data = FLIGHT_USER_DATA, it.run_timeout_ns = SECONDS(1));
    EXPECT_OK(kvmem_transfer_submit(flight->transfer, &late, ERR));
    gate_await();
}

void flight_expect_end(flight *flight, const kv_move *move, uint64_t user_data, kvmem_status status) {
    const kvmem_layout_config *config = &flight->source.config;
    const uint64_t bytes = move->num_pairs * move->num_layers * config->outer_dim * kv_piece_size(config);
    const kvmem_completion completion = next_completion(flight->queue);
    CHECK_EQ(completion.kind, KVMEM_COMPLETION_RUN_ENDED);
    CHECK_EQ(completion.user_data, user_data);
    CHECK_EQ(completion.status, status);
    CHECK_EQ(completion.released, status != KVMEM_STATUS_TIMED_OUT);
    CHECK_EQ(completion.bytes, status == KVMEM_STATUS_OK ? bytes : 0);
}

void flight_expect_moved(flight *flight, const kv_move *move, uint64_t user_data) {
    flight_expect_end(flight, move, user_data, KVMEM_STATUS_OK);
    kv_side_check_moved(&flight->destination, &flight->source, move);
}

void flight_expect_none(const flight *flight) {
    kvmem_completion completion;
    GET(size_t, count, kvmem_queue_wait, flight->queue, 0, &completion, 1);
    CHECK_EQ(count, 0);
}
