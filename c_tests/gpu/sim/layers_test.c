// SPDX-License-Identifier: Apache-2.0
// Runs that wait for what others use, with the stand-in holding all work back: they are cancelled, or begin
// when a stream is to wait for them; and layers that are reported while later ones are held.
#include "control.h"
#include "gpu_flight.h"
#include "stance.h"

/* More than are at the driver at a time. */
#define MANY 70
#define LAST (MANY - 1)

static const kv_move move = KV_MOVE(3, {6, 0}, {0, 5});

/* Many transfers between the same sides, which are all submitted. */
typedef struct crowd {
    flight flight;
    kvmem_transfer *transfers[MANY];
    stream stream;
} crowd;

static void crowd_open(crowd *crowd, uint32_t path, uint64_t flags) {
    SIM(sim_reset());
    stream_open(&crowd->stream, 0);
    flight_open(&crowd->flight, .from = PLACE_PINNED, .to = PLACE_DEVICE, .move = &move);
    for (size_t i = 0; i < MANY; i++)
        crowd->transfers[i] = flight_create_another(&crowd->flight, it.path = path, it.flags = flags);
    SIM(sim_hold());
    for (size_t i = 0; i < MANY; i++) EXPECT_OK(kvmem_transfer_submit(crowd->transfers[i], ERR));
}

static void land(crowd *crowd) {
    SIM(sim_go());
    for (size_t i = 0; i < MANY; i++) EXPECT_OK(kvmem_transfer_wait(crowd->transfers[i], PATIENCE, ERR));
    flight_check_moved(&crowd->flight);
}

static void crowd_close(crowd *crowd) {
    for (size_t i = 0; i < MANY; i++) CALL(kvmem_transfer_destroy(crowd->transfers[i]));
    flight_close(&crowd->flight);
    stream_close(&crowd->stream);
}

/* Has the stream wait for all of a run. */
static kvmem_status hold_stream(const crowd *crowd, size_t run) {
    return kvmem_transfer_wait_on_stream(crowd->transfers[run], 0, crowd->stream.handle, ERR);
}

TEST(a_run_that_waits_for_a_stream_is_taken_back) {
    OPENED(crowd, crowd, KVMEM_PATH_CUDA_COPY, 0);
    EXPECT_OK(kvmem_transfer_cancel(crowd.transfers[LAST], ERR));
    EXPECT(KVMEM_STATUS_CANCELLED, kvmem_transfer_wait(crowd.transfers[LAST], PATIENCE, ERR));
    EXPECT_OK(kvmem_transfer_cancel(crowd.transfers[0], ERR)); /* which has begun, and goes on */
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(crowd.transfers[0], ERR));
    EXPECT_OK(kvmem_transfer_submit(crowd.transfers[LAST], ERR));
    land(&crowd);
}

TEST(a_run_that_a_stream_is_to_wait_for_begins_before_others) {
    OPENED(crowd, crowd, KVMEM_PATH_CUDA_KERNEL, 0);
    const uint64_t launches = SIM(sim_calls("cuLaunchKernel"));
    const uint64_t waits = SIM(sim_calls("cuStreamWaitEvent"));
    EXPECT_OK(hold_stream(&crowd, LAST));
    CHECK(SIM(sim_calls("cuLaunchKernel")) > launches);
    CHECK_EQ(SIM(sim_calls("cuStreamWaitEvent")), waits + 1);
    EXPECT_OK(kvmem_transfer_cancel(crowd.transfers[LAST], ERR)); /* too late */
    land(&crowd);
}

/* There is one staging memory, and the first run has it. */
TEST(a_run_without_staging_memory_is_not_waited_for) {
    OPENED(crowd, crowd, KVMEM_PATH_CUDA_STAGED, 0);
    await_calls("cuLaunchKernel", 1);
    EXPECT_OK(hold_stream(&crowd, 0));
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "staging memory", hold_stream(&crowd, LAST));
    EXPECT_OK(kvmem_transfer_cancel(crowd.transfers[LAST], ERR));
    EXPECT(KVMEM_STATUS_CANCELLED, hold_stream(&crowd, LAST));
    EXPECT(KVMEM_STATUS_CANCELLED, kvmem_transfer_wait(crowd.transfers[LAST], PATIENCE, ERR));
    EXPECT_OK(kvmem_transfer_submit(crowd.transfers[LAST], ERR));
    land(&crowd);
}

TEST(no_layer_is_told_before_it_has_moved) {
    OPENED(crowd, crowd, KVMEM_PATH_CUDA_COPY, KVMEM_TRANSFER_BY_LAYER);
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait_layers(crowd.transfers[0], 1, MILLISECONDS(20), ERR));
    GET(uint64_t, none, kvmem_transfer_get_layers, crowd.transfers[0]);
    CHECK_EQ(none, 0);
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait_layers(crowd.transfers[0], 1, PATIENCE, ERR));
    land(&crowd);
    GET(uint64_t, layers, kvmem_transfer_get_layers, crowd.transfers[0]);
    CHECK_EQ(layers, 3);
}
