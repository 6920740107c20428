// SPDX-License-Identifier: Apache-2.0
// Runs for which no thread can be started, also while a thread of kvmem watches a run that does not end.
#include "control.h"
#include "gpu_flight.h"
#include "caller_context.h"

static kvmem_status submit(void *transfer) { return kvmem_transfer_submit(transfer, NULL, NULL); }

static kvmem_status submit_other_pairs(void *transfer) {
    static const kvmem_block_pair others[] = {{1, 1}};
    const kvmem_submit_options step = OPTIONS(kvmem_submit_options, it.pairs = others, it.num_pairs = 1);
    return kvmem_transfer_submit(transfer, &step, NULL);
}

/* Uses default rates: a measurement that takes long continues on a thread of its own, and its copies would be
   counted. */
static void reset(void) {
    SIM(sim_reset());
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
}

/* A run that no thread can watch does not begin. It is the first case, so that kvmem has no threads yet. */
TEST(submitting_a_copy_fails_if_no_thread_can_watch_it) {
    reset();
    OPENED(flight, copy, .from = PLACE_DEVICE, .to = PLACE_PINNED);
    flight_create(&copy, it.transfer.method = KVMEM_METHOD_CUDA_COPY);
    SIM(sim_reset());
    CHECK_EQ(without_new_threads(submit, copy.transfer), KVMEM_STATUS_OUT_OF_MEMORY);
    CHECK_EQ(SIM(sim_calls("cuMemcpyAsync")), 0);
    side_check(&copy.destination);
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_poll(copy.transfer, ERR)); /* it was not submitted */
    CHECK_EQ(without_new_threads(submit_other_pairs, copy.transfer), KVMEM_STATUS_OUT_OF_MEMORY);
    flight_run(&copy); /* with the pairs that it was created with */
}

typedef struct creation {
    flight *flight;
    uint32_t path;
} creation;

static kvmem_status create(void *argument) {
    const creation *creation = argument;
    flight *flight = creation->flight;
    const kv_job options = WITH(flight_options(flight), it.transfer.method = creation->path);
    return kv_prepare(flight->source.model.layout, flight->destination.model.layout, &options,
                                 &flight->transfer, NULL);
}

/* On the calling thread the driver could wait for the device. */
TEST(kernels_are_not_loaded_if_no_thread_can_be_started) {
    reset();
    OPENED(flight, copy, .from = PLACE_DEVICE, .to = PLACE_PINNED);
    SIM(sim_reset());
    CHECK_EQ(without_new_threads(create, &(creation){&copy, KVMEM_METHOD_CUDA_KERNEL}),
             KVMEM_STATUS_OUT_OF_MEMORY);
    CHECK_EQ(without_new_threads(create, &(creation){&copy, 0}), KVMEM_STATUS_OK);
    CHECK(flight_info(&copy).method != KVMEM_METHOD_CUDA_KERNEL);
    CHECK_EQ(SIM(sim_calls("cuModuleLoadData")), 0);
}

/* The thread that watches the copy does not serve io_uring before the copy is complete. */
TEST(io_uring_does_not_wait_for_the_thread_that_watches_copies) {
    if (!can_test_io_uring()) return;
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[1]);
    reset();
    OPENED(flight, copy, .from = PLACE_DEVICE, .to = PLACE_PINNED);
    OPENED(flight, write, .from = PLACE_SYSTEM, .to = PLACE_FILE, .source = &config);
    flight_create(&copy, it.transfer.method = KVMEM_METHOD_CUDA_COPY);
    flight_create(&write, it.transfer.method = KVMEM_METHOD_URING);
    SIM(sim_reset());
    SIM(sim_hold());
    flight_submit(&copy);
    await_calls("cuMemcpyAsync", 1);
    CHECK_EQ(without_new_threads(submit, write.transfer), KVMEM_STATUS_OK);
    flight_expect_end(&write, KVMEM_STATUS_OUT_OF_MEMORY, "thread");
    SIM(sim_go());
    flight_finish(&copy);
}
TEST_MAIN_ONCE
