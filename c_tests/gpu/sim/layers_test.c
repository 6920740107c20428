// SPDX-License-Identifier: Apache-2.0
// Runs that wait for resources of others while the stand-in holds all work back: they are cancelled, or begin when a
// stream is made to wait for them. Layers are not reported before they are complete.
#include "control.h"
#include "gpu_flight.h"
#include "caller_context.h"

/* More than kvmem passes to the driver at a time. */
#define MANY 70
#define LAST (MANY - 1)

static const kv_move move = KV_MOVE(3, {6, 0}, {0, 5});

/* Many submitted transfers between the same sides. */
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

static void finish(crowd *crowd) {
    SIM(sim_go());
    for (size_t i = 0; i < MANY; i++) EXPECT_OK(kvmem_transfer_wait(crowd->transfers[i], PATIENCE, ERR));
    flight_check_moved(&crowd->flight);
}

static void crowd_close(crowd *crowd) {
    for (size_t i = 0; i < MANY; i++) CALL(kvmem_transfer_destroy(crowd->transfers[i]));
    flight_close(&crowd->flight);
    stream_close(&crowd->stream);
}

/* Makes the stream wait for all of a run. */
static kvmem_status make_stream_wait(const crowd *crowd, size_t run) {
    return kvmem_transfer_wait_on_stream(crowd->transfers[run], 0, crowd->stream.handle, ERR);
}

TEST(a_run_that_has_not_begun_is_cancelled) {
    OPENED(crowd, crowd, KVMEM_PATH_CUDA_COPY, 0);
    EXPECT_OK(kvmem_transfer_cancel(crowd.transfers[LAST], ERR));
    EXPECT(KVMEM_STATUS_CANCELLED, kvmem_transfer_wait(crowd.transfers[LAST], PATIENCE, ERR));
    EXPECT_OK(kvmem_transfer_cancel(crowd.transfers[0], ERR)); /* no effect, because it has begun */
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(crowd.transfers[0], ERR));
    EXPECT_OK(kvmem_transfer_submit(crowd.transfers[LAST], ERR));
    finish(&crowd);
}

TEST(a_run_that_a_stream_waits_for_begins_before_others) {
    OPENED(crowd, crowd, KVMEM_PATH_CUDA_KERNEL, 0);
    const uint64_t launches = SIM(sim_calls("cuLaunchKernel"));
    const uint64_t waits = SIM(sim_calls("cuStreamWaitEvent"));
    EXPECT_OK(make_stream_wait(&crowd, LAST));
    CHECK(SIM(sim_calls("cuLaunchKernel")) > launches);
    CHECK_EQ(SIM(sim_calls("cuStreamWaitEvent")), waits + 1);
    EXPECT_OK(kvmem_transfer_cancel(crowd.transfers[LAST], ERR)); /* no effect, because it has begun */
    finish(&crowd);
}

/* There is one staging memory, which the first run uses. */
TEST(a_stream_cannot_wait_for_a_run_without_staging_memory) {
    OPENED(crowd, crowd, KVMEM_PATH_CUDA_STAGED, 0);
    await_calls("cuLaunchKernel", 1);
    EXPECT_OK(make_stream_wait(&crowd, 0));
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "staging memory", make_stream_wait(&crowd, LAST));
    EXPECT_OK(kvmem_transfer_cancel(crowd.transfers[LAST], ERR));
    EXPECT(KVMEM_STATUS_CANCELLED, make_stream_wait(&crowd, LAST));
    EXPECT(KVMEM_STATUS_CANCELLED, kvmem_transfer_wait(crowd.transfers[LAST], PATIENCE, ERR));
    EXPECT_OK(kvmem_transfer_submit(crowd.transfers[LAST], ERR));
    finish(&crowd);
}

TEST(no_layer_is_reported_before_it_is_complete) {
    OPENED(crowd, crowd, KVMEM_PATH_CUDA_COPY, KVMEM_TRANSFER_BY_LAYER);
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait_layers(crowd.transfers[0], 1, MILLISECONDS(20), ERR));
    GET(uint64_t, none, kvmem_transfer_get_layers, crowd.transfers[0]);
    CHECK_EQ(none, 0);
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait_layers(crowd.transfers[0], 1, PATIENCE, ERR));
    finish(&crowd);
    GET(uint64_t, layers, kvmem_transfer_get_layers, crowd.transfers[0]);
    CHECK_EQ(layers, 3);
}
