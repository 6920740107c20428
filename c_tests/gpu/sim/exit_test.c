// SPDX-License-Identifier: Apache-2.0
// A process that exits while threads of kvmem are in calls of the driver, and objects that it destroys after
// the driver has released everything, as static destructors do.
#include "control.h"
#include "gpu_flight.h"
#include "threads.h"
#include "caller_context.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static flight late;
static threads thread;

static void *create_by_the_kernel(void *unused) {
    (void)unused;
    flight_try(&late, it.transfer.method = KVMEM_METHOD_CUDA_KERNEL);
    test_error_slot(); /* frees the error: the thread may end before the process */
    return NULL;
}

/* Only the deadline of the process limits this. */
static void await_held_call(void) {
    while (SIM(sim_held_calls()) == 0) sched_yield();
}

static void begin_to_load_a_kernel(void) {
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
    flight_open(&late, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    SIM(sim_hold_call("cuModuleLoadData"));
    threads_start(&thread, 1, create_by_the_kernel, NULL, 0);
    await_held_call();
}

static atomic_bool exits;

/* Of the C library, for destructors of thread-local objects. exit calls them first, the last one first. */
extern int __cxa_thread_atexit_impl(void (*end)(void *), void *object, void *library);
extern void *__dso_handle;

static void begin_to_exit(void *unused) {
    (void)unused;
    atomic_store(&exits, true);
}

static void *release_at_the_exit(void *unused) {
    (void)unused;
    while (!atomic_load(&exits)) sched_yield();
    SIM(sim_go_calls());
    return NULL;
}

/* As a profiler that registers what it needs for the first kernel: later than kvmem does. The call goes on when the process exits. */
static void exit_later(void (*handler)(void)) {
    CHECK_EQ(atexit(handler), 0);
    CHECK_EQ(__cxa_thread_atexit_impl(begin_to_exit, NULL, &__dso_handle), 0);
    pthread_t releaser; /* ends beside the exit, so it is not joined */
    CHECK_EQ(pthread_create(&releaser, NULL, release_at_the_exit, NULL), 0);
    CHECK_EQ(pthread_detach(releaser), 0);
}

/* kvmem has waited for the thread that loads: that has looked the kernel up, too. */
static void expect_a_loaded_kernel(void) {
    if (SIM(sim_calls("cuModuleGetFunction")) == 0) _Exit(EXIT_FAILURE);
}

ROLE(exits_before_the_end_of_a_load) {
    (void)socket;
    begin_to_load_a_kernel();
    exit_later(expect_a_loaded_kernel);
}

/* kvmem has waited for the thread that measures: that has begun no further step, and has destroyed its stream. */
static void expect_the_end_of_a_measurement(void) {
    if (SIM(sim_calls("cuEventElapsedTime")) != 1 || SIM(sim_calls("cuStreamDestroy_v2")) == 0) _Exit(EXIT_FAILURE);
}

ROLE(exits_before_the_end_of_a_measurement) {
    (void)socket;
    flight_open(&late, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    SIM(sim_hold_call("cuEventElapsedTime"));
    flight_create(&late, it.transfer.method = 0);
    await_held_call();
    CHECK_EQ(SIM(sim_calls("cuStreamDestroy_v2")), 0);
    exit_later(expect_the_end_of_a_measurement);
}

static _Atomic(const char *) next_held;

static bool is_next_held(const char *function) {
    const char *held = atomic_load(&next_held);
    if (held == NULL || strcmp(function, held) != 0) return false;
    atomic_store(&next_held, NULL);
    return true;
}

/* The call that is held goes on, and the next one of this function is held. */
static void hold_later_call(const char *function) {
    atomic_store(&next_held, function);
    SIM(sim_ask(is_next_held));
    SIM(sim_go_calls());
    while (atomic_load(&next_held) != NULL) sched_yield();
}

static void expect_no_held_call(void) {
    if (SIM(sim_held_calls()) != 0) _Exit(EXIT_FAILURE);
}

/* Nothing needs the kernel any more when it is loaded. */
ROLE(exits_before_a_kernel_is_unloaded) {
    (void)socket;
    begin_to_load_a_kernel();
    threads_join(&thread);
    flight_close(&late);
    hold_later_call("cuModuleUnload");
    exit_later(expect_no_held_call);
}

/* The thread that measures is the last user of the device. */
ROLE(exits_before_a_measured_device_is_released) {
    (void)socket;
    flight_open(&late, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    SIM(sim_hold_call("cuEventElapsedTime"));
    flight_create(&late, it.transfer.method = 0);
    await_held_call();
    flight_close(&late);
    hold_later_call("cuDevicePrimaryCtxRelease_v2");
    exit_later(expect_no_held_call);
}

/* After the end of the driver: no kernel is loaded. */
static void create_too_late(void) {
    const kvmem_status status = flight_try(&late, it.transfer.method = KVMEM_METHOD_CUDA_KERNEL);
    if (status == KVMEM_STATUS_INVALID_STATE && strstr(test_last_message(), "the process exits") != NULL) return;
    fprintf(stderr, "created a transfer at the end: %d, %s\n", status, test_last_message());
    _Exit(EXIT_FAILURE);
}

ROLE(creates_a_transfer_at_the_very_end) {
    (void)socket;
    CHECK_EQ(atexit(create_too_late), 0);
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
    flight_open(&late, .from = PLACE_PINNED, .to = PLACE_DEVICE);
}

ROLE(exits_while_a_kernel_is_loaded) {
    (void)socket;
    begin_to_load_a_kernel();
}

static void destroy_memory_beside_work(void) {
    retain_device(0);
    const uint64_t work = engine_allocate(0, 64);
    static stream stream;
    stream_open(&stream, 0);
    GET(kvmem_region *, region, kvmem_region_create_device,
        REF(OPTIONS(kvmem_device_options, it.size = MIB)));
    SIM(sim_hold());
    CU_ON(0, cuMemsetD8Async(work, 1, 64, stream.handle));
    kvmem_region_destroy(region);
}

ROLE(exits_while_the_end_of_work_is_awaited) {
    (void)socket;
    destroy_memory_beside_work();
    SIM(sim_hold_call("cuEventQuery"));
    await_held_call();
    exit_later(expect_no_held_call);
}

ROLE(exits_while_memory_is_freed) {
    (void)socket;
    destroy_memory_beside_work();
    SIM(sim_hold_call("cuMemFree_v2"));
    SIM(sim_go());
    await_held_call();
}

static void print_warning(uint32_t level, const char *target, const char *message, void *has_warned) {
    (void)level, (void)target;
    fprintf(stderr, "%s\n", message);
    *(bool *)has_warned = true;
}

static kvmem_region *elastic;

static void destroy_handles(const side *side) {
    kvmem_layout_destroy(side->model.layout);
    for (size_t i = 0; i < side->model.num_regions; i++) kvmem_region_destroy(side->model.regions[i]);
    kvmem_region_destroy(side->whole);
}

static void destroy_after_the_driver(void) {
    static bool has_warned;
    kvmem_log_set_callback(KVMEM_LOG_WARN, print_warning, &has_warned, NULL);
    SIM(sim_fail_nth_of_all(SIM_EVERY_CALL, CUDA_ERROR_DEINITIALIZED));
    kvmem_transfer_destroy(late.transfer);
    destroy_handles(&late.source);
    destroy_handles(&late.destination);
    kvmem_region_destroy(elastic);
    kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, NULL); /* returns when all messages were delivered */
    if (has_warned) _Exit(EXIT_FAILURE);
}

ROLE(destroys_objects_after_the_driver) {
    (void)socket;
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
    flight_open(&late, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    flight_create(&late, it.transfer.method = KVMEM_METHOD_CUDA_KERNEL);
    flight_submit(&late);
    EXPECT_OK(kvmem_region_create_elastic(REF(OPTIONS(kvmem_elastic_options, it.size = MIB)), &elastic, ERR));
    EXPECT_OK(kvmem_region_commit(elastic, 0, MIB, ERR));
    CHECK_EQ(atexit(destroy_after_the_driver), 0);
}

static void expect_good_end(const char *role) {
    peer process = peer_start(role);
    peer_finish(&process);
}

TEST(a_process_exits_while_a_kernel_is_loaded) { expect_good_end("exits_while_a_kernel_is_loaded"); }

TEST(a_process_that_exits_waits_for_a_thread_that_loads_a_kernel) { expect_good_end("exits_before_the_end_of_a_load"); }

TEST(a_process_that_exits_waits_for_a_thread_that_measures) { expect_good_end("exits_before_the_end_of_a_measurement"); }

TEST(a_process_that_exits_waits_until_a_kernel_is_unloaded) { expect_good_end("exits_before_a_kernel_is_unloaded"); }

TEST(a_process_that_exits_waits_until_a_measured_device_is_released) {
    expect_good_end("exits_before_a_measured_device_is_released");
}

TEST(a_process_that_exits_waits_for_a_query_of_the_end_of_work) { expect_good_end("exits_while_the_end_of_work_is_awaited"); }

TEST(no_kernel_is_loaded_after_the_exit) { expect_good_end("creates_a_transfer_at_the_very_end"); }

TEST(a_process_exits_while_memory_is_freed) { expect_good_end("exits_while_memory_is_freed"); }

TEST(objects_that_outlive_the_driver_are_destroyed_without_warnings) {
    expect_good_end("destroys_objects_after_the_driver");
}
