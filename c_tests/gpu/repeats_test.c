// SPDX-License-Identifier: Apache-2.0
// After the first runs of a transfer with a GPU, kvmem allocates no memory for further runs, on any thread.
// Allocations of the driver are not counted.
#include "allocations.h"
#include "gpu_flight.h"

/* With `heads` heads, or with all if it is 0. */
static void repeat_heads(const flight_plan *plan, uint32_t path, uint64_t flags, uint64_t heads) {
    RETAIN_DEVICE(0);
    allocations_count();
    CLEANUP(flight_close) flight flight;
    flight_open_as(&flight, plan);
    const unsigned before = allocations_counted();
    flight_create(&flight, it.path = path, it.flags |= flags, it.num_heads = heads, it.source_head = heads > 0);
    CHECK(allocations_counted() > before); /* counting works */
    CHECK_EQ(flight_info(&flight).path, path);
    char what[80];
    snprintf(what, sizeof(what), "path %u, flags %#x, heads %u, from place %d", path, (unsigned)flags, (unsigned)heads,
             plan->from);
    check_repeats(flight.transfer, what);
}

static void repeat(const flight_plan *plan, uint32_t path, uint64_t flags) { repeat_heads(plan, path, flags, 0); }

static void repeat_between(place from, place to, uint32_t path) {
    repeat(&(flight_plan){.from = from, .to = to}, path, 0);
    repeat(&(flight_plan){.from = from, .to = to}, path, KVMEM_TRANSFER_BY_LAYER);
}

static void repeat_all(uint32_t path) {
    repeat_between(PLACE_PINNED, PLACE_DEVICE, path);
    repeat_between(PLACE_DEVICE, PLACE_PINNED, path);
}

TEST_CALL(on_the_kernel_path, repeat_all(KVMEM_PATH_CUDA_KERNEL))
TEST_CALL(within_the_gpu, repeat_between(PLACE_DEVICE, PLACE_ADOPTED, KVMEM_PATH_CUDA_KERNEL))
TEST_CALL(on_the_staged_path, repeat_all(KVMEM_PATH_CUDA_STAGED))
TEST_CALL(on_the_batch_path, repeat_all(KVMEM_PATH_CUDA_BATCH))
TEST_CALL(on_the_copy_path, repeat_all(KVMEM_PATH_CUDA_COPY))

static void repeat_elastic(uint32_t path) {
    repeat_between(PLACE_PINNED, PLACE_ELASTIC, path);
    repeat_between(PLACE_ELASTIC, PLACE_PINNED, path);
}

TEST_CALL(on_the_kernel_path_with_elastic_memory, repeat_elastic(KVMEM_PATH_CUDA_KERNEL))
TEST_CALL(on_the_batch_path_with_elastic_memory, repeat_elastic(KVMEM_PATH_CUDA_BATCH))

static void repeat_with_file(uint32_t path) {
    repeat(&(flight_plan){.from = PLACE_DEVICE, .to = PLACE_FILE, .file_flags = KVMEM_DISK_BUFFERED}, path, 0);
    repeat(&(flight_plan){.from = PLACE_FILE, .to = PLACE_DEVICE, .file_flags = KVMEM_DISK_BUFFERED}, path, 0);
}

TEST_CALL(with_a_file_on_the_pread_path, repeat_with_file(KVMEM_PATH_PREAD_STAGED))

TEST(with_a_file_on_the_io_uring_path) {
    if (can_test_io_uring()) repeat_with_file(KVMEM_PATH_URING_STAGED);
}

/* Whole blocks, whose checksums a kernel computes in GPU memory, and some heads, which are copied to host memory. */
static void repeat_verified(flight_plan plan, uint32_t path) {
    const kvmem_layout_config config = WITH(side_config(&kv_kinds[1]), it.num_heads = 4);
    plan.source = plan.destination = &config;
    repeat(&plan, path, KVMEM_TRANSFER_VERIFY);
    repeat_heads(&plan, path, KVMEM_TRANSFER_VERIFY, 2);
}

static void repeat_verified_between(place from, place to) {
    repeat_verified((flight_plan){.from = from, .to = to}, KVMEM_PATH_CUDA_KERNEL);
    repeat_verified((flight_plan){.from = to, .to = from}, KVMEM_PATH_CUDA_KERNEL);
}

TEST_CALL(verified_with_device_memory, repeat_verified_between(PLACE_PINNED, PLACE_DEVICE))
TEST_CALL(verified_with_elastic_memory, repeat_verified_between(PLACE_PINNED, PLACE_ELASTIC))
TEST_CALL(verified_within_the_gpu, repeat_verified_between(PLACE_ADOPTED, PLACE_DEVICE))

TEST(verified_with_a_file) {
    const uint32_t path = KVMEM_PATH_PREAD_STAGED;
    repeat_verified((flight_plan){.from = PLACE_DEVICE, .to = PLACE_FILE, .file_flags = KVMEM_DISK_BUFFERED}, path);
    repeat_verified((flight_plan){.from = PLACE_FILE, .to = PLACE_DEVICE, .file_flags = KVMEM_DISK_BUFFERED}, path);
}

/* Without a current context only. */
int main(int argc, char **argv) { return test_main(argc, argv, test_registered()); }
