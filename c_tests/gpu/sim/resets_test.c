// SPDX-License-Identifier: Apache-2.0
// An engine resets its device while transfers are in flight: between any two driver calls, and while the
// device executes work. The transfer fails with an error that contains the reason, and kvmem passes no
// destroyed object to the driver.
#include "control.h"
#include "gpu_flight.h"
#include "caller_context.h"

enum { CONTEXT_IS_DESTROYED = 709, TOO_MANY = 2000 };

/* How a transfer is submitted, and whether a stream waits for it. */
typedef enum manner { ON_ITS_OWN_STREAM, ON_THE_ENGINES_STREAM, AWAITED_BY_A_STREAM, NUM_MANNERS } manner;

typedef struct variant {
    route route;
    uint32_t path;
    uint64_t flags;
} variant;

/* Elastic memory belongs to no context, so it is compared after the reset. */
static const variant variants[] = {
    {{PLACE_ELASTIC, PLACE_PINNED}, KVMEM_METHOD_CUDA_COPY, 0},
    {{PLACE_PINNED, PLACE_ELASTIC}, KVMEM_METHOD_CUDA_BATCH, 0},
    {{PLACE_PINNED, PLACE_ELASTIC}, KVMEM_METHOD_CUDA_KERNEL, 0},
    {{PLACE_ELASTIC, PLACE_PINNED}, KVMEM_METHOD_CUDA_STAGED, 0},
    {{PLACE_PINNED, PLACE_ELASTIC}, KVMEM_METHOD_CUDA_STAGED, KVMEM_TRANSFER_BY_LAYER},
    {{PLACE_ELASTIC, PLACE_SYSTEM}, KVMEM_METHOD_CUDA_COPY, KVMEM_TRANSFER_BY_LAYER},
    {{PLACE_DEVICE, PLACE_PINNED}, KVMEM_METHOD_CUDA_KERNEL, KVMEM_TRANSFER_BY_LAYER},
};

static kv_job options_of(const flight *flight, const variant *variant) {
    return WITH(flight_options(flight), it.transfer.method = variant->path,
                it.transfer.flags = variant->flags);
}

static kvmem_status submit(const flight *flight, manner manner, CUstream stream) {
    if (manner == ON_THE_ENGINES_STREAM)
        return kvmem_transfer_submit_on_stream(flight->transfer, NULL, stream, ERR);
    kvmem_status status = kvmem_transfer_submit(flight->transfer, NULL, ERR);
    if (status == KVMEM_STATUS_OK && manner == AWAITED_BY_A_STREAM)
        /* It may fail with the transfer's error, or because the stream was destroyed. */
        kvmem_transfer_wait_on_stream(flight->transfer, 0, stream, NULL);
    return status;
}

static bool is_readable(const side *side) { return side->place != PLACE_DEVICE; }

/* Objects lost with the context are counted separately. */
static void await_released(const sim_counts *before) {
    sim_counts expected = *before;
    expected.lost_with_context = sim_live_now().lost_with_context;
    await_live(&expected);
}

static void check_failed(const flight *flight, kvmem_status status, bool was_submitted) {
    CHECK_CAUSE(KVMEM_DOMAIN_CUDA, CONTEXT_IS_DESTROYED);
    CHECK(status == KVMEM_STATUS_CUDA || (!was_submitted && status == KVMEM_STATUS_INVALID_STATE));
    CHECK_HAS(test_last_message(), "was reset");
    if (was_submitted) flight_expect_completion(flight, KVMEM_STATUS_CUDA);
}

/* Resets the device before the nth call, counted from the submit on. Returns false if there are fewer
   calls. */
static bool reset_before(const variant *variant, manner manner, uint64_t nth, bool is_retained) {
    CUstream stream = NULL;
    flight flight;
    retain_device(0);
    CU_ON(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    flight_open(&flight, .from = variant->route.from, .to = variant->route.to, .has_queue = true);
    flight_create_with(&flight, options_of(&flight, variant));
    SIM(sim_reset_device_before(nth, is_retained));
    kvmem_status status = submit(&flight, manner, stream);
    const bool was_submitted = status == KVMEM_STATUS_OK;
    if (was_submitted) status = kvmem_transfer_wait(flight.transfer, PATIENCE, ERR);
    const bool was_reset = SIM(sim_has_reset_device());
    caller_context_check(__FILE__, __LINE__, "a transfer during a reset");
    if (status != KVMEM_STATUS_OK) {
        CHECK(was_reset);
        check_failed(&flight, status, was_submitted);
    } else if (is_readable(&flight.source) && is_readable(&flight.destination)) {
        flight_check_moved(&flight);
    }
    if (!was_reset) CU_ON(0, cuStreamDestroy_v2(stream));
    flight_close(&flight);
    release_device(0);
    return was_reset;
}

/* Each variant in one manner. The two cases together use most combinations. */
static void reset_anywhere(bool is_retained) {
    const sim_counts before = sim_live_now();
    for (size_t i = 0; i < NUM(variants); i++) {
        uint64_t nth = 1;
        while (reset_before(&variants[i], (i + is_retained) % NUM_MANNERS, nth, is_retained))
            CHECK(++nth < TOO_MANY);
        await_released(&before);
    }
    CHECK_EQ(SIM(sim_illegal_accesses()), 0);
}

TEST_CALL(a_reset_between_any_two_calls_fails_the_transfer, reset_anywhere(false))
TEST_CALL(a_context_that_is_created_again_is_distinguished_from_the_old_one, reset_anywhere(true))

static void expect_dropped(const flight *flight) {
    flight_expect_end(flight, KVMEM_STATUS_CUDA, "was in flight");
    CHECK_CAUSE(KVMEM_DOMAIN_CUDA, CONTEXT_IS_DESTROYED);
    flight_expect_completion(flight, KVMEM_STATUS_CUDA);
}

TEST(a_transfer_whose_work_is_dropped_fails) {
    const sim_counts before = sim_live_now();
    for (size_t i = 0; i < 2 * NUM(variants); i++) {
        const variant *variant = &variants[i / 2];
        if (place_is_pageable(variant->route.to)) {
            continue; /* a driver call returns only when all work is complete */
        }
        SIM(sim_reset());
        {
            RETAIN_DEVICE(0);
            OPENED(flight, flight, .from = variant->route.from, .to = variant->route.to, .has_queue = true);
            flight_create_with(&flight, options_of(&flight, variant));
            SIM(sim_hold());
            flight_submit(&flight);
            flight_expect_in_progress(&flight);
            SIM(sim_reset_device_before(1, i % 2 != 0));
            expect_dropped(&flight);
            CHECK(SIM(sim_has_reset_device()));
            SIM(sim_go());
        }
        await_released(&before);
    }
}

/* The second waits for the staging memory of the first. */
TEST(a_transfer_that_waits_for_a_failed_one_fails_too) {
    const sim_counts before = sim_live_now();
    SIM(sim_reset());
    {
        RETAIN_DEVICE(0);
        OPENED(flight, first, .from = PLACE_ELASTIC, .to = PLACE_PINNED, .has_queue = true);
        OPENED(flight, second, .from = PLACE_ELASTIC, .to = PLACE_PINNED, .has_queue = true);
        flight_create(&first, it.transfer.method = KVMEM_METHOD_CUDA_STAGED);
        flight_create(&second, it.transfer.method = KVMEM_METHOD_CUDA_STAGED);
        SIM(sim_hold());
        flight_submit(&first);
        flight_submit(&second);
        flight_expect_in_progress(&second);
        SIM(sim_reset_device_before(1, false));
        expect_dropped(&first);
        EXPECT_MESSAGE(KVMEM_STATUS_CUDA, "was reset", kvmem_transfer_wait(second.transfer, PATIENCE, ERR));
        flight_expect_completion(&second, KVMEM_STATUS_CUDA);
        SIM(sim_go());
    }
    await_released(&before);
}
