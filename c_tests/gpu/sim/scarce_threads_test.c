// SPDX-License-Identifier: Apache-2.0
// Runs for which no thread can be started, while another thread of the library serves a run that does not
// end.
#include "control.h"
#include "patience.h"
#include "sides.h"
#include "stance.h"

static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}};
static const kv_move move = {pairs, NUM(pairs), 0, 0, 3};

static kvmem_transfer *create(const kvmem_layout *source, const kvmem_layout *destination, uint32_t path) {
    kvmem_transfer_options options = WITH(kv_transfer_options(&move), it.path = path);
    GET(kvmem_transfer *, transfer, kvmem_transfer_create, source, destination, &options);
    return transfer;
}

static kvmem_status submit(void *transfer) {
    return kvmem_transfer_submit(transfer, NULL);
}

static kvmem_status submit_other_pairs(void *transfer) {
    static const kvmem_block_pair others[] = {{1, 1}};
    kvmem_submit_options step;
    kvmem_submit_options_init(&step, sizeof(step));
    step.pairs = others;
    step.num_pairs = NUM(others);
    return kvmem_transfer_submit_pairs(transfer, &step, NULL);
}

/* A run that no thread can watch does not begin. The first case, so that the library has no thread yet. */
TEST(a_copy_that_nothing_can_watch_is_refused) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    SIM(sim_reset());
    OPENED(side, device, PLACE_DEVICE, 0, &config, NULL, 1);
    OPENED(side, pinned, PLACE_PINNED, 0, &config, NULL, 2);
    OWNED(kvmem_transfer) copy = create(device.model.layout, pinned.model.layout, KVMEM_PATH_CUDA_COPY);
    SIM(sim_reset());
    CHECK_EQ(without_new_threads(submit, copy), KVMEM_STATUS_OUT_OF_MEMORY);
    CHECK_EQ(SIM(sim_calls("cuMemcpyAsync")), 0);
    side_check(&pinned);
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_poll(copy, ERR)); /* it was not submitted */
    CHECK_EQ(without_new_threads(submit_other_pairs, copy), KVMEM_STATUS_OUT_OF_MEMORY);
    EXPECT_OK(kvmem_transfer_submit(copy, ERR)); /* of the pairs that it was created with */
    EXPECT_OK(kvmem_transfer_wait(copy, PATIENCE, ERR));
    kv_expect_moved(&pinned.model, &device.model, &move);
    side_check(&pinned);
}

/* The thread that watches the copy has no time for io_uring before the copy is over. */
TEST(io_uring_does_not_wait_for_the_thread_that_watches_copies) {
    if (!can_test_io_uring()) {
        return;
    }
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[1]);
    const kvmem_layout_config small = side_config(&kv_kinds[1]);
    CLEANUP(scratch_remove) scratch directory = scratch_create(temporary_directory());
    SIM(sim_reset());
    OPENED(side, device, PLACE_DEVICE, 0, &small, NULL, 1);
    OPENED(side, pinned, PLACE_PINNED, 0, &small, NULL, 2);
    OPENED(kv_side, memory, &config, NULL, 3);
    OPENED(file_side, file, &config, NULL, &directory, 0, 4);
    OWNED(kvmem_transfer) copy = create(device.model.layout, pinned.model.layout, KVMEM_PATH_CUDA_COPY);
    OWNED(kvmem_transfer) write = create(memory.layout, file.model.layout, KVMEM_PATH_URING);
    SIM(sim_reset());
    SIM(sim_hold());
    EXPECT_OK(kvmem_transfer_submit(copy, ERR));
    await_copies(1);
    CHECK_EQ(without_new_threads(submit, write), KVMEM_STATUS_OK);
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_MEMORY, "thread", kvmem_transfer_wait(write, PATIENCE, ERR));
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait(copy, PATIENCE, ERR));
}
TEST_MAIN_ONCE
