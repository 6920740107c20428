// SPDX-License-Identifier: Apache-2.0
// Runs for which no thread can be started, while another thread of the library serves a run that does not
// end.
#include "control.h"
#include "gpu_flight.h"
#include "stance.h"

static kvmem_status submit(void *transfer) { return kvmem_transfer_submit(transfer, NULL); }

static kvmem_status submit_other_pairs(void *transfer) {
    static const kvmem_block_pair others[] = {{1, 1}};
    const kvmem_submit_options step = OPTIONS(kvmem_submit_options, it.pairs = others, it.num_pairs = 1);
    return kvmem_transfer_submit_pairs(transfer, &step, NULL);
}

/* A run that no thread can watch does not begin. The first case, so that the library has no thread yet. */
TEST(a_copy_that_nothing_can_watch_is_refused) {
    SIM(sim_reset());
    OPENED(flight, copy, .from = PLACE_DEVICE, .to = PLACE_PINNED);
    flight_create(&copy, it.path = KVMEM_PATH_CUDA_COPY);
    SIM(sim_reset());
    CHECK_EQ(without_new_threads(submit, copy.transfer), KVMEM_STATUS_OUT_OF_MEMORY);
    CHECK_EQ(SIM(sim_calls("cuMemcpyAsync")), 0);
    side_check(&copy.destination);
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_poll(copy.transfer, ERR)); /* it was not submitted */
    CHECK_EQ(without_new_threads(submit_other_pairs, copy.transfer), KVMEM_STATUS_OUT_OF_MEMORY);
    flight_run(&copy); /* of the pairs that it was created with */
}

/* The thread that watches the copy has no time for io_uring before the copy is over. */
TEST(io_uring_does_not_wait_for_the_thread_that_watches_copies) {
    if (!can_test_io_uring()) return;
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[1]);
    SIM(sim_reset());
    OPENED(flight, copy, .from = PLACE_DEVICE, .to = PLACE_PINNED);
    OPENED(flight, write, .from = PLACE_SYSTEM, .to = PLACE_FILE, .source = &config);
    flight_create(&copy, it.path = KVMEM_PATH_CUDA_COPY);
    flight_create(&write, it.path = KVMEM_PATH_URING);
    SIM(sim_reset());
    SIM(sim_hold());
    flight_submit(&copy);
    await_calls("cuMemcpyAsync", 1);
    CHECK_EQ(without_new_threads(submit, write.transfer), KVMEM_STATUS_OK);
    flight_expect_end(&write, KVMEM_STATUS_OUT_OF_MEMORY, "thread");
    SIM(sim_go());
    flight_land(&copy);
}
TEST_MAIN_ONCE
