// SPDX-License-Identifier: Apache-2.0
// What copies on a GPU share: what is freed of it holds up no run and no caller, and it is given up for no
// failure but one after which it is of no use.
#include "control.h"
#include "engine.h"
#include "sides.h"
#include "stance.h"

#include <sys/resource.h>

static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}, {1, 6}};
static const kv_move move = {pairs, NUM(pairs), 0, 0, 3};

/* Two sides, a stream of the engine's, and memory that work on it copies. */
typedef struct world {
    side host, device;
    kvmem_queue *queue;
    CUstream stream;
    uint64_t memory;
} world;

static void world_open(world *w) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    SIM(sim_reset());
    retain_device(0);
    CU_ON(0, cuStreamCreate(&w->stream, CU_STREAM_NON_BLOCKING));
    w->memory = engine_allocate(0, MIB);
    side_open(&w->device, PLACE_DEVICE, 0, &config, NULL, 1);
    side_open(&w->host, PLACE_PINNED, 0, &config, NULL, 2);
    EXPECT_OK(kvmem_queue_create(&w->queue, ERR));
}

static void world_close(world *w) {
    SIM(sim_reset());
    CALL(kvmem_queue_destroy(w->queue));
    side_close(&w->host);
    side_close(&w->device);
    engine_free(0, w->memory);
    CU_ON(0, cuStreamDestroy_v2(w->stream));
    release_device(0);
}

static kvmem_transfer *create(const world *w, uint32_t path, uint64_t staging_size) {
    kvmem_transfer_options options = WITH(kv_transfer_options(&move), it.path = path,
                                          it.staging_size = staging_size, it.queue = w->queue);
    GET(kvmem_transfer *, transfer, kvmem_transfer_create, w->device.model.layout, w->host.model.layout,
        &options);
    return transfer;
}

static void expect_moved(world *w) {
    side_check_moved(&w->host, &w->device, &move);
}

/* From here the device is at the engine's work, and whatever waits for the device waits. */
static void keep_device_busy(world *w) {
    enter_device(0);
    SIM(sim_hold());
    CU(cuMemcpyAsync(w->memory, w->memory + MIB / 2, MIB / 2, w->stream));
    leave_device(0);
}

/* A transfer that needs more of it than there is, created while what there is is in use. */
TEST(staging_memory_grows_without_waiting_for_the_device) {
    OPENED(world, w);
    OWNED(kvmem_transfer) small = create(&w, KVMEM_PATH_CUDA_STAGED, 16 * 1024);
    SIM(sim_hold());
    EXPECT_OK(kvmem_transfer_submit(small, ERR));
    OWNED(kvmem_transfer) large = create(&w, KVMEM_PATH_CUDA_STAGED, 4 * MIB);
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait(small, PATIENCE, ERR));
    CHECK_EQ(next_completion(w.queue).status, KVMEM_STATUS_OK);
    keep_device_busy(&w);
    EXPECT_OK(kvmem_transfer_submit_on_stream(large, w.stream, ERR));
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait(large, PATIENCE, ERR));
    CHECK_EQ(next_completion(w.queue).status, KVMEM_STATUS_OK);
    expect_moved(&w);
}

/* What a run used that failed is not used again: it is freed while the device is at other work. */
TEST(what_a_failed_run_used_holds_up_no_end) {
    OPENED(world, w);
    OWNED(kvmem_transfer) staged = create(&w, KVMEM_PATH_CUDA_STAGED, 16 * 1024);
    keep_device_busy(&w);
    SIM(sim_fail("cuEventRecord", 1, CUDA_ERROR_OUT_OF_MEMORY)); /* the first thing it does */
    EXPECT_OK(kvmem_transfer_submit(staged, ERR));
    CHECK_EQ(next_completion(w.queue).status, KVMEM_STATUS_OUT_OF_MEMORY);
    EXPECT(KVMEM_STATUS_OUT_OF_MEMORY, kvmem_transfer_poll(staged, ERR));
    SIM(sim_go());
    RUN(staged);
    CHECK_EQ(next_completion(w.queue).status, KVMEM_STATUS_OK);
    expect_moved(&w);
}

static void fail_and_run_again(world *w, CUresult failure, kvmem_status status) {
    OWNED(kvmem_transfer) failing = create(w, KVMEM_PATH_CUDA_KERNEL, 0);
    SIM(sim_fail("cuLaunchKernel", 1, failure));
    EXPECT_OK(kvmem_transfer_submit(failing, ERR));
    EXPECT(status, kvmem_transfer_wait(failing, PATIENCE, ERR));
    CHECK_EQ(next_completion(w->queue).status, status);
    OWNED(kvmem_transfer) next = create(w, KVMEM_PATH_CUDA_KERNEL, 0);
    RUN(next);
    CHECK_EQ(next_completion(w->queue).status, KVMEM_STATUS_OK);
    expect_moved(w);
}

/* Kernels that are loaded show how many sets of all that copies share were made: one is kept by the
   layouts. */
TEST(only_what_is_of_no_use_is_made_again) {
    static const CUresult harmless[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED,
                                        CUDA_ERROR_NOT_PERMITTED};
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

/* Whether the driver could have needed one or not: what says that the work failed ends the run. */
TEST(a_failure_ends_a_run_without_free_file_descriptors) {
    static const CUresult failures[] = {CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED,
                                        CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_UNKNOWN};
    OPENED(world, w);
    for (size_t i = 0; i < NUM(failures); i++) {
        struct rlimit before;
        kvmem_error_cause cause;
        OWNED(kvmem_transfer) transfer = create(&w, KVMEM_PATH_CUDA_COPY, 0);
        SIM(sim_hold());
        EXPECT_OK(kvmem_transfer_submit(transfer, ERR));
        SIM(sim_fail("cuStreamQuery", SIM_EVERY_CALL, failures[i]));
        CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
        const struct rlimit none = {0, before.rlim_max};
        CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
        const kvmem_status status = kvmem_transfer_wait(transfer, PATIENCE, ERR);
        CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
        CHECK_EQ(status, KVMEM_STATUS_CUDA);
        EXPECT_OK(kvmem_error_get_cause(test_last_error(), &cause));
        CHECK_EQ(cause.code, failures[i]);
        SIM(sim_reset());
        CHECK_EQ(next_completion(w.queue).status, KVMEM_STATUS_CUDA);
    }
}
