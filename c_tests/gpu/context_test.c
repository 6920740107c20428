// SPDX-License-Identifier: Apache-2.0
// Contexts: the caller's stay as they are, none is made that nobody asked for, and the library's go with its
// last object.
#include "engine.h"
#include "stance.h"
#include "work.h"

#include <pthread.h>

/* Does the work with a context current, and finds the same one after each call. */
static void work_with(CUcontext context) {
    const CUcontext before = current_context();
    stance_take(context);
    for (int device = 0; device < driver_devices(); device++) work_on(device);
    stance_take(before);
}

TEST_EACH_DEVICE(the_current_context_stays) {
    CUcontext own = NULL;
    CUcontext popped = NULL;
    CU(cuCtxCreate_v2(&own, 0, device));
    CU(cuCtxPopCurrent_v2(&popped));
    work_with(own);
    CU(cuCtxDestroy_v2(own));
}

/* What an engine with the CUDA runtime has. */
TEST_EACH_DEVICE(a_primary_context_stays_current) {
    CUcontext primary = NULL;
    CU(cuDevicePrimaryCtxRetain(&primary, device));
    work_with(primary);
    CHECK(has_primary_context(device));
    release_device(device);
}

TEST_CALL(having_none_stays_so, work_with(NULL))

TEST(the_stack_below_stays) {
    const CUcontext before = current_context();
    CUcontext stack[3] = {NULL};
    for (size_t i = 0; i < NUM(stack); i++) CU(cuCtxCreate_v2(&stack[i], 0, 0));
    stance_take(stack[2]);
    work_on(0);
    for (size_t i = NUM(stack); i > 0; i--) {
        CUcontext popped = NULL;
        CU(cuCtxPopCurrent_v2(&popped));
        CHECK(popped == stack[i - 1]);
    }
    stance_take(before);
    for (size_t i = 0; i < NUM(stack); i++) CU(cuCtxDestroy_v2(stack[i]));
}

static void *use_a_region(void *argument) {
    kvmem_device_options options = OPTIONS(kvmem_device_options, it.size = MIB);
    kvmem_region *region = NULL;
    const kvmem_status status = kvmem_region_create_device(&options, &region, NULL);
    kvmem_region_destroy(region);
    *(bool *)argument = status == KVMEM_STATUS_OK && current_context() == NULL;
    return NULL;
}

TEST(another_thread_has_its_own_stack) {
    bool good = false;
    threads_run(1, use_a_region, &good, 0);
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

TEST_EACH_DEVICE(a_context_lives_as_long_as_what_needs_it) {
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

TEST_EACH_DEVICE(after_the_work_no_context_is_left) {
    work_on_memory(device);
    check_no_contexts();
    work_on(device);
    await_no_context(device);
    check_no_contexts();
}

TEST(what_is_refused_leaves_no_context) {
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
