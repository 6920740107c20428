// SPDX-License-Identifier: Apache-2.0
// Memory that is destroyed beside work that runs for long: it is freed when the work has ended, or when an
// allocation needs it.
#include "busy.h"
#include "control.h"
#include "gpu_flight.h"
#include "patience.h"
#include "rates_blob.h"
#include "shared_memory.h"
#include "threads.h"
#include "caller_context.h"

#include <sched.h>

#include <sys/resource.h>

OWNER_ROLE

static kvmem_status allocate(uint64_t size, kvmem_region **region) {
    return kvmem_region_create_device(REF(OPTIONS(kvmem_device_options, it.size = size)), region, ERR);
}

static void await_free(uint64_t address) {
    const uint64_t end = patience_end();
    while (driver_memory_type(address) != 0) patience_wait(end, "memory to be freed when the device is idle");
}

/* Returns the address of a new region. */
static uint64_t allocate_one(kvmem_region **region) {
    EXPECT_OK(allocate(MIB, region));
    return region_info(*region).address;
}

/* So much of the memory of device 0 that there is no space for as much again. Returns the size. */
static uint64_t allocate_most(kvmem_region **region) {
    CU_GET(size_t, memory, cuDeviceTotalMem_v2(&memory, 0));
    const uint64_t most = memory / 5 * 4;
    EXPECT_OK(allocate(most, region));
    return most;
}

static kvmem_cuda_device_info device_info(void) {
    GET(kvmem_cuda_device_info, info, kvmem_cuda_get_device_info, 0);
    return info;
}

TEST(an_allocation_gets_memory_that_was_destroyed_beside_long_work) {
    RETAIN_DEVICE(0);
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    kvmem_region *region = NULL;
    const uint64_t most = allocate_most(&region);
    busy busy = {0};
    busy_begin(&busy, BUSY_ONE);
    const kvmem_cuda_device_info before_end = device_info();
    DESTROYED(kvmem_region, region);
    const kvmem_cuda_device_info kept = device_info();
    CHECK_EQ(kept.kept_objects, before_end.kept_objects + 1);
    CHECK_EQ(kept.kept_bytes, before_end.kept_bytes + most);
    EXPECT(KVMEM_STATUS_OUT_OF_MEMORY, allocate(most, &region));
    busy_end(&busy);
    EXPECT_OK(allocate(most, &region)); /* at once: nothing else may have freed it */
    DESTROYED(kvmem_region, region);
    const uint64_t end = patience_end();
    while (device_info().kept_objects > 0) patience_wait(end, "objects to be freed");
    CHECK_EQ(device_info().kept_bytes, 0);
}

/* Work that was submitted after the destruction counts, too: the driver would wait for it. */
TEST(later_work_is_waited_for) {
    RETAIN_DEVICE(0);
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    kvmem_region *region = NULL;
    const uint64_t address = allocate_one(&region);
    busy first = {0}, second = {0};
    busy_begin(&first, BUSY_ONE);
    DESTROYED(kvmem_region, region);
    const uint64_t freed = SIM(sim_calls("cuMemFree_v2"));
    busy_begin(&second, BUSY_ONE); /* the stand-in holds both back until the end of the hold */
    CHECK_EQ(SIM(sim_calls("cuMemFree_v2")), freed);
    CHECK(driver_memory_type(address) != 0);
    busy_end(&first);
    busy_end(&second);
    await_free(address);
}

/* Memory is free when its destruction returns. */
TEST(without_work_memory_is_freed_at_once) {
    SIM(sim_reset());
    RETAIN_DEVICE(0);
    kvmem_region *region = NULL;
    const uint64_t address = allocate_one(&region), asked = SIM(sim_calls("cuCtxRecordEvent"));
    DESTROYED(kvmem_region, region);
    CHECK_EQ(driver_memory_type(address), 0);
    CHECK_EQ(SIM(sim_calls("cuCtxRecordEvent")), asked + 1);
}

/* The engine submits work without a pause, each part of which ends soon. */
TEST(memory_is_freed_also_if_the_device_is_never_idle) {
    SIM(sim_reset());
    RETAIN_DEVICE(0);
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    OPENED(stream, stream, 0);
    const uint64_t work = engine_allocate(0, 64);
    kvmem_region *region = NULL;
    const uint64_t address = allocate_one(&region);
    SIM(sim_feed());
    for (int i = 0; i < 2; i++) CU_ON(0, cuMemsetD8Async(work, 1, 64, stream.handle));
    DESTROYED(kvmem_region, region);
    await_free(address);
    SIM(sim_go());
    engine_free(0, work);
}

/* The question is put once, and not again before the work has ended. */
TEST(a_busy_device_is_asked_once) {
    SIM(sim_reset());
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    busy busy = {0};
    busy_begin(&busy, BUSY_ONE);
    flight_refuse(&flight, KVMEM_STATUS_BUSY, "the driver loads no kernel meanwhile",
                  it.transfer.method = KVMEM_METHOD_CUDA_KERNEL);
    const uint64_t asked = SIM(sim_calls("cuCtxRecordEvent")), end = patience_now() + SECONDS(3) / 2;
    CHECK(asked > 0);
    for (int i = 0; i < 10 || patience_now() < end; i++) {
        CHECK_EQ(flight_try(&flight, it.transfer.method = KVMEM_METHOD_CUDA_KERNEL), KVMEM_STATUS_BUSY);
        if (i >= 10) continue;
        kvmem_region *region = NULL;
        EXPECT_OK(allocate(MIB, &region));
        DESTROYED(kvmem_region, region);
    }
    CHECK_EQ(SIM(sim_calls("cuCtxRecordEvent")), asked);
    busy_end(&busy);
}

/* The driver is not asked again within a second. A busy machine may have taken longer. */
static void expect_asked_again_after_a_second(uint64_t asked, uint64_t begun) {
    CHECK(SIM(sim_calls("cuCtxRecordEvent")) == asked || patience_now() - begun > SECONDS(1));
}

/* The question invalidates the capture. It is not repeated at once, so that the engine can capture again. */
TEST(while_a_stream_is_captured_memory_is_kept) {
    SIM(sim_reset());
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    OPENED(stream, stream, 0);
    kvmem_region *region = NULL;
    const uint64_t address = allocate_one(&region);
    stream_begin_capture(&stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    const uint64_t begun = patience_now();
    DESTROYED(kvmem_region, region);
    const uint64_t asked = SIM(sim_calls("cuCtxRecordEvent"));
    CHECK(driver_memory_type(address) != 0);
    flight_refuse(&flight, KVMEM_STATUS_BUSY, "is being captured",
                  it.transfer.method = KVMEM_METHOD_CUDA_KERNEL);
    expect_asked_again_after_a_second(asked, begun);
    CUgraph graph = NULL;
    enter_device(0);
    CHECK_EQ(driver_get()->cuStreamEndCapture(stream.handle, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    leave_device(0);
    await_free(address);
}

/* Each device has a thread of its own. */
TEST(a_free_that_waits_delays_no_other_device) {
    SIM(sim_reset());
    RETAIN_DEVICE(0);
    RETAIN_DEVICE(1);
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    kvmem_region *regions[2] = {NULL};
    uint64_t addresses[2];
    for (int i = 0; i < 2; i++) {
        EXPECT_OK(kvmem_region_create_device(REF(OPTIONS(kvmem_device_options, it.size = MIB, it.device = i)),
                                             &regions[i], ERR));
        addresses[i] = region_info(regions[i]).address;
    }
    busy busy = {0};
    busy_begin(&busy, BUSY_ONE);
    OPENED(stream, stream, 1);
    CU_ON(1, cuMemsetD8Async((uint64_t)(uintptr_t)busy.words, 1, 4, stream.handle));
    for (int i = 0; i < 2; i++) DESTROYED(kvmem_region, regions[i]);
    SIM(sim_hold_call("cuMemFree_v2"));
    busy_end(&busy);
    const uint64_t end = patience_end();
    while (SIM(sim_held_calls()) == 0) patience_wait(end, "a thread to free memory");
    while (driver_memory_type(addresses[0]) != 0 && driver_memory_type(addresses[1]) != 0)
        patience_wait(end, "the other thread to free memory");
    CHECK_EQ(SIM(sim_held_calls()), 1);
    SIM(sim_go_calls());
    await_free(addresses[0]);
    await_free(addresses[1]);
}

/* Host memory that was destroyed beside work is looked for when host memory is exhausted, here by a limit on
   addresses. */
TEST(an_allocation_gets_host_memory_that_was_destroyed_beside_work) {
    const uint64_t size = 256 * MIB;
    SIM(sim_reset());
    RETAIN_DEVICE(0);
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    kvmem_region *pinned = NULL, *system = NULL;
    EXPECT_OK(kvmem_region_create_pinned(REF(OPTIONS(kvmem_pinned_options, it.size = size)), &pinned, ERR));
    busy busy = {0};
    busy_begin(&busy, BUSY_ONE);
    DESTROYED(kvmem_region, pinned);
    const struct rlimit usual = limit_addresses(size / 2);
    const kvmem_system_options options = OPTIONS(kvmem_system_options, it.size = size);
    const kvmem_status beside = kvmem_region_create_system(&options, &system, NULL);
    busy_end(&busy);
    const kvmem_status after = kvmem_region_create_system(&options, &system, NULL); /* at once */
    CHECK_EQ(setrlimit(RLIMIT_AS, &usual), 0);
    CHECK_EQ(beside, KVMEM_STATUS_OUT_OF_MEMORY);
    CHECK_EQ(after, KVMEM_STATUS_OK);
    DESTROYED(kvmem_region, system);
}

/* A peer can send a handle that the driver opens, and that a check then refuses. */
TEST(memory_of_a_refused_handle_is_closed_when_the_device_is_idle) {
    SIM(sim_reset());
    RETAIN_DEVICE(0);
    RETAIN_DEVICE(1);
    OPENED(shared_memory, shared, MIB, 1);
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    shared.options.device = 1;
    busy busy = {0};
    busy_begin(&busy, BUSY_ONE);
    OPENED(stream, stream, 1);
    CU_ON(1, cuMemsetD8Async((uint64_t)(uintptr_t)busy.words, 1, 4, stream.handle));
    for (int i = 0; i < 2; i++) {
        refuse_ipc(&shared.options, KVMEM_STATUS_INVALID_ARGUMENT, "memory of device 0, not of device 1");
        CHECK_EQ(sim_live_now().ipc_openings, before.ipc_openings + 1);
    }
    busy_end(&busy);
}

/* A capture that was invalidated before, and that the engine has not ended yet. */
TEST(an_invalidated_capture_is_a_capture) {
    SIM(sim_reset());
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    kvmem_region *region = NULL;
    const uint64_t address = allocate_one(&region);
    SIM(sim_fail("cuCtxRecordEvent", SIM_EVERY_CALL, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
    const uint64_t begun = patience_now();
    DESTROYED(kvmem_region, region);
    const uint64_t asked = SIM(sim_calls("cuCtxRecordEvent"));
    CHECK(driver_memory_type(address) != 0);
    flight_refuse(&flight, KVMEM_STATUS_BUSY, "is being captured",
                  it.transfer.method = KVMEM_METHOD_CUDA_KERNEL);
    expect_asked_again_after_a_second(asked, begun);
    SIM(sim_cancel_failures());
    await_free(address);
}

/* A driver may have the function, and not support it in every configuration. */
TEST(without_support_memory_is_freed_and_kernels_are_loaded_at_once) {
    SIM(sim_reset());
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    SIM(sim_fail("cuCtxRecordEvent", SIM_EVERY_CALL, CUDA_ERROR_NOT_SUPPORTED));
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    flight_create(&flight, it.transfer.method = KVMEM_METHOD_CUDA_KERNEL);
    kvmem_region *region = NULL;
    const uint64_t address = allocate_one(&region);
    DESTROYED(kvmem_region, region);
    CHECK_EQ(driver_memory_type(address), 0);
    flight_run(&flight);
    SIM(sim_cancel_failures());
}

/* Without it, only the driver knows the end of the work: a thread waits there, and the caller does not. */
TEST(without_support_no_caller_waits_for_the_work) {
    SIM(sim_reset());
    RETAIN_DEVICE(0);
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    kvmem_region *device = NULL;
    EXPECT_OK(allocate(MIB, &device));
    kvmem_region *pinned = MADE(kvmem_region, kvmem_region_create_pinned, REF(OPTIONS(kvmem_pinned_options, it.size = MIB)));
    const uint64_t address = region_info(device).address;
    const kvmem_cuda_device_info before_end = device_info();
    SIM(sim_fail("cuCtxRecordEvent", SIM_EVERY_CALL, CUDA_ERROR_NOT_SUPPORTED));
    busy busy = {0};
    busy_begin(&busy, BUSY_ONE);
    DESTROYED(kvmem_region, device);
    DESTROYED(kvmem_region, pinned);
    CHECK(driver_memory_type(address) != 0);
    CHECK_EQ(device_info().kept_objects, before_end.kept_objects + 2);
    busy_end(&busy); /* fails if a call has waited for it */
    const uint64_t end = patience_end();
    while (device_info().kept_objects > before_end.kept_objects) patience_wait(end, "objects to be freed");
    CHECK_EQ(driver_memory_type(address), 0);
    SIM(sim_cancel_failures());
}

/* Memory that cannot be freed is named where it is missed. */
TEST(an_allocation_says_that_the_driver_does_not_report_the_end_of_work) {
    SIM(sim_reset());
    RETAIN_DEVICE(0);
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    kvmem_region *region = NULL;
    const uint64_t most = allocate_most(&region);
    SIM(sim_fail("cuCtxRecordEvent", SIM_EVERY_CALL, CUDA_ERROR_NOT_PERMITTED));
    DESTROYED(kvmem_region, region);
    await_calls("cuCtxRecordEvent", 4); /* by the thread that frees */
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_MEMORY, "does not report whether", kvmem_region_create_device(
        REF(OPTIONS(kvmem_device_options, it.size = most)), &region, ERR));
    SIM(sim_cancel_failures());
    AWAIT(allocate(most, &region) == KVMEM_STATUS_OK); /* the thread that frees may be late */
    DESTROYED(kvmem_region, region);
}

/* A poll of 20 ms is more than a hundred queries. */
#define MAX_QUERIES 50

/* The engine submits work without a pause: each destruction would wait for it. */
TEST(of_many_objects_the_first_waits_for_the_work) {
    SIM(sim_reset());
    RETAIN_DEVICE(0);
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    OPENED(stream, stream, 0);
    const uint64_t work = engine_allocate(0, 64);
    kvmem_region *first = NULL, *second = NULL;
    EXPECT_OK(allocate(MIB, &first));
    EXPECT_OK(allocate(MIB, &second));
    SIM(sim_hold());
    CU_ON(0, cuMemsetD8Async(work, 1, 64, stream.handle));
    DESTROYED(kvmem_region, first);
    CU_ON(0, cuMemsetD8Async(work, 2, 64, stream.handle));
    SIM(sim_advance(1)); /* what is running now has not run for long */
    const uint64_t asked = SIM(sim_calls("cuEventQuery"));
    DESTROYED(kvmem_region, second);
    CHECK(SIM(sim_calls("cuEventQuery")) - asked < MAX_QUERIES);
    SIM(sim_go());
    engine_free(0, work);
}

typedef struct creation {
    flight *flight;
    kvmem_status status;
    uint32_t method; /* that the transfer has taken */
} creation;

/* The current context of this thread is not that of the case. */
static void *create(creation *creation, kv_job options) {
    const flight *flight = creation->flight;
    kvmem_transfer *transfer = NULL;
    creation->status = kv_prepare(flight->source.model.layout, flight->destination.model.layout, &options,
                                  &transfer, NULL);
    kvmem_transfer_info info = {0};
    if (kvmem_transfer_get_info(transfer, &info, NULL) == KVMEM_STATUS_OK) creation->method = info.method;
    kvmem_transfer_destroy(transfer);
    return NULL;
}

static void *create_by_the_kernel(void *argument) {
    creation *creation = argument;
    return create(creation, WITH(flight_options(creation->flight), it.transfer.method = KVMEM_METHOD_CUDA_KERNEL));
}

enum { MANY_HEADS = 16 };

/* A transfer of a million rows of 32 bytes, whose copies by the driver would take seconds. */
static void *create_with_many_rows(void *argument) {
    creation *creation = argument;
    return create(creation, WITH(flight_options(creation->flight), it.transfer.num_heads = MANY_HEADS));
}

static void await_the_kernel(flight *flight) {
    const uint64_t end = patience_end();
    while (flight_try(flight, it.transfer.method = KVMEM_METHOD_CUDA_KERNEL) == KVMEM_STATUS_BUSY)
        patience_wait(end, "the copy kernel to be loaded");
}

/* Who requests the kernel waits on meanwhile, and gets it. Had the other creations waited as long, that wait would have ended, too. */
TEST(only_who_needs_a_kernel_waits_for_its_compilation) {
    SIM(sim_reset());
    rates_set(0, NULL);
    OPENED(flight, waiting, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    OPENED(flight, other, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    SIM(sim_hold_call("cuLinkComplete"));
    const uint64_t compilations = SIM(sim_calls("cuLinkComplete"));
    threads thread;
    creation creation = {&waiting, KVMEM_STATUS_IN_PROGRESS, 0};
    threads_start(&thread, 1, create_by_the_kernel, &creation, 0);
    while (SIM(sim_held_calls()) == 0) sched_yield(); /* only the deadline of the process limits this */
    for (int i = 0; i < 3; i++) {
        flight_create(&other, it.transfer.method = 0);
        const kvmem_compared_method taken = flight_explain(&other, "the driver compiles a kernel for device 0");
        CHECK(taken.method != KVMEM_METHOD_CUDA_KERNEL && taken.method != KVMEM_METHOD_CUDA_STAGED);
        flight_run(&other);
    }
    SIM(sim_go_calls());
    threads_join(&thread);
    CHECK_EQ(creation.status, KVMEM_STATUS_OK);
    await_the_kernel(&waiting);
    CHECK_EQ(SIM(sim_calls("cuLinkComplete")), compilations + 1);
    rates_get(0); /* what could not be measured before the kernel was loaded */
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
}

TEST(a_kernel_that_saves_seconds_is_waited_for) {
    SIM(sim_reset());
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
    const kvmem_layout_config from = WITH(side_config(&kv_kinds[0]), it.page_size = 2048, it.num_heads = MANY_HEADS,
                                          it.inner_dim = MANY_HEADS * 16, it.order = "L/BONHC");
    const kvmem_layout_config to = WITH(from, it.order = "L/BOHNC");
    OPENED(flight, many, .from = PLACE_DEVICE, .to = PLACE_DEVICE, .source = &from, .destination = &to);
    OPENED(flight, few, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    SIM(sim_hold_call("cuLinkComplete"));
    threads thread;
    creation creation = {&many, KVMEM_STATUS_IN_PROGRESS, 0};
    threads_start(&thread, 1, create_with_many_rows, &creation, 0);
    while (SIM(sim_held_calls()) == 0) sched_yield(); /* only the deadline of the process limits this */
    flight_create(&few, it.transfer.method = 0); /* as long as a call waits that has another method */
    SIM(sim_go_calls());
    threads_join(&thread);
    CHECK_EQ(creation.status, KVMEM_STATUS_OK);
    CHECK_EQ(creation.method, KVMEM_METHOD_CUDA_KERNEL);
}

/* The driver would load the code after that work, and hold up all calls of the context until then. */
TEST(work_that_begins_while_a_kernel_is_compiled_delays_no_call) {
    SIM(sim_reset());
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    SIM(sim_hold_call("cuLinkComplete"));
    const uint64_t loads = SIM(sim_calls("cuModuleLoadData")), compilations = SIM(sim_calls("cuLinkComplete"));
    threads thread;
    creation creation = {&flight, KVMEM_STATUS_OK, 0};
    threads_start(&thread, 1, create_by_the_kernel, &creation, 0);
    while (SIM(sim_held_calls()) == 0) sched_yield(); /* only the deadline of the process limits this */
    busy busy = {0};
    busy_begin(&busy, BUSY_ONE);
    SIM(sim_go_calls());
    threads_join(&thread);
    CHECK_EQ(creation.status, KVMEM_STATUS_BUSY);
    CHECK_EQ(SIM(sim_calls("cuModuleLoadData")), loads);
    busy_end(&busy);
    await_the_kernel(&flight);
    CHECK_EQ(SIM(sim_calls("cuLinkComplete")), compilations + 1); /* the code is kept */
}
