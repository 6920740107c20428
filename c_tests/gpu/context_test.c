// SPDX-License-Identifier: Apache-2.0
// Contexts: the caller's current context is unchanged, kvmem creates a context only if an object needs it,
// and releases it with the last object.
#include "engine.h"
#include "caller_context.h"
#include "exercise.h"

#include <pthread.h>

CONTEXTS_END

/* Calls kvmem with this current context, which must be unchanged after each call. */
static void exercise_with(CUcontext context) {
    const CUcontext before = current_context();
    caller_context_set(context);
    for (int device = 0; device < driver_devices(); device++) exercise_device(device);
    caller_context_set(before);
}

TEST_EACH_DEVICE(the_current_context_is_unchanged) {
    CU_GET(CUcontext, own, cuCtxCreate_v2(&own, 0, device));
    CU_GET(CUcontext, popped, cuCtxPopCurrent_v2(&popped));
    exercise_with(own);
    CU(cuCtxDestroy_v2(own));
}

/* As in an engine that uses the CUDA runtime. */
TEST_EACH_DEVICE(a_current_primary_context_is_unchanged) {
    CU_GET(CUcontext, primary, cuDevicePrimaryCtxRetain(&primary, device));
    exercise_with(primary);
    CHECK(has_primary_context(device));
    release_device(device);
}

TEST_CALL(no_context_stays_current, exercise_with(NULL))

TEST(the_context_stack_is_unchanged) {
    const CUcontext before = current_context();
    CUcontext stack[3] = {NULL};
    for (size_t i = 0; i < NUM(stack); i++) CU(cuCtxCreate_v2(&stack[i], 0, 0));
    caller_context_set(stack[2]);
    exercise_device(0);
    for (size_t i = NUM(stack); i > 0; i--) {
        CU_GET(CUcontext, popped, cuCtxPopCurrent_v2(&popped));
        CHECK(popped == stack[i - 1]);
    }
    caller_context_set(before);
    for (size_t i = 0; i < NUM(stack); i++) CU(cuCtxDestroy_v2(stack[i]));
}

static void *create_and_destroy_a_region(void *argument) {
    kvmem_device_options options = OPTIONS(kvmem_device_options, it.size = MIB);
    kvmem_region *region = NULL;
    const kvmem_status status = kvmem_region_create_device(&options, &region, NULL);
    kvmem_region_destroy(region);
    *(bool *)argument = status == KVMEM_STATUS_OK && current_context() == NULL;
    return NULL;
}

TEST(another_thread_has_its_own_stack) {
    bool good = false;
    threads_run(1, create_and_destroy_a_region, &good, 0);
    CHECK(good);
}

static void check_no_contexts(void) {
    for (int device = 0; device < driver_devices(); device++) CHECK(!has_primary_context(device));
}

TEST(host_memory_needs_no_context) {
    static const kvmem_block_pair pair[] = {{1, 2}};
    const kv_move move = {pair, 1, 0, 0, 3};
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    kv_side source;
    kv_side destination;
    kv_side_open(&source, &config, NULL, 1);
    kv_side_open(&destination, &config, NULL, 2);
    kv_run(source.layout, destination.layout, &move);
    CALL(kv_side_close(&source));
    CALL(kv_side_close(&destination));
    check_no_contexts();
}

TEST_EACH_DEVICE(a_context_lives_as_long_as_objects_need_it) {
    check_no_contexts();
    kvmem_device_options options = OPTIONS(kvmem_device_options, it.device = device, it.size = MIB);
    GET(kvmem_region *, region, kvmem_region_create_device, &options);
    CHECK(has_primary_context(device));
    GET(kvmem_region *, view, kvmem_region_create_view, region, 0, 1);
    CALL(kvmem_region_destroy(region));
    CHECK(has_primary_context(device));
    CALL(kvmem_region_destroy(view));
    check_no_contexts();
}

TEST_EACH_DEVICE(no_context_is_left_after_all_objects_are_destroyed) {
    exercise_memory(device);
    check_no_contexts();
    exercise_device(device);
    await_context_release(device);
    check_no_contexts();
}

TEST(failed_calls_leave_no_context) {
    kvmem_device_options options = OPTIONS(kvmem_device_options, it.size = UINT64_C(1) << 50);
    REFUSE(KVMEM_STATUS_OUT_OF_MEMORY, "", kvmem_region_create_device, &options);
    check_no_contexts();
    kvmem_pinned_options pinned = OPTIONS(kvmem_pinned_options, it.size = UINT64_C(1) << 56);
    REFUSE(KVMEM_STATUS_OUT_OF_MEMORY, "", kvmem_region_create_pinned, &pinned);
    check_no_contexts();
    kvmem_adopt_options adopt = OPTIONS(kvmem_adopt_options);
    adopt.address = &adopt;
    adopt.size = 8;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "", kvmem_region_adopt_device, &adopt, 0);
    check_no_contexts();
}
