// SPDX-License-Identifier: Apache-2.0
// Opens two sides with different bytes, and compares all bytes after each transfer.
#include "gpu_flight.h"

#include "caller_context.h"
#include "patience.h"

const kv_move scattered_move = KV_MOVE(3, {6, 0}, {0, 5}, {1, 6}, {3, 3}, {4, 4}, {2, 1});

static void open_end(side *end, place place, int device, const kvmem_layout_config *config,
                     const flight_plan *plan, uint32_t seed) {
    if (place == PLACE_FILE) side_open_file(end, config, plan->agent, plan->file_flags, seed);
    else side_open(end, place, device, config, plan->agent, seed);
}

void flight_open_as(flight *flight, const flight_plan *plan) {
    const kvmem_layout_config otherwise = side_config(&kv_kinds[1]);
    const kvmem_layout_config *source = plan->source != NULL ? plan->source : &otherwise;
    const kvmem_layout_config *destination = plan->destination != NULL ? plan->destination : source;
    *flight = (struct flight){.move = plan->move != NULL ? plan->move : &scattered_move};
    open_end(&flight->source, plan->from, plan->from_device, source, plan, plan->seed);
    open_end(&flight->destination, plan->to, plan->to_device, destination, plan, plan->seed + 1);
    if (plan->has_queue) EXPECT_OK(kvmem_queue_create(&flight->queue, ERR));
}

void flight_destroy_transfer(flight *flight) {
    DESTROYED(kvmem_transfer, flight->transfer);
}

void flight_close(flight *flight) {
    flight_destroy_transfer(flight);
    CALL(kvmem_queue_destroy(flight->queue));
    side_close(&flight->source);
    side_close(&flight->destination);
}

kv_job flight_options(const flight *flight) {
    return WITH(kv_job_of(flight->move), it.transfer.queue = flight->queue,
                it.run.user_data = FLIGHT_USER_DATA);
}

kvmem_status flight_try_with(flight *flight, kv_job options) {
    flight_destroy_transfer(flight);
    const kvmem_status status = kv_prepare(flight->source.model.layout,
                                                      flight->destination.model.layout,
                                                      &options, &flight->transfer, ERR);
    caller_context_check(__FILE__, __LINE__, "kvmem_transfer_create");
    return status;
}

void flight_create_with(flight *flight, kv_job options) {
    const uint64_t end = patience_end();
    kvmem_status status = flight_try_with(flight, options);
    /* A kernel that is not loaded within some milliseconds, as on a busy machine, is BUSY: a later call has it. */
    while (status == KVMEM_STATUS_BUSY) {
        patience_wait(end, "a kernel that is loaded");
        status = flight_try_with(flight, options);
    }
    EXPECT_OK(status);
}

kvmem_transfer *flight_create_another_with(const flight *flight, kv_job options) {
    return MADE(kvmem_transfer, kv_prepare, flight->source.model.layout,
                flight->destination.model.layout, &options);
}

void flight_refuse_with(flight *flight, kvmem_status status, const char *part,
                        kv_job options) {
    REFUSE(status, part, kv_prepare, flight->source.model.layout, flight->destination.model.layout,
           &options);
}

kvmem_transfer_info flight_info(const flight *flight) {
    GET(kvmem_transfer_info, info, kvmem_transfer_get_info, flight->transfer);
    return info;
}

kvmem_compared_method flight_explain(const flight *flight, const char *part) {
    const kvmem_compared_method used = transfer_used_method(flight->transfer);
    OWN(kvmem_blob, text, kvmem_transfer_explain, flight->transfer);
    CHECK_HAS(kvmem_blob_data(text), part);
    CHECK_HAS(kvmem_blob_data(text), kvmem_method_name(used.method));
    CHECK_EQ(strlen(kvmem_blob_data(text)), kvmem_blob_size(text));
    CHECK_EQ(flight_info(flight).method, used.method);
    return used;
}

uint64_t flight_bytes(const flight *flight) {
    const kvmem_layout_config *config = &flight->source.model.config;
    return flight->move->num_pairs * flight->move->num_layers * config->outer_dim * kv_piece_size(config);
}

void flight_submit(const flight *flight) { EXPECT_OK(kvmem_transfer_submit(flight->transfer, NULL, ERR)); }

void flight_submit_on(const flight *flight, CUstream stream) {
    EXPECT_OK(kvmem_transfer_submit_on_stream(flight->transfer, NULL, stream, ERR));
}

void flight_check_moved(flight *flight) {
    side_check_moved(&flight->destination, &flight->source, flight->move);
    side_check(&flight->source);
}

void flight_finish(flight *flight) {
    EXPECT_OK(kvmem_transfer_wait(flight->transfer, PATIENCE, ERR));
    flight_check_moved(flight);
}

void flight_run(flight *flight) {
    flight_submit(flight);
    flight_finish(flight);
}

void flight_run_in_time(flight *flight) {
    kvmem_status status = KVMEM_STATUS_TIMED_OUT;
    while (status == KVMEM_STATUS_TIMED_OUT) {
        CHECK_EQ(submit_when_free(flight->transfer), KVMEM_STATUS_OK);
        status = next_completion(flight->queue).status;
    }
    CHECK_EQ(status, KVMEM_STATUS_OK);
    flight_finish(flight);
}

void flight_expect_end(const flight *flight, kvmem_status status, const char *part) {
    EXPECT_MESSAGE(status, part, kvmem_transfer_wait(flight->transfer, PATIENCE, ERR));
    const kvmem_error_cause cause = test_last_cause();
    EXPECT(status, kvmem_transfer_poll(flight->transfer, ERR));
    CHECK_CAUSE(cause.domain, cause.code);
}

void flight_expect_completion(const flight *flight, kvmem_status status) {
    const kvmem_completion completion = next_completion(flight->queue);
    CHECK_EQ(completion.user_data, FLIGHT_USER_DATA);
    CHECK_EQ(completion.status, status);
    CHECK_EQ(completion.bytes, status == KVMEM_STATUS_OK ? flight_bytes(flight) : 0);
}

void expect_each_once(kvmem_queue *queue, size_t count, uint64_t bytes) {
    CLEANUP(test_free) bool *is_reported = test_allocate(count * sizeof(bool));
    for (size_t i = 0; i < count; i++) {
        const kvmem_completion completion = next_completion(queue);
        CHECK(completion.user_data < count && !is_reported[completion.user_data]);
        CHECK_EQ(completion.status, KVMEM_STATUS_OK);
        CHECK_EQ(completion.bytes, bytes);
        is_reported[completion.user_data] = true;
    }
}

void flight_expect_in_progress(const flight *flight) {
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(flight->transfer, ERR));
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(flight->transfer, MILLISECONDS(20), ERR));
    EXPECT(KVMEM_STATUS_BUSY, kvmem_transfer_submit(flight->transfer, NULL, ERR));
}

side *flight_file(flight *flight) {
    return flight->source.place == PLACE_FILE ? &flight->source : &flight->destination;
}

side *flight_memory(flight *flight) {
    return flight->source.place == PLACE_FILE ? &flight->destination : &flight->source;
}

void flight_refill(flight *flight, uint32_t seed) { side_refill(flight_memory(flight), seed); }

void flight_reverse(flight *flight) {
    const side source = flight->source;
    flight_destroy_transfer(flight);
    flight->source = flight->destination;
    flight->destination = source;
}

void flight_submit_on_primary(const flight *flight, CUstream stream) {
    const CUcontext before = current_context();
    CU_GET(CUcontext, primary, cuDevicePrimaryCtxRetain(&primary, 0));
    CU(cuCtxPushCurrent_v2(primary));
    caller_context_set(primary);
    flight_submit_on(flight, stream);
    CU(cuCtxPopCurrent_v2(&primary));
    caller_context_set(before);
    release_device(0);
}
