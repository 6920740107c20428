// SPDX-License-Identifier: Apache-2.0
// The shared state of copies on a GPU: freeing parts of it delays no run and no caller, and it is created
// again only after failures that make it unusable.
#include "control.h"
#include "gpu_flight.h"
#include "caller_context.h"

#include <sys/resource.h>

/* A flight, a stream of the engine, and memory that work on the stream copies. */
typedef struct world {
    flight flight;
    stream stream;
    uint64_t memory;
} world;

static void world_open(world *w) {
    SIM(sim_reset());
    stream_open(&w->stream, 0);
    w->memory = engine_allocate(0, MIB);
    flight_open(&w->flight, .from = PLACE_DEVICE, .to = PLACE_PINNED, .has_queue = true);
}

static void world_close(world *w) {
    SIM(sim_reset());
    flight_close(&w->flight);
    engine_free(0, w->memory);
    stream_close(&w->stream);
}

/* Makes the device execute work of the engine until sim_go, so that calls which wait for the device block. */
static void keep_device_busy(const world *w) {
    SIM(sim_hold());
    stream_copy(&w->stream, w->memory, w->memory + MIB / 2, MIB / 2);
}

/* Waits for the end, and for the completion in the queue. */
static void expect_end(const world *w, const kvmem_transfer *transfer, kvmem_status status) {
    EXPECT(status, kvmem_transfer_wait(transfer, PATIENCE, ERR));
    CHECK_EQ(next_completion(w->flight.queue).status, status);
}

/* A transfer that needs more staging memory is created while the staging memory is in use. */
TEST(staging_memory_grows_without_waiting_for_the_device) {
    OPENED(world, w);
    flight_create(&w.flight, it.transfer.method = KVMEM_METHOD_CUDA_STAGED,
                  it.transfer.staging_size = 16 * 1024);
    SIM(sim_hold());
    flight_submit(&w.flight);
    OWNED(kvmem_transfer) large = flight_create_another(&w.flight,
                                                        it.transfer.method = KVMEM_METHOD_CUDA_STAGED,
                                                        it.transfer.staging_size = 4 * MIB);
    SIM(sim_go());
    expect_end(&w, w.flight.transfer, KVMEM_STATUS_OK);
    keep_device_busy(&w);
    EXPECT_OK(kvmem_transfer_submit_on_stream(large, NULL, w.stream.handle, ERR));
    SIM(sim_go());
    expect_end(&w, large, KVMEM_STATUS_OK);
    flight_check_moved(&w.flight);
}

/* Resources of a failed run are not used again; they are freed while the device executes other work. */
TEST(freeing_resources_of_a_failed_run_does_not_delay_its_end) {
    OPENED(world, w);
    flight_create(&w.flight, it.transfer.method = KVMEM_METHOD_CUDA_STAGED,
                  it.transfer.staging_size = 16 * 1024);
    keep_device_busy(&w);
    SIM(sim_fail("cuEventRecord", 1, CUDA_ERROR_OUT_OF_MEMORY)); /* its first call */
    flight_submit(&w.flight);
    CHECK_EQ(next_completion(w.flight.queue).status, KVMEM_STATUS_OUT_OF_MEMORY);
    EXPECT(KVMEM_STATUS_OUT_OF_MEMORY, kvmem_transfer_poll(w.flight.transfer, ERR));
    SIM(sim_go());
    flight_submit(&w.flight);
    expect_end(&w, w.flight.transfer, KVMEM_STATUS_OK);
    flight_check_moved(&w.flight);
}

static void fail_and_run_again(world *w, CUresult failure, kvmem_status status) {
    OWNED(kvmem_transfer) failing = flight_create_another(&w->flight,
                                                          it.transfer.method = KVMEM_METHOD_CUDA_KERNEL);
    SIM(sim_fail("cuLaunchKernel", 1, failure));
    EXPECT_OK(kvmem_transfer_submit(failing, NULL, ERR));
    expect_end(w, failing, status);
    OWNED(kvmem_transfer) next = flight_create_another(&w->flight,
                                                       it.transfer.method = KVMEM_METHOD_CUDA_KERNEL);
    EXPECT_OK(kvmem_transfer_submit(next, NULL, ERR));
    expect_end(w, next, KVMEM_STATUS_OK);
    flight_check_moved(&w->flight);
}

/* The number of loaded modules is the number of times that the shared state was created. */
TEST(shared_state_is_created_again_only_if_it_is_unusable) {
    static const CUresult harmless[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE,
                                        CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_NOT_PERMITTED};
    OPENED(world, w);
    fail_and_run_again(&w, CUDA_ERROR_OUT_OF_MEMORY, KVMEM_STATUS_OUT_OF_MEMORY);
    const uint64_t loaded = SIM(sim_calls("cuModuleLoadData"));
    for (size_t i = 0; i < NUM(harmless); i++) {
        fail_and_run_again(&w, harmless[i], i == 0 ? KVMEM_STATUS_OUT_OF_MEMORY : KVMEM_STATUS_CUDA);
        CHECK_EQ(SIM(sim_calls("cuModuleLoadData")), loaded);
    }
    fail_and_run_again(&w, CUDA_ERROR_LAUNCH_FAILED, KVMEM_STATUS_CUDA);
    CHECK_EQ(SIM(sim_calls("cuModuleLoadData")), loaded + 1);
}

/* Errors of failed work end a run, even if the lack of file descriptors could have caused the error of the
   driver. */
TEST(a_failure_ends_a_run_without_free_file_descriptors) {
    static const CUresult failures[] = {CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED,
                                        CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_UNKNOWN};
    OPENED(world, w);
    for (size_t i = 0; i < NUM(failures); i++) {
        struct rlimit before;
        flight_create(&w.flight, it.transfer.method = KVMEM_METHOD_CUDA_COPY);
        SIM(sim_hold());
        flight_submit(&w.flight);
        SIM(sim_fail("cuStreamQuery", SIM_EVERY_CALL, failures[i]));
        CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
        const struct rlimit none = {0, before.rlim_max};
        CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
        const kvmem_status status = kvmem_transfer_wait(w.flight.transfer, PATIENCE, ERR);
        CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
        CHECK_EQ(status, KVMEM_STATUS_CUDA);
        CHECK_CAUSE(KVMEM_DOMAIN_CUDA, failures[i]);
        SIM(sim_reset());
        CHECK_EQ(next_completion(w.flight.queue).status, KVMEM_STATUS_CUDA);
    }
}
