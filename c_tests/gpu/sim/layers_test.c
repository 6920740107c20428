// SPDX-License-Identifier: Apache-2.0
// Runs that wait for what others use, with the stand-in holding all work back: they are taken back, or begin
// when a stream is to wait for them; and layers that are told while later ones are held.
#include "control.h"
#include "patience.h"
#include "sides.h"
#include "stance.h"

/* More than are at the driver at a time. */
#define MANY 70
#define LAYERS 3

static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}};
static const kv_move move = {pairs, NUM(pairs), 0, 0, LAYERS};

typedef struct crowd {
    side source, destination;
    kvmem_transfer *transfers[MANY];
    CUstream stream;
} crowd;

static void crowd_open(crowd *crowd, uint32_t path, uint64_t flags) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    SIM(sim_reset());
    retain_device(0);
    side_open(&crowd->source, PLACE_PINNED, 0, &config, NULL, 1);
    side_open(&crowd->destination, PLACE_DEVICE, 0, &config, NULL, 2);
    kvmem_transfer_options options = WITH(kv_transfer_options(&move), it.path = path, it.flags = flags);
    for (size_t i = 0; i < MANY; i++) {
        EXPECT_OK(kvmem_transfer_create(crowd->source.model.layout, crowd->destination.model.layout, &options,
                                        &crowd->transfers[i], ERR));
    }
    CU_ON(0, cuStreamCreate(&crowd->stream, CU_STREAM_NON_BLOCKING));
    SIM(sim_hold());
    for (size_t i = 0; i < MANY; i++) {
        EXPECT_OK(kvmem_transfer_submit(crowd->transfers[i], ERR));
    }
}

static void land(crowd *crowd, size_t from) {
    SIM(sim_go());
    for (size_t i = from; i < MANY; i++) {
        EXPECT_OK(kvmem_transfer_wait(crowd->transfers[i], PATIENCE, ERR));
    }
    side_check_moved(&crowd->destination, &crowd->source, &move);
}

static void crowd_close(crowd *crowd) {
    for (size_t i = 0; i < MANY; i++) {
        CALL(kvmem_transfer_destroy(crowd->transfers[i]));
    }
    CU_ON(0, cuStreamDestroy_v2(crowd->stream));
    side_close(&crowd->source);
    side_close(&crowd->destination);
    release_device(0);
}

TEST(a_run_that_waits_for_a_stream_is_taken_back) {
    OPENED(crowd, crowd, KVMEM_PATH_CUDA_COPY, 0);
    EXPECT_OK(kvmem_transfer_cancel(crowd.transfers[MANY - 1], ERR));
    EXPECT(KVMEM_STATUS_CANCELLED, kvmem_transfer_wait(crowd.transfers[MANY - 1], PATIENCE, ERR));
    EXPECT_OK(kvmem_transfer_cancel(crowd.transfers[0], ERR)); /* which has begun, and goes on */
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(crowd.transfers[0], ERR));
    EXPECT_OK(kvmem_transfer_submit(crowd.transfers[MANY - 1], ERR));
    land(&crowd, 0);
}

TEST(a_run_that_a_stream_is_to_wait_for_begins_before_others) {
    OPENED(crowd, crowd, KVMEM_PATH_CUDA_KERNEL, 0);
    const uint64_t launches = SIM(sim_calls("cuLaunchKernel"));
    const uint64_t waits = SIM(sim_calls("cuStreamWaitEvent"));
    EXPECT_OK(kvmem_transfer_wait_on_stream(crowd.transfers[MANY - 1], 0, crowd.stream, ERR));
    CHECK(SIM(sim_calls("cuLaunchKernel")) > launches);
    CHECK_EQ(SIM(sim_calls("cuStreamWaitEvent")), waits + 1);
    EXPECT_OK(kvmem_transfer_cancel(crowd.transfers[MANY - 1], ERR)); /* too late */
    land(&crowd, 0);
}

/* There is one staging memory, and the first run has it. */
TEST(a_run_without_staging_memory_is_not_waited_for) {
    OPENED(crowd, crowd, KVMEM_PATH_CUDA_STAGED, 0);
    const uint64_t end = patience_end();
    while (SIM(sim_calls("cuLaunchKernel")) == 0) {
        patience_wait(end, "the first run to begin");
    }
    EXPECT_OK(kvmem_transfer_wait_on_stream(crowd.transfers[0], 0, crowd.stream, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "staging memory",
                   kvmem_transfer_wait_on_stream(crowd.transfers[MANY - 1], 0, crowd.stream, ERR));
    EXPECT_OK(kvmem_transfer_cancel(crowd.transfers[MANY - 1], ERR));
    EXPECT(KVMEM_STATUS_CANCELLED,
           kvmem_transfer_wait_on_stream(crowd.transfers[MANY - 1], 0, crowd.stream, ERR));
    EXPECT(KVMEM_STATUS_CANCELLED, kvmem_transfer_wait(crowd.transfers[MANY - 1], PATIENCE, ERR));
    EXPECT_OK(kvmem_transfer_submit(crowd.transfers[MANY - 1], ERR));
    land(&crowd, 0);
}

TEST(no_layer_is_told_before_it_has_moved) {
    OPENED(crowd, crowd, KVMEM_PATH_CUDA_COPY, KVMEM_TRANSFER_BY_LAYER);
    uint64_t layers = 99;
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait_layers(crowd.transfers[0], 1, MILLISECONDS(20), ERR));
    EXPECT_OK(kvmem_transfer_get_layers(crowd.transfers[0], &layers, ERR));
    CHECK_EQ(layers, 0);
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait_layers(crowd.transfers[0], 1, PATIENCE, ERR));
    land(&crowd, 0);
    EXPECT_OK(kvmem_transfer_get_layers(crowd.transfers[0], &layers, ERR));
    CHECK_EQ(layers, LAYERS);
}
