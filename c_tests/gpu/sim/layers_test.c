// SPDX-License-Identifier: Apache-2.0
// Runs that wait for resources of others while the stand-in holds all work back: they are cancelled, or begin
// when a stream is made to wait for them. Layers are not reported before they are complete.
#include "control.h"
#include "gpu_flight.h"
#include "caller_context.h"

/* More than kvmem passes to the driver at a time. */
#define MANY 70
#define LAST (MANY - 1)

static const kv_move move = KV_MOVE(3, {6, 0}, {0, 5});

/* Many submitted transfers between the same sides. */
typedef struct many_transfers {
    flight flight;
    kvmem_transfer *transfers[MANY];
    stream stream;
} many_transfers;

static void many_transfers_open(many_transfers *many, uint32_t method, uint64_t flags) {
    SIM(sim_reset());
    stream_open(&many->stream, 0);
    flight_open(&many->flight, .from = PLACE_PINNED, .to = PLACE_DEVICE, .move = &move);
    for (size_t i = 0; i < MANY; i++)
        many->transfers[i] = flight_create_another(&many->flight, it.transfer.method = method,
                                                   it.transfer.flags = flags);
    SIM(sim_hold());
    for (size_t i = 0; i < MANY; i++) EXPECT_OK(kvmem_transfer_submit(many->transfers[i], NULL, ERR));
}

static void finish(many_transfers *many) {
    SIM(sim_go());
    for (size_t i = 0; i < MANY; i++) EXPECT_OK(kvmem_transfer_wait(many->transfers[i], PATIENCE, ERR));
    flight_check_moved(&many->flight);
}

static void many_transfers_close(many_transfers *many) {
    for (size_t i = 0; i < MANY; i++) CALL(kvmem_transfer_destroy(many->transfers[i]));
    flight_close(&many->flight);
    stream_close(&many->stream);
}

/* Makes the stream wait for all of a run. */
static kvmem_status make_stream_wait(const many_transfers *many, size_t run) {
    return kvmem_transfer_wait_on_stream(many->transfers[run], 0, many->stream.handle, ERR);
}

TEST(a_run_that_has_not_begun_is_cancelled) {
    OPENED(many_transfers, many, KVMEM_METHOD_CUDA_COPY, 0);
    EXPECT_OK(kvmem_transfer_cancel(many.transfers[LAST], ERR));
    EXPECT(KVMEM_STATUS_CANCELLED, kvmem_transfer_wait(many.transfers[LAST], PATIENCE, ERR));
    EXPECT_OK(kvmem_transfer_cancel(many.transfers[0], ERR)); /* no effect, because it has begun */
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(many.transfers[0], ERR));
    EXPECT_OK(kvmem_transfer_submit(many.transfers[LAST], NULL, ERR));
    finish(&many);
}

TEST(a_run_that_a_stream_waits_for_begins_before_others) {
    OPENED(many_transfers, many, KVMEM_METHOD_CUDA_KERNEL, 0);
    const uint64_t launches = SIM(sim_calls("cuLaunchKernel"));
    const uint64_t waits = SIM(sim_calls("cuStreamWaitEvent"));
    EXPECT_OK(make_stream_wait(&many, LAST));
    CHECK(SIM(sim_calls("cuLaunchKernel")) > launches);
    CHECK_EQ(SIM(sim_calls("cuStreamWaitEvent")), waits + 1);
    EXPECT_OK(kvmem_transfer_cancel(many.transfers[LAST], ERR)); /* no effect, because it has begun */
    finish(&many);
}

/* There is one staging memory, which the first run uses. */
TEST(a_stream_cannot_wait_for_a_run_without_staging_memory) {
    OPENED(many_transfers, many, KVMEM_METHOD_CUDA_STAGED, 0);
    await_calls("cuLaunchKernel", 1);
    EXPECT_OK(make_stream_wait(&many, 0));
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "staging memory", make_stream_wait(&many, LAST));
    EXPECT_OK(kvmem_transfer_cancel(many.transfers[LAST], ERR));
    EXPECT(KVMEM_STATUS_CANCELLED, make_stream_wait(&many, LAST));
    EXPECT(KVMEM_STATUS_CANCELLED, kvmem_transfer_wait(many.transfers[LAST], PATIENCE, ERR));
    EXPECT_OK(kvmem_transfer_submit(many.transfers[LAST], NULL, ERR));
    finish(&many);
}

TEST(layers_are_reported_to_a_queue_without_a_call_for_the_transfer) {
    static const uint32_t methods[] = {KVMEM_METHOD_CUDA_COPY, KVMEM_METHOD_CUDA_KERNEL,
                                       KVMEM_METHOD_CUDA_STAGED};
    for (size_t i = 0; i < NUM(methods); i++) {
        SIM(sim_reset());
        OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE, .move = &move, .has_queue = true);
        flight_create(&flight, it.transfer.method = methods[i], it.transfer.flags = KVMEM_TRANSFER_BY_LAYER,
                      it.transfer.layers_per_completion = 1);
        for (int again = 0; again < 2; again++) {
            SIM(sim_hold());
            flight_submit(&flight);
            kvmem_completion completion;
            EXPECT(KVMEM_STATUS_TIMED_OUT,
                   kvmem_queue_wait(flight.queue, MILLISECONDS(20), &completion, 1, REF((size_t)0), ERR));
            SIM(sim_go());
            CHECK_EQ(end_after_layers(flight.queue, 1, 3).user_data, FLIGHT_USER_DATA);
            flight_check_moved(&flight);
        }
    }
}

TEST(no_layer_is_reported_before_it_is_complete) {
    OPENED(many_transfers, many, KVMEM_METHOD_CUDA_COPY, KVMEM_TRANSFER_BY_LAYER);
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait_layers(many.transfers[0], 1, MILLISECONDS(20), ERR));
    const uint64_t none = transfer_info(many.transfers[0]).layers_moved;
    CHECK_EQ(none, 0);
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait_layers(many.transfers[0], 1, PATIENCE, ERR));
    finish(&many);
    const uint64_t layers = transfer_info(many.transfers[0]).layers_moved;
    CHECK_EQ(layers, 3);
}
