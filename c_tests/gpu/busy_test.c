// SPDX-License-Identifier: Apache-2.0
// The first transfers on a GPU that is busy with a kernel of the engine, which waits for the host: creating and destroying them and
// their memory returns, and delays no other call of the engine. What needs the copy kernels is possible once the device has been
// idle. The durations are printed; on a GPU creation should take less than 50 ms.
//
// Each call that would wait for the kernel of the engine would never return, because this thread ends that kernel later.
#include "busy.h"
#include "gpu_flight.h"
#include "patience.h"
#include "rates_blob.h"
#include "threads.h"
#include "caller_context.h"

CONTEXTS_END /* and with them the kernels, so that each case loads them */

#define TIMED(what, call)                                                                            \
    do {                                                                                             \
        const uint64_t begun_ = patience_now();                                                      \
        call;                                                                                        \
        printf("        %7.2f ms  %s\n", (double)(patience_now() - begun_) * 1e-6, what);            \
        fflush(stdout);                                                                              \
    } while (0)

/* Creates a transfer by the path that kvmem selects, and one by the kernel. */
static void create(flight *flight, bool is_on_device, unsigned ctas) {
    TIMED("creation, the first", flight_create(flight, it.path = 0));
    CHECK(flight_info(flight).path != KVMEM_PATH_CUDA_KERNEL);
    if (is_on_device) flight_explain(flight, "the driver loads no kernel meanwhile");
    TIMED("refusal of the kernel", flight_refuse(flight, KVMEM_STATUS_BUSY, "the driver loads no kernel meanwhile",
                                                 it.path = KVMEM_PATH_CUDA_KERNEL));
    TIMED("creation, the second", flight_create(flight, it.path = 0));
    /* The stand-in holds the copies back, too, and copies within a busy GPU may need a multiprocessor. */
    if (!driver_is_stand_in() && !(is_on_device && ctas == BUSY_ALL)) flight_run(flight);
}

/* Calls that would wait if a thread of kvmem waited for the device in a call of the driver. Returns memory, which is freed when
   the device is idle. */
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
    OWN(kvmem_region, device, kvmem_region_create_device, REF(OPTIONS(kvmem_device_options, it.size = 64 * MIB)));
    OWN(kvmem_region, pinned, kvmem_region_create_pinned, REF(OPTIONS(kvmem_pinned_options, it.size = 64 * MIB)));
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
    while (flight_try(flight, it.path = KVMEM_PATH_CUDA_KERNEL) == KVMEM_STATUS_BUSY)
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
    *(kvmem_status *)argument = kvmem_cuda_get_copy_rates(0, &rates, NULL);
    kvmem_blob_destroy(rates);
    return NULL;
}

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
    threads_start(&rates, 1, get_rates, &status, 0); /* waits for the kernel of the engine, unless rates are set */
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

/* With loaded kernels the device may be busy: rates are measured beside other work, or later. */
TEST(later_transfers_on_a_busy_device) {
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    await_kernel(&flight);
    rates_set(0, NULL);
    busy busy = {0};
    OPENED(stream, stream, 0);
    busy_begin(&busy, BUSY_ONE);
    TIMED("creation, rates unknown", flight_create(&flight, it.path = 0));
    TIMED("creation by the kernel", flight_create(&flight, it.path = KVMEM_PATH_CUDA_KERNEL));
    const uint64_t memory = work_as_the_engine(&stream);
    if (!driver_is_stand_in()) flight_run(&flight);
    busy_end(&busy);
    engine_free(0, memory);
    flight_run(&flight);
    rates_get(0); /* waits for the measurement that has begun */
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
}
