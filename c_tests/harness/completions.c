// SPDX-License-Identifier: Apache-2.0
// One completion at a time, within PATIENCE.
#include "completions.h"

#include "harness.h"

kvmem_completion next_completion(kvmem_queue *queue) {
    kvmem_completion completion;
    GET(size_t, count, kvmem_queue_wait, queue, PATIENCE, &completion, 1);
    CHECK_EQ(count, 1);
    return completion;
}

void expect_release(kvmem_queue *queue, uint64_t user_data, kvmem_status status) {
    const kvmem_completion completion = next_completion(queue);
    CHECK_EQ(completion.kind, KVMEM_COMPLETION_MEMORY_RELEASED);
    CHECK_EQ(completion.user_data, user_data);
    CHECK_EQ(completion.status, status);
    CHECK_EQ(completion.released, status == KVMEM_STATUS_OK);
    CHECK_EQ(completion.bytes, 0);
}

kvmem_completion end_after_layers(kvmem_queue *queue, uint64_t each, uint64_t all) {
    uint64_t moved = 0;
    for (;;) {
        const kvmem_completion completion = next_completion(queue);
        if (completion.kind == KVMEM_COMPLETION_RUN_ENDED) {
            CHECK_EQ(completion.status, KVMEM_STATUS_OK);
            CHECK_EQ(completion.num_layers, all);
            CHECK_EQ(moved, all);
            return completion;
        }
        CHECK_EQ(completion.kind, KVMEM_COMPLETION_LAYERS_MOVED);
        CHECK(completion.num_layers > moved);
        CHECK(completion.num_layers % each == 0 || completion.num_layers == all);
        moved = completion.num_layers;
    }
}

kvmem_status submit_and_wait(kvmem_transfer *transfer, uint64_t patience) {
    const kvmem_status status = kvmem_transfer_submit(transfer, NULL, ERR);
    return status == KVMEM_STATUS_OK ? kvmem_transfer_wait(transfer, patience, ERR) : status;
}

kvmem_status submit_when_free(kvmem_transfer *transfer) {
    kvmem_status status = kvmem_transfer_submit(transfer, NULL, ERR);
    while (status == KVMEM_STATUS_BUSY) {
        sched_yield();
        status = kvmem_transfer_submit(transfer, NULL, ERR);
    }
    return status;
}

void run_in_time(kvmem_transfer *transfer) {
    kvmem_status status = KVMEM_STATUS_TIMED_OUT;
    while (status == KVMEM_STATUS_TIMED_OUT) {
        CHECK_EQ(submit_when_free(transfer), KVMEM_STATUS_OK);
        status = kvmem_transfer_wait(transfer, PATIENCE, ERR);
    }
    CHECK_EQ(status, KVMEM_STATUS_OK);
}
