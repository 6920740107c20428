// SPDX-License-Identifier: Apache-2.0
// The first transfers on a GPU that is busy with a kernel of the engine, which waits for the host: creating them returns, and
// delays no other call of the engine. What needs the copy kernels is possible once the device has been idle.
//
// Each call that would wait for the kernel of the engine would never return, because this thread ends that kernel later.
#include "busy.h"
#include "gpu_flight.h"
#include "patience.h"
#include "rates_blob.h"
#include "caller_context.h"

/* Creates a transfer by the path that kvmem selects, and one by the kernel. */
static void create(flight *flight, bool is_on_device) {
    flight_create(flight, it.path = 0);
    CHECK(flight_info(flight).path != KVMEM_PATH_CUDA_KERNEL);
    if (is_on_device) flight_explain(flight, "the driver loads no kernel meanwhile");
    flight_refuse(flight, KVMEM_STATUS_BUSY, "the driver loads no kernel meanwhile", it.path = KVMEM_PATH_CUDA_KERNEL);
    kvmem_blob *rates = NULL;
    const kvmem_status status = kvmem_cuda_get_copy_rates(0, &rates, NULL);
    CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_BUSY);
    kvmem_blob_destroy(rates);
    flight_create(flight, it.path = 0);
    if (!driver_is_stand_in()) flight_run(flight); /* the stand-in holds the copies back, too */
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

/* kvmem must not have loaded a kernel before, so this case is the first. */
static void create_first(bool with_default_rates) {
    if (with_default_rates) EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
    else rates_set(0, NULL);
    OPENED(flight, to_device, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    OPENED(flight, to_host, .from = PLACE_DEVICE, .to = PLACE_PINNED);
    OPENED(flight, on_device, .from = PLACE_DEVICE, .to = PLACE_DEVICE);
    OPENED(stream, stream, 0);
    busy busy = {0};
    busy_begin(&busy);
    create(&to_device, false);
    create(&to_host, false);
    create(&on_device, true);
    const uint64_t memory = work_as_the_engine(&stream);
    busy_end(&busy);
    engine_free(0, memory);
}

TEST(first_transfers_on_a_busy_device) {
    keep_device();
    create_first(false);
    create_first(true);
}

TEST(once_the_device_was_idle_kernels_are_used_and_rates_are_measured) {
    rates_set(0, NULL);
    OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_DEVICE);
    /* A failure to load the kernel is remembered for a while. */
    const uint64_t end = patience_end();
    while (flight_try(&flight, it.path = KVMEM_PATH_CUDA_KERNEL) == KVMEM_STATUS_BUSY)
        patience_wait(end, "the copy kernel to be loaded");
    flight_run(&flight);
    const rates_blob rates = rates_get(0);
    CHECK(rates_info(&rates).source == KVMEM_RATES_MEASURED || driver_is_stand_in());
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
}

/* With loaded kernels the device may be busy: rates are measured beside other work, or later. */
TEST(later_transfers_on_a_busy_device) {
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    flight_create(&flight, it.path = KVMEM_PATH_CUDA_KERNEL);
    rates_set(0, NULL);
    busy busy = {0};
    OPENED(stream, stream, 0);
    busy_begin(&busy);
    flight_create(&flight, it.path = 0);
    flight_create(&flight, it.path = KVMEM_PATH_CUDA_KERNEL);
    const uint64_t memory = work_as_the_engine(&stream);
    if (!driver_is_stand_in()) flight_run(&flight);
    busy_end(&busy);
    engine_free(0, memory);
    flight_run(&flight);
    rates_get(0); /* waits for the measurement that has begun */
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
}
