// SPDX-License-Identifier: Apache-2.0
// After the first runs of a transfer between memory of a GPU and of the host, kvmem allocates no memory for
// further runs, on any thread. Allocations of the driver are not counted.
#include "allocations.h"
#include "gpu_flight.h"

static void repeat(const flight_plan *plan, uint32_t method, uint64_t flags) {
    RETAIN_DEVICE(0);
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR)); /* a measurement would allocate beside the runs */
    allocations_count();
    CLEANUP(flight_close) flight flight;
    flight_open_as(&flight, plan);
    const unsigned before = allocations_counted();
    flight_create(&flight, it.transfer.method = method, it.transfer.flags |= flags);
    CHECK(allocations_counted() > before); /* counting works */
    CHECK_EQ(flight_info(&flight).method, method);
    char what[80];
    snprintf(what, sizeof(what), "method %u, flags %#x, from place %d", method, (unsigned)flags, plan->from);
    check_repeats(flight.transfer, what);
}

static void repeat_between(place from, place to, uint32_t method) {
    repeat(&(flight_plan){.from = from, .to = to}, method, 0);
    repeat(&(flight_plan){.from = from, .to = to}, method, KVMEM_TRANSFER_BY_LAYER);
}

static void repeat_all(uint32_t method) {
    repeat_between(PLACE_PINNED, PLACE_DEVICE, method);
    repeat_between(PLACE_DEVICE, PLACE_PINNED, method);
}

TEST_CALL(on_the_kernel_path, repeat_all(KVMEM_METHOD_CUDA_KERNEL))
TEST_CALL(within_the_gpu, repeat_between(PLACE_DEVICE, PLACE_ADOPTED, KVMEM_METHOD_CUDA_KERNEL))
TEST_CALL(on_the_staged_path, repeat_all(KVMEM_METHOD_CUDA_STAGED))
TEST_CALL(on_the_batch_path, repeat_all(KVMEM_METHOD_CUDA_BATCH))
TEST_CALL(on_the_copy_path, repeat_all(KVMEM_METHOD_CUDA_COPY))

static void repeat_elastic(uint32_t method) {
    repeat_between(PLACE_PINNED, PLACE_ELASTIC, method);
    repeat_between(PLACE_ELASTIC, PLACE_PINNED, method);
}

TEST_CALL(on_the_kernel_path_with_elastic_memory, repeat_elastic(KVMEM_METHOD_CUDA_KERNEL))
TEST_CALL(on_the_batch_path_with_elastic_memory, repeat_elastic(KVMEM_METHOD_CUDA_BATCH))

/* Without a current context only. */
int main(int argc, char **argv) { return test_main(argc, argv, test_registered()); }
