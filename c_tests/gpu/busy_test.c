// SPDX-License-Identifier: Apache-2.0
// The first transfers on a GPU that is busy with a kernel of the engine, which waits for the host: creating
// and destroying them and their memory returns, and delays no other call of the engine. What needs the copy
// kernels is possible once the device has been idle. The same for a kernel that starts after all kernels of
// kvmem are loaded. The durations are printed; on a GPU each should be less than 50 ms.
//
// Each call that would wait for the kernel of the engine would never return, because this thread ends that
// kernel later.
#include "busy.h"
#include "gpu_flight.h"
#include "patience.h"
#include "rates_blob.h"
#include "shared_memory.h"
#include "threads.h"
#include "caller_context.h"

#include <stdatomic.h>

OWNER_ROLE

CONTEXTS_END /* and with them the kernels, so that each case loads them */

#define TIMED(what, call)                                                                            \
    do {                                                                                             \
        const uint64_t begun_ = patience_now();                                                      \
        call;                                                                                        \
        printf("        %7.2f ms  %s\n", (double)(patience_now() - begun_) * 1e-6, what);            \
        fflush(stdout);                                                                              \
    } while (0)

/* Creates a transfer by the method that kvmem selects, and one by the kernel. */
static void create(flight *flight, bool is_on_device, unsigned ctas) {
    TIMED("creation, the first", flight_create(flight, it.transfer.method = 0));
    CHECK(flight_info(flight).method != KVMEM_METHOD_CUDA_KERNEL);
    if (is_on_device) flight_explain(flight, "the driver loads no kernel meanwhile");
    TIMED("refusal of the kernel", flight_refuse(flight, KVMEM_STATUS_BUSY,
                                                 "the driver loads no kernel meanwhile",
                                                 it.transfer.method = KVMEM_METHOD_CUDA_KERNEL));
    TIMED("creation, the second", flight_create(flight, it.transfer.method = 0));
    /* The stand-in holds the copies back, too, and copies within a busy GPU may need a multiprocessor. */
    if (!driver_is_stand_in() && !(is_on_device && ctas == BUSY_ALL)) flight_run(flight);
}

/* Calls that would wait if a thread of kvmem waited for the device in a call of the driver. Returns memory,
   which is freed when the device is idle. */
static uint64_t work_as_the_engine(const stream *stream) {
    const uint64_t memory = engine_allocate(0, MIB);
    enter_device(0);
    CU(cuMemsetD8Async(memory, 1, MIB, stream->handle));
    CU_GET(CUevent, event, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CU(cuEventRecord(event, stream->handle));
    CU(cuEventDestroy_v2(event));
    leave_device(0);
    return memory;
}

/* Memory that the driver frees when the device is idle. */
typedef struct freed {
    uint64_t device, pinned;
} freed;

static freed destroy_regions(void) {
    OWN(kvmem_region, device, kvmem_region_create_device,
        REF(OPTIONS(kvmem_device_options, it.size = 64 * MIB)));
    OWN(kvmem_region, pinned, kvmem_region_create_pinned,
        REF(OPTIONS(kvmem_pinned_options, it.size = 64 * MIB)));
    const freed freed = {region_info(device).address, region_info(pinned).address};
    TIMED("destruction of device memory", DESTROYED(kvmem_region, device));
    TIMED("destruction of pinned memory", DESTROYED(kvmem_region, pinned));
    CHECK(driver_memory_type(freed.device) != 0); /* it is not freed yet */
    CHECK(driver_memory_type(freed.pinned) != 0);
    return freed;
}

static void await_freed(const freed *freed) {
    const uint64_t end = patience_end();
    while (driver_memory_type(freed->device) != 0 || driver_memory_type(freed->pinned) != 0)
        patience_wait(end, "memory to be freed when the device is idle");
}

static void drop_handles(flight *flight) {
    flight_destroy_transfer(flight);
    side_drop_handles(&flight->source);
    side_drop_handles(&flight->destination);
}

/* That the device was busy is remembered for a while. */
static void await_kernel(flight *flight) {
    const uint64_t end = patience_end();
    while (flight_try(flight, it.transfer.method = KVMEM_METHOD_CUDA_KERNEL) == KVMEM_STATUS_BUSY)
        patience_wait(end, "the copy kernel to be loaded");
}

/* The kernels are unloaded with the last layout. Without a measurement, whose thread would keep them. */
static void load_and_unload_kernels(void) {
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    await_kernel(&flight);
}

static void *get_rates(void *argument) {
    kvmem_blob *rates = NULL;
    *(kvmem_status *)argument = kvmem_cuda_get_copy_rates(0, 0, &rates, NULL);
    kvmem_blob_destroy(rates);
    return NULL;
}

/* A transfer by this method that has run. */
static void run_by(flight *flight, uint32_t method) {
    flight_create(flight, it.transfer.method = method);
    flight_run(flight);
}

/* All kernels are loaded and all objects exist before the kernel of the engine starts. */
static void destroy_everything(unsigned ctas) {
    printf("        %s, kernels loaded before\n", ctas == BUSY_ONE ? "one CTA" : "all multiprocessors");
    keep_device();
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
    OPENED(flight, to_device, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    OPENED(flight, to_host, .from = PLACE_DEVICE, .to = PLACE_PINNED);
    OPENED(flight, on_device, .from = PLACE_ELASTIC, .to = PLACE_DEVICE, .has_queue = true);
    OPENED(shared_memory, shared, MIB, 3);
    OPENED(stream, stream, 0);
    await_kernel(&to_device);
    flight_run(&to_device);
    run_by(&to_host, KVMEM_METHOD_CUDA_STAGED);
    run_by(&on_device, KVMEM_METHOD_CUDA_KERNEL);
    kvmem_region *opened = open_ipc(&shared.options);
    kvmem_region *plain = NULL;
    EXPECT_OK(kvmem_region_create_device(REF(OPTIONS(kvmem_device_options, it.size = 64 * MIB)), &plain,
                                         ERR));
    kvmem_region *elastic = NULL;
    EXPECT_OK(kvmem_region_create_elastic(REF(OPTIONS(kvmem_elastic_options, it.size = 64 * MIB)), &elastic,
                                          ERR));
    EXPECT_OK(kvmem_region_commit(elastic, 0, 64 * MIB, ERR));
    busy busy = {0};
    busy_begin(&busy, ctas);
    TIMED("destruction of memory, the first", DESTROYED(kvmem_region, plain));
    const freed freed = destroy_regions();
    TIMED("destruction of elastic memory", DESTROYED(kvmem_region, elastic));
    TIMED("destruction of opened memory", DESTROYED(kvmem_region, opened));
    TIMED("destruction of the first layouts", drop_handles(&to_device));
    TIMED("destruction of layouts with staging memory", drop_handles(&to_host));
    TIMED("destruction of the last layouts", drop_handles(&on_device));
    const uint64_t memory = work_as_the_engine(&stream);
    busy_end(&busy);
    await_freed(&freed);
    engine_free(0, memory);
}

TEST_CALL(everything_is_destroyed_beside_one_cta, destroy_everything(BUSY_ONE))
TEST_CALL(everything_is_destroyed_beside_all_multiprocessors, destroy_everything(BUSY_ALL))

/* The statuses of threads are their arguments. */
static void first_transfers(unsigned ctas, bool with_default_rates) {
    printf("        %s, %s\n", ctas == BUSY_ONE ? "one CTA" : "all multiprocessors",
           with_default_rates ? "default rates" : "unknown rates");
    keep_device();
    load_and_unload_kernels();
    if (!with_default_rates) rates_set(0, NULL);
    OPENED(flight, to_device, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    OPENED(flight, to_host, .from = PLACE_DEVICE, .to = PLACE_PINNED);
    OPENED(flight, on_device, .from = PLACE_DEVICE, .to = PLACE_DEVICE);
    OPENED(stream, stream, 0);
    busy busy = {0};
    busy_begin(&busy, ctas);
    create(&to_device, false, ctas);
    create(&to_host, false, ctas);
    create(&on_device, true, ctas);
    kvmem_status status = KVMEM_STATUS_IN_PROGRESS;
    threads rates;
    /* waits for the kernel of the engine, unless rates are set */
    threads_start(&rates, 1, get_rates, &status, 0);
    const freed freed = destroy_regions();
    drop_handles(&to_device);
    drop_handles(&to_host);
    TIMED("destruction of the last layouts", drop_handles(&on_device));
    const uint64_t memory = work_as_the_engine(&stream);
    busy_end(&busy);
    await_freed(&freed);
    threads_join(&rates);
    CHECK_EQ(status, KVMEM_STATUS_OK);
    engine_free(0, memory);
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
}

TEST_CALL(first_transfers_beside_one_cta, first_transfers(BUSY_ONE, false))
TEST_CALL(first_transfers_beside_one_cta_with_default_rates, first_transfers(BUSY_ONE, true))
TEST_CALL(first_transfers_beside_all_multiprocessors, first_transfers(BUSY_ALL, false))
TEST_CALL(first_transfers_beside_all_multiprocessors_with_default_rates, first_transfers(BUSY_ALL, true))

TEST(once_the_device_was_idle_kernels_are_used_and_rates_are_measured) {
    rates_set(0, NULL);
    OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_DEVICE);
    await_kernel(&flight);
    flight_run(&flight);
    const rates_blob rates = rates_get(0);
    CHECK(rates_info(&rates).source == KVMEM_RATES_MEASURED || driver_is_stand_in());
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
}

/* What an engine calls while kernels are compiled, and the longest of these calls. */
typedef struct engine_calls {
    uint64_t memory, longest;
    stream stream;
    atomic_bool is_over;
} engine_calls;

static void *call_as_the_engine(void *argument) {
    engine_calls *calls = argument;
    enter_device(0);
    while (!calls->is_over) {
        const uint64_t begun = patience_now();
        CU(cuMemsetD8Async(calls->memory, 1, MIB, calls->stream.handle));
        CU(cuStreamSynchronize(calls->stream.handle));
        const uint64_t taken = patience_now() - begun;
        if (taken > calls->longest) calls->longest = taken;
    }
    leave_device(0);
    return NULL;
}

/* With CUDA_CACHE_DISABLE=1 the driver compiles each kernel, as at the first use on a machine. */
TEST(first_transfers_on_an_idle_device_while_kernels_are_compiled) {
    keep_device();
    rates_set(0, NULL);
    OPENED(flight, to_device, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    OPENED(flight, on_device, .from = PLACE_DEVICE, .to = PLACE_DEVICE);
    engine_calls calls = {.memory = engine_allocate(0, MIB)};
    stream_open(&calls.stream, 0);
    threads engine;
    threads_start(&engine, 1, call_as_the_engine, &calls, 0);
    TIMED("creation, the first", flight_create(&to_device, it.transfer.method = 0));
    TIMED("creation, the second", flight_create(&to_device, it.transfer.method = 0));
    TIMED("creation within the GPU", flight_create(&on_device, it.transfer.method = 0));
    flight_run(&to_device);
    flight_run(&on_device);
    TIMED("the kernel that is requested", await_kernel(&to_device));
    flight_run(&to_device);
    calls.is_over = true;
    threads_join(&engine);
    printf("        %7.2f ms  the longest call of the engine meanwhile\n", (double)calls.longest * 1e-6);
    rates_get(0);
    stream_close(&calls.stream);
    engine_free(0, calls.memory);
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
}

/* With loaded kernels the device may be busy: rates are measured beside other work, or later. */
TEST(later_transfers_on_a_busy_device) {
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    await_kernel(&flight);
    rates_set(0, NULL);
    busy busy = {0};
    OPENED(stream, stream, 0);
    busy_begin(&busy, BUSY_ONE);
    TIMED("creation, rates unknown", flight_create(&flight, it.transfer.method = 0));
    TIMED("creation by the kernel", flight_create(&flight, it.transfer.method = KVMEM_METHOD_CUDA_KERNEL));
    const uint64_t memory = work_as_the_engine(&stream);
    if (!driver_is_stand_in()) flight_run(&flight);
    busy_end(&busy);
    engine_free(0, memory);
    flight_run(&flight);
    rates_get(0); /* waits for the measurement that has begun */
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
}

/* The kernel that computes checksums waits for that of the engine. */
TEST(a_checksum_beside_all_multiprocessors_keeps_to_its_timeout) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    const uint32_t block = 3;
    CLEANUP(side_close) side side;
    side_open(&side, PLACE_DEVICE, 0, &config, NULL, 7);
    uint32_t checksum = 0, late = 1;
    EXPECT_OK(kvmem_layout_checksum(side.model.layout, &block, 1, PATIENCE, &checksum, ERR));
    busy busy = {0};
    busy_begin(&busy, BUSY_ALL);
    TIMED("checksum with a timeout of 50 ms",
          EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, "the GPU has other work",
                         kvmem_layout_checksum(side.model.layout, &block, 1, MILLISECONDS(50), &late, ERR)));
    CHECK_EQ(late, 1);
    busy_end(&busy);
    EXPECT_OK(kvmem_layout_checksum(side.model.layout, &block, 1, PATIENCE, &late, ERR));
    CHECK_EQ(late, checksum);
}

/* A call of the driver on a thread of its own. */
typedef struct call {
    const char *name;
    void (*prepare)(struct call *call);
    CUresult (*make)(struct call *call);
    bool may_wait; /* kvmem makes it only when the device has finished its work */
    uint64_t address;
    void *object;
    CUresult result;
    atomic_bool has_ended;
} call;

static void prepare_memory(call *call) { CU_ON(0, cuMemAlloc_v2(&call->address, MIB)); }
static void prepare_stream(call *call) { CU_ON(0, cuStreamCreate((CUstream *)&call->object,
                                                                 CU_STREAM_NON_BLOCKING)); }
static void prepare_event(call *call) { CU_ON(0, cuEventCreate((CUevent *)&call->object,
                                                               CU_EVENT_DISABLE_TIMING)); }
static void prepare_locked(call *call) {
    call->object = aligned_alloc(4096, MIB);
    CHECK(call->object != NULL);
    CU_ON(0, cuMemHostRegister_v2(call->object, MIB, 0));
}
static CUresult free_memory_of(call *call) { return driver_get()->cuMemFree_v2(call->address); }
static CUresult unlock_memory(call *call) { return driver_get()->cuMemHostUnregister(call->object); }
static CUresult destroy_stream(call *call) { return driver_get()->cuStreamDestroy_v2(call->object); }
static CUresult destroy_event(call *call) { return driver_get()->cuEventDestroy_v2(call->object); }
/* Stream-ordered, of memory of cuMemAlloc, on the legacy stream. Without the function the memory is
   leaked. */
static CUresult free_in_order(call *call) {
    CUresult (*cuMemFreeAsync)(CUdeviceptr, CUstream) = NULL;
    void *symbol = driver_symbol("cuMemFreeAsync");
    memcpy(&cuMemFreeAsync, &symbol, sizeof(symbol));
    return symbol == NULL ? CUDA_ERROR_NOT_SUPPORTED : cuMemFreeAsync(call->address, call->object);
}
static void prepare_in_order(call *call) {
    prepare_memory(call);
    prepare_stream(call);
}
static CUresult close_opened(call *call) { return driver_get()->cuIpcCloseMemHandle(call->address); }

static void *make_call(void *argument) {
    call *call = argument;
    enter_device(0);
    call->result = call->make(call);
    leave_device(0);
    call->has_ended = true;
    return NULL;
}

static void make_beside_a_kernel(call *call) {
    if (call->prepare != NULL) call->prepare(call);
    busy busy = {0};
    threads thread;
    busy_begin(&busy, BUSY_ONE);
    threads_start(&thread, 1, make_call, call, 0);
    const uint64_t begun = patience_now();
    while (!call->has_ended && patience_now() < begun + SECONDS(1) / 4) sched_yield();
    const bool has_waited = !call->has_ended;
    printf("        %7.2f ms  %s%s\n", (double)(patience_now() - begun) * 1e-6, call->name,
           has_waited ? " waits" : "");
    busy_end(&busy);
    threads_join(&thread);
    CHECK(!has_waited || call->may_wait);
}

/* What kvmem relies on: calls that it makes on the thread of a caller do not wait for the kernel of an
   engine. */
TEST(the_driver_waits_in_no_call_that_kvmem_makes_at_once) {
    keep_device();
    OPENED(shared_memory, shared, MIB, 5);
    CUipcMemHandle handle;
    memcpy(&handle, shared.options.handle, sizeof(handle));
    call close = {.name = "cuIpcCloseMemHandle", .make = close_opened, .may_wait = true};
    CU_ON(0, cuIpcOpenMemHandle_v2(&close.address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    call calls[] = {
        {.name = "cuMemFree", .prepare = prepare_memory, .make = free_memory_of, .may_wait = true},
        {.name = "cuMemHostUnregister", .prepare = prepare_locked, .make = unlock_memory, .may_wait = true},
        {.name = "cuStreamDestroy", .prepare = prepare_stream, .make = destroy_stream},
        {.name = "cuEventDestroy", .prepare = prepare_event, .make = destroy_event},
        {.name = "cuMemFreeAsync of cuMemAlloc", .prepare = prepare_in_order, .make = free_in_order,
         .may_wait = true},
    };
    make_beside_a_kernel(&close);
    for (size_t i = 0; i < NUM(calls); i++) {
        make_beside_a_kernel(&calls[i]);
        if (calls[i].result == CUDA_ERROR_NOT_SUPPORTED) printf("        %s is missing\n", calls[i].name);
    }
    free(calls[1].object);
    if (calls[4].result != CUDA_SUCCESS) CU_ON(0, cuMemFree_v2(calls[4].address));
    CU_ON(0, cuStreamDestroy_v2(calls[4].object));
}
