// SPDX-License-Identifier: Apache-2.0
// Paths of GPU copies with a driver that holds work back, fails, or lacks a feature: thousands of blocks in
// flight, order on streams, the transfer that a failure belongs to, and the path that is selected instead.
#include "control.h"
#include "patience.h"
#include "gpu_flight.h"
#include "caller_context.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

/* Blocks of 64 bytes, in reverse order, so that no two are adjacent on both sides. */
enum { BLOCKS = 16384 };

/* Runs `count` transfers of `blocks` blocks, all in flight together. Each is reported once. */
static void run_many(size_t count, uint32_t blocks, uint32_t path, uint64_t max_launched) {
    const kvmem_layout_config config = WITH(kv_config(&kv_kinds[0]), it.num_blocks = BLOCKS,
                                            it.num_layers = 1,
                                            it.outer_dim = 1, it.page_size = 4, it.inner_dim = 8);
    CLEANUP(test_free) kvmem_block_pair *scattered = test_allocate(blocks * sizeof(*scattered));
    for (uint32_t i = 0; i < blocks; i++) scattered[i] = (kvmem_block_pair){i, BLOCKS - 1 - i};
    const kv_move move = {scattered, blocks, 0, 0, 1};
    SIM(sim_reset());
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE, .source = &config, .move = &move,
           .has_queue = true);
    CLEANUP(test_free) kvmem_transfer **transfers = test_allocate(count * sizeof(*transfers));
    for (size_t i = 0; i < count; i++)
        transfers[i] = flight_create_another(&flight, it.transfer.method = path, it.run.user_data = i);
    SIM(sim_hold());
    for (size_t i = 0; i < count; i++) {
        EXPECT_OK(kvmem_transfer_submit(transfers[i], NULL, ERR)); /* returns although the driver is busy */
    }
    kvmem_completion completion;
    GET(size_t, completed, kvmem_queue_wait, flight.queue, 0, &completion, 1);
    CHECK_EQ(completed, 0);
    CHECK(SIM(sim_calls("cuLaunchKernel")) <= max_launched);
    SIM(sim_go());
    expect_each_once(flight.queue, count, flight_bytes(&flight));
    flight_check_moved(&flight);
    for (size_t i = 0; i < count; i++) CALL(kvmem_transfer_destroy(transfers[i]));
}

/* Each has runs of 256 KiB; half of the descriptor ring has space for 16 of them. */
TEST_CALL(a_full_descriptor_ring, run_many(100, BLOCKS, KVMEM_METHOD_CUDA_KERNEL, 32))

TEST(more_runs_than_streams) {
    run_many(1000, 3, KVMEM_METHOD_CUDA_KERNEL, 64);
    run_many(300, 3, KVMEM_METHOD_CUDA_COPY, 0);
}

TEST(staged_runs_wait_for_each_other) {
    side destinations[20];
    kvmem_transfer *transfers[NUM(destinations)];
    SIM(sim_reset());
    OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_PINNED);
    for (size_t i = 0; i < NUM(destinations); i++) {
        destinations[i] = flight.destination;
        side_open(&flight.destination, PLACE_PINNED, 0, &flight.source.model.config, NULL, 2);
        transfers[i] = flight_create_another(&flight, it.transfer.method = KVMEM_METHOD_CUDA_STAGED);
    }
    SIM(sim_hold());
    for (size_t i = 0; i < NUM(destinations); i++) EXPECT_OK(kvmem_transfer_submit(transfers[i], NULL, ERR));
    SIM(sim_go());
    for (size_t i = NUM(destinations); i > 0; i--) {
        EXPECT_OK(kvmem_transfer_wait(transfers[i - 1], PATIENCE, ERR));
        flight_check_moved(&flight);
        CALL(kvmem_transfer_destroy(transfers[i - 1]));
        side_close(&flight.destination);
        flight.destination = destinations[i - 1];
    }
}

/* The sanitizers reserve addresses for themselves, and abort where an allocation of the library fails. */
#if !defined __SANITIZE_ADDRESS__ && !UNDER_THREAD_SANITIZER

/* Scattered blocks of four elements of two bytes, each of which is copied alone. */
enum { SMALL_BLOCKS = 1 << 20 };

static kvmem_layout_config small_blocks(const char *order) {
    return OPTIONS(kvmem_layout_config, it.num_blocks = SMALL_BLOCKS, it.num_layers = 1, it.outer_dim = 1,
                   it.page_size = 2, it.num_heads = 2, it.inner_dim = 2, it.dtype_width = 2, it.order = order);
}

/* The driver's copies take 100 to 200 MiB to list. */
TEST(a_list_of_copies_without_memory_for_it_fails) {
    static const uint32_t paths[] = {KVMEM_METHOD_CUDA_COPY, KVMEM_METHOD_CUDA_BATCH, KVMEM_METHOD_CUDA_2D};
    const kvmem_layout_config here = small_blocks("BLONHC");
    const kvmem_layout_config there = small_blocks("BLOHNC");
    CLEANUP(test_free) kvmem_block_pair *pairs = test_allocate(SMALL_BLOCKS * sizeof(*pairs));
    for (uint32_t i = 0; i < SMALL_BLOCKS; i++)
        pairs[i] = (kvmem_block_pair){i, SMALL_BLOCKS - 1 - i};
    const kv_move move = {pairs, SMALL_BLOCKS, 0, 0, 1};
    SIM(sim_reset());
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE, .source = &here, .destination = &there,
           .move = &move);
    flight_create(&flight, it.transfer.method = KVMEM_METHOD_CUDA_KERNEL); /* creates per-device state */
    for (size_t i = 0; i < NUM(paths); i++) {
        const struct rlimit before = limit_addresses(80 * MIB);
        flight_refuse(&flight, KVMEM_STATUS_OUT_OF_MEMORY, "no memory for a list of",
                      it.transfer.method = paths[i]);
        CHECK_EQ(setrlimit(RLIMIT_AS, &before), 0);
    }
    flight_create(&flight, it.transfer.method = KVMEM_METHOD_CUDA_COPY);
}

/* The C library keeps no freed lists for later ones, and reserves no addresses for them. */
__attribute__((constructor)) static void allocate_by_mapping(void) {
    mallopt(M_MMAP_THRESHOLD, 64 << 10);
    mallopt(M_ARENA_MAX, 1);
}

/* Creates a transfer with more and more memory until that succeeds. Returns the number of failures, of which
   each must be an error of the caller. */
static int failures_until_created(flight *flight, kv_job options) {
    enum { FIRST = 3, STEP = 7, MAX = 100 };
    for (int failures = 0; failures < MAX; failures++) {
        flight_destroy_transfer(flight);
        const struct rlimit before = limit_addresses((FIRST + STEP * (uint64_t)failures) * MIB);
        kvmem_error *error = NULL;
        const kvmem_status status = kv_prepare(
            flight->source.model.layout, flight->destination.model.layout, &options, &flight->transfer, &error);
        CHECK_EQ(setrlimit(RLIMIT_AS, &before), 0);
        if (status == KVMEM_STATUS_OK)
            return failures;
        CHECK_EQ(status, KVMEM_STATUS_OUT_OF_MEMORY);
        kvmem_error_destroy(error);
    }
    CHECK(!"a transfer can be created with enough memory");
    return MAX;
}

/* Whatever memory there is, lists of pairs, runs, launches and copies that do not fit are an error. */
TEST(plans_without_memory_for_them_fail) {
    static const struct {
        place from, to;
        uint32_t path;
        uint64_t flags;
    } cases[] = {
        {PLACE_PINNED, PLACE_DEVICE, KVMEM_METHOD_CUDA_KERNEL, 0},
        {PLACE_PINNED, PLACE_DEVICE, KVMEM_METHOD_CUDA_STAGED, 0},
        {PLACE_DEVICE, PLACE_PINNED, KVMEM_METHOD_CUDA_STAGED, 0},
        {PLACE_DEVICE, PLACE_DEVICE, 0, 0},
        {PLACE_PINNED, PLACE_DEVICE, 0, KV_VERIFY},
        {PLACE_PINNED, PLACE_PINNED, 0, 0},
        {PLACE_PINNED, PLACE_PINNED, 0, KV_VERIFY},
    };
    const kvmem_layout_config config = small_blocks("BLONHC");
    CLEANUP(test_free) kvmem_block_pair *pairs = test_allocate(SMALL_BLOCKS * sizeof(*pairs));
    for (uint32_t i = 0; i < SMALL_BLOCKS; i++)
        pairs[i] = (kvmem_block_pair){i, (i * 5 + 3) % SMALL_BLOCKS};
    const kv_move move = {pairs, SMALL_BLOCKS, 0, 0, 1};
    for (size_t i = 0; i < NUM(cases); i++) {
        SIM(sim_reset());
        OPENED(flight, flight, .from = cases[i].from, .to = cases[i].to, .source = &config,
               .destination = &config, .move = &move);
        {
            /* Creates per-device state. */
            static const kvmem_block_pair one = {0, 0};
            flight_create(&flight, it.transfer.method = cases[i].path, KV_SET_FLAGS(cases[i].flags),
                          it.run.pairs = &one,
                          it.run.num_pairs = 1);
            RUN(flight.transfer);
        }
        const int failures = failures_until_created(
            &flight, WITH(flight_options(&flight), it.transfer.method = cases[i].path, KV_SET_FLAGS(cases[i].flags)));
        CHECK(failures > 0);
    }
}

#endif

/* Runs a transfer on KVMEM_METHOD_CUDA_2D. Returns the number of its driver calls. */
static uint64_t calls_of_rows(const kv_kind *from, const kv_kind *to, const kv_move *moved,
                              kv_outers outers) {
    const kvmem_layout_config here = side_config(from);
    const kvmem_layout_config there = side_config(to);
    SIM(sim_reset());
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE, .source = &here, .destination = &there,
           .move = moved);
    flight_create_with(&flight, WITH(kv_outers_job(moved, outers),
                                     it.transfer.method = KVMEM_METHOD_CUDA_2D));
    const uint64_t before = SIM(sim_calls("cuMemcpy2DAsync_v2"));
    RUN(flight.transfer);
    const uint64_t calls = SIM(sim_calls("cuMemcpy2DAsync_v2")) - before;
    kv_expect_outers_moved(&flight.destination.model, &flight.source.model, moved, outers);
    side_check(&flight.destination);
    return calls;
}

TEST(constant_strides_need_few_calls) {
    static const kvmem_block_pair every_second[] = {{0, 0}, {2, 1}, {4, 2}, {6, 3}};
    static const kvmem_block_pair run[] = {{2, 0}, {3, 1}, {4, 2}, {5, 3}};
    const kv_move regular = {every_second, NUM(every_second), 0, 0, 3};
    const kv_move adjacent_blocks = {run, NUM(run), 0, 0, 3};
    const kv_outers all = {0, 0, 2};
    const kv_outers values = {1, 1, 1};
    CHECK_EQ(calls_of_rows(&kv_kinds[0], &kv_kinds[0], &regular, all), 1);
    CHECK_EQ(calls_of_rows(&kv_kinds[1], &kv_kinds[0], &regular, all), 3);
    CHECK_EQ(calls_of_rows(&kv_kinds[2], &kv_kinds[1], &regular, all), 6);
    CHECK_EQ(calls_of_rows(&kv_kinds[0], &kv_kinds[0], &adjacent_blocks, values), 1);
    CHECK_EQ(calls_of_rows(&kv_kinds[1], &kv_kinds[1], &adjacent_blocks, values), 3);
}

/* A driver call fails, at once or when its work runs: the transfer of that call fails, and no other. */
static void fail_once(uint32_t path, const char *function, uint64_t nth, bool later) {
    const kvmem_layout_config config = side_config(&kv_kinds[2]);
    SIM(sim_reset());
    OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_PINNED, .source = &config);
    flight_create(&flight, it.transfer.method = path);
    OWNED(kvmem_transfer) other = flight_create_another(&flight, it.transfer.method = path);
    (later ? SIM(sim_fail_later) : SIM(sim_fail))(function, nth, CUDA_ERROR_LAUNCH_FAILED);
    flight_submit(&flight);
    flight_expect_end(&flight, KVMEM_STATUS_CUDA, "CUDA_ERROR_LAUNCH_FAILED");
    RUN(other);
    flight_check_moved(&flight);
    flight_run(&flight);
    flight_create(&flight, it.transfer.method = path);
    flight_run(&flight);
}

TEST(a_failure_belongs_to_its_transfer) {
    for (int later = 0; later < 2; later++) {
        fail_once(KVMEM_METHOD_CUDA_KERNEL, "cuLaunchKernel", 1, later);
        fail_once(KVMEM_METHOD_CUDA_BATCH, "cuMemcpyBatchAsync", 1, later);
        fail_once(KVMEM_METHOD_CUDA_BATCH, "cuMemcpyBatchAsync", 2, later);
        fail_once(KVMEM_METHOD_CUDA_COPY, "cuMemcpyAsync", 3, later);
        fail_once(KVMEM_METHOD_CUDA_STAGED, "cuLaunchKernel", 1, later);
        fail_once(KVMEM_METHOD_CUDA_STAGED, "cuMemcpyBatchAsync", 1, later);
    }
    fail_once(KVMEM_METHOD_CUDA_STAGED, "cuEventRecord", 2, false);
    fail_once(KVMEM_METHOD_CUDA_STAGED, "cuStreamWaitEvent", 3, false);
}

TEST(a_transfer_waits_for_earlier_work_on_its_stream) {
    static const uint32_t paths[] = {KVMEM_METHOD_CUDA_COPY, KVMEM_METHOD_CUDA_KERNEL,
                                     KVMEM_METHOD_CUDA_STAGED};
    for (size_t i = 0; i < NUM(paths); i++) {
        SIM(sim_reset());
        OPENED(stream, stream, 0);
        OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_PINNED);
        flight_create(&flight, it.transfer.method = paths[i]);
        const size_t size = flight.source.model.size;
        CLEANUP(test_free) unsigned char *fresh = test_allocate(size);
        kv_fill(fresh, size, 3);
        SIM(sim_hold());
        CU_ON(0, cuMemcpyHtoDAsync_v2(flight.source.base, fresh, size, stream.handle));
        flight_submit_on(&flight, stream.handle);
        EXPECT(KVMEM_STATUS_BUSY, kvmem_transfer_submit_on_stream(flight.transfer, NULL, stream.handle, ERR));
        flight_expect_in_progress(&flight);
        side_check(&flight.destination);
        SIM(sim_go());
        memcpy(flight.source.model.expected, fresh, size);
        flight_finish(&flight);
    }
}

/* If the driver cannot compile the kernel, another path is selected, and the explanation contains the
   reason. */
TEST(without_the_kernel_another_path_is_selected) {
    SIM(sim_reset());
    OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_DEVICE);
    SIM(sim_fail("cuModuleLoadData", SIM_EVERY_CALL, CUDA_ERROR_NOT_PERMITTED));
    const uint64_t begun = patience_now();
    flight_create(&flight, it.transfer.method = 0);
    CHECK(flight_explain(&flight, "CUDA_ERROR_NOT_PERMITTED").method != KVMEM_METHOD_CUDA_KERNEL);
    flight_run(&flight);
    EXPECT(KVMEM_STATUS_CUDA, flight_try(&flight, it.transfer.method = KVMEM_METHOD_CUDA_KERNEL));
    /* The failure is remembered for a second. A busy machine may have taken longer. */
    const uint64_t loads = SIM(sim_calls("cuModuleLoadData"));
    flight_create(&flight, it.transfer.method = 0);
    CHECK(SIM(sim_calls("cuModuleLoadData")) == loads || patience_now() - begun > SECONDS(1));
    SIM(sim_reset());
    const uint64_t end = patience_end();
    while (flight_create(&flight, it.transfer.method = 0),
           flight_info(&flight).method != KVMEM_METHOD_CUDA_KERNEL)
        patience_wait(end, "the kernel to be loaded again");
}

/* An older GPU or driver: no attempt succeeds, so none is repeated. */
TEST(a_kernel_that_the_gpu_does_not_support_is_compiled_once) {
    SIM(sim_reset());
    OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_DEVICE);
    SIM(sim_fail("cuLinkAddData_v2", SIM_EVERY_CALL, CUDA_ERROR_NO_BINARY_FOR_GPU));
    flight_create(&flight, it.transfer.method = 0);
    flight_explain(&flight, "compute capability 7.5");
    EXPECT(KVMEM_STATUS_UNSUPPORTED, flight_try(&flight, it.transfer.method = KVMEM_METHOD_CUDA_KERNEL));
    const uint64_t loads = SIM(sim_calls("cuLinkAddData_v2")), begun = patience_now();
    do flight_create(&flight, it.transfer.method = 0);
    while (patience_now() - begun < SECONDS(1) + MILLISECONDS(200));
    CHECK_EQ(SIM(sim_calls("cuLinkAddData_v2")), loads);
    flight_run(&flight);
    SIM(sim_reset());
}

/* On some systems a GPU has another address for host memory. */
TEST(without_equal_addresses_no_kernel_accesses_pinned_memory) {
    SIM(sim_reset());
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    SIM(sim_set_attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 0));
    flight_refuse(&flight, KVMEM_STATUS_UNSUPPORTED, "another address",
                  it.transfer.method = KVMEM_METHOD_CUDA_KERNEL);
    flight_create(&flight, it.transfer.method = 0);
    flight_run(&flight);
    SIM(sim_reset());
}

TEST(without_staging_memory_another_path_is_selected) {
    const kvmem_layout_config separate = WITH(kv_config(&kv_kinds[2]), it.num_blocks = 64, it.page_size = 16,
                                              it.inner_dim = 512);
    const kvmem_layout_config together = WITH(kv_config(&kv_kinds[0]), it.num_blocks = 64, it.page_size = 16,
                                              it.inner_dim = 512);
    kvmem_block_pair blocks[64];
    for (uint32_t i = 0; i < NUM(blocks); i++) blocks[i] = (kvmem_block_pair){i * 7 % 64, i};
    const kv_move all = {blocks, NUM(blocks), 0, 0, 3};
    const uint64_t more_than_is_there = 256 * MIB;
    SIM(sim_reset());
    OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_PINNED, .source = &separate,
           .destination = &together, .move = &all);
    flight_create(&flight, it.transfer.method = KVMEM_METHOD_CUDA_STAGED);
    flight_destroy_transfer(&flight);
    SIM(sim_fail("cuMemCreate", SIM_EVERY_CALL, CUDA_ERROR_OUT_OF_MEMORY));
    EXPECT(KVMEM_STATUS_OUT_OF_MEMORY, flight_try(&flight, it.transfer.method = KVMEM_METHOD_CUDA_STAGED,
                                                  it.transfer.staging_size = more_than_is_there));
    flight_create(&flight, it.transfer.staging_size = more_than_is_there);
    RUN(flight.transfer);
    SIM(sim_reset());
    flight_check_moved(&flight);
}

/* The shared state of copies on a GPU is destroyed with the last layout on it. */
TEST(nothing_is_leaked) {
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    run_many(100, 300, KVMEM_METHOD_CUDA_KERNEL, 64);
    fail_once(KVMEM_METHOD_CUDA_STAGED, "cuLaunchKernel", 1, true);
}
