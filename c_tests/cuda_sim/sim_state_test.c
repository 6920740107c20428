// SPDX-License-Identifier: Apache-2.0
// Counts of live objects; sizes from the environment; attributes and peer access set by tests; misuse.
#include "cuda_sim.h"
#include "driver_test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

TEST(all_live_objects_are_counted) {
    CUcontext created = NULL;
    CUmemGenericAllocationHandle again = 0;
    OPEN_DEVICE(0);
    unsigned char *pages = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CU_GET(CUdeviceptr, plain, cuMemAlloc_v2(&plain, 64));
    CU_GET(void *, host, cuMemHostAlloc(&host, 64, 0));
    CU(cuMemHostRegister_v2(pages, MIB, 0));
    OWN_STREAM(stream, 0);
    OWN_EVENT(event, 0);
    OWN_HANDLE(handle, 0, GRANULE);
    CU_GET(int, fd, cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    const int received = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    const CUdeviceptr address = reserve(2 * GRANULE);
    CU(cuMemMap(address, GRANULE, 0, handle, 0));
    CU(cuMemRetainAllocationHandle(&again, POINTER(address)));
    CU(cuCtxCreate_v2(&created, 0, 1));
    const sim_counts expected = {
        .primary_retains = 1, .contexts = 1, .allocations = 1, .host_allocations = 1, .registrations = 1,
        .reservations = 1, .handles = 2, .mappings = 1, .streams = 1, .events = 1, .open_fds = 2,
        .lost_with_context = live_objects().lost_with_context};
    const sim_counts counts = live_objects();
    CHECK_BYTES(&counts, &expected, sizeof(expected));
    CHECK_EQ(sim_current_context_depth(), 2);
    CU(cuCtxDestroy_v2(created));
    close(fd);
    close(received);
    CU(cuMemRelease(again));
    unmap_and_free(address, GRANULE * 2);
    CU(cuMemHostUnregister(pages));
    CU(cuMemFreeHost(host));
    CU(cuMemFree_v2(plain));
    munmap(pages, MIB);
}

TEST(objects_destroyed_with_their_context_are_counted) {
    const uint64_t before = live_objects().lost_with_context;
    open_device(0);
    allocate_filled(64, 1);
    CU_GET(CUstream, stream, cuStreamCreate(&stream, 0));
    close_device(0);
    CHECK_EQ(live_objects().lost_with_context, before + 2);
}

TEST(cycles_leave_no_files_or_mappings) {
    size_t files = 0;
    size_t mappings = 0;
    for (int cycle = 0; cycle < 100; cycle++) {
        open_device(0);
        CU(cuMemFree_v2(allocate_filled(MIB, 1)));
        unmap_and_free(map_fresh(0, 2 * GRANULE), 2 * GRANULE);
        close_device(0);
        if (cycle == 0) {
            files = count_open_files();
            mappings = count_mappings();
        }
    }
    CHECK_EQ(count_open_files(), files);
    CHECK_EQ(count_mappings(), mappings);
}

static void expect_range(CUdeviceptr address, CUdeviceptr start, size_t size) {
    CUdeviceptr found = 0;
    size_t found_size = 0;
    CU(cuMemGetAddressRange_v2(&found, &found_size, address));
    CHECK_EQ(found, start);
    CHECK_EQ(found_size, size);
}

/* A program may unmap registered memory, and other memory then gets its addresses. */
TEST(of_two_ranges_that_overlap_the_newer_one_is_found) {
    NOTHING_LEFT;
    OPEN_DEVICE(0);
    OWN_HANDLE(handle, 0, GRANULE);
    const CUdeviceptr address = reserve(2 * GRANULE);
    CHECK_EQ(mprotect(POINTER(address), 2 * GRANULE, PROT_READ | PROT_WRITE), 0);
    CU(cuMemHostRegister_v2(POINTER(address), 2 * GRANULE, 0));
    CU(cuMemMap(address, GRANULE, 0, handle, 0));
    CU(cuMemSetAccess(address, GRANULE, REF(access_for(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)), 1));
    expect_range(address, address, GRANULE);
    expect_range(address + GRANULE, address, 2 * GRANULE);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostUnregister(POINTER(address)));
    CU(cuMemUnmap(address, GRANULE));
    expect_range(address, address, 2 * GRANULE);
    CU(cuMemHostUnregister(POINTER(address)));
    check_unknown(address);
    CU(cuMemAddressFree(address, 2 * GRANULE));
}

TEST(unset_attributes_make_calls_fail) {
    const CUmemAllocationProp prop = device_prop(0);
    CUmemAllocationProp rdma = prop;
    CUmemAllocationProp numa = prop;
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    size_t granularity = 0;
    int value = 1;
    NOTHING_LEFT;
    sim_set_attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0);
    CU_EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, GRANULE, &prop, 0));
    sim_reset();
    rdma.allocFlags.gpuDirectRDMACapable = 1;
    sim_set_attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0);
    CU_EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, GRANULE, &rdma, 0));
    numa.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
    sim_set_attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0);
    CU_EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, GRANULE, &numa, 0));
    sim_set_attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0);
    CU(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1));
    CHECK_EQ(value, 0);
    CU_EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemAddressReserve(&address, GRANULE, 0, 0, 0));
    CU_EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, GRANULE, &prop, 0));
    CU_EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemGetAllocationGranularity(&granularity, &prop, 0));
    sim_reset();
    CU(cuMemCreate(&handle, GRANULE, &rdma, 0));
    CU(cuMemRelease(handle));
}

TEST(without_peer_access_setting_it_fails) {
    const CUmemAccessDesc peer = access_for(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    NOTHING_LEFT;
    OWN_MAPPING(address, 0, GRANULE);
    sim_set_peer_access(false);
    CU_GET(int, can, cuDeviceCanAccessPeer(&can, 0, 1));
    CHECK_EQ(can, 0);
    CU_EXPECT(CUDA_ERROR_INVALID_DEVICE, cuMemSetAccess(address, GRANULE, &peer, 1));
    sim_set_peer_access(true);
    CU(cuMemSetAccess(address, GRANULE, &peer, 1));
}

enum { HANDLE = 1, STOP };

/* Shares memory that it has freed, and allocates other memory at its address. */
ROLE(be_stale_owner) {
    OPEN_DEVICE(0);
    const CUdeviceptr freed = allocate_filled(64, 1);
    CU_GET(CUipcMemHandle, handle, cuIpcGetMemHandle(&handle, freed));
    CU(cuMemFree_v2(freed));
    OWN_MEMORY(other, 64, 2);
    frame_send(socket, HANDLE, &handle, sizeof(handle));
    free(frame_expect(socket, STOP).data);
}

/* A real driver may open the other memory. */
TEST(a_stale_ipc_handle_opens_nothing_else) {
    CUipcMemHandle handle;
    CUdeviceptr address = 0;
    OPEN_DEVICE(0);
    CLEANUP(peer_finish) peer owner = peer_start("be_stale_owner");
    frame_expect_into(owner.socket, HANDLE, &handle, sizeof(handle));
    CU_EXPECT(CUDA_ERROR_NOT_PERMITTED,
              cuIpcOpenMemHandle_v2(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    frame_send(owner.socket, STOP, "", 0);
}

/* Has 3 devices of 4 MiB. */
ROLE(be_small) {
    (void)socket;
    CUdeviceptr address = 0;
    CU(cuInit(0));
    CU_GET(int, count, cuDeviceGetCount(&count));
    CHECK_EQ(count, 3);
    CU_GET(size_t, total, cuDeviceTotalMem_v2(&total, 2));
    CHECK_EQ(total, 4 * MIB);
    OPEN_DEVICE(2);
    OWN_MEMORY(half, 2 * MIB, 1);
    CU_EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&address, 2 * MIB + 1));
    const CUdeviceptr rest = map_fresh(2, GRANULE);
    CU_EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&address, 1));
    unmap_and_free(rest, GRANULE);
}

ROLE(be_two_devices_of_8_gib) {
    (void)socket;
    CU(cuInit(0));
    CU_GET(int, count, cuDeviceGetCount(&count));
    CHECK_EQ(count, 2);
    CU_GET(size_t, total, cuDeviceTotalMem_v2(&total, 0));
    CHECK_EQ(total, UINT64_C(8) << 30);
}

static void map_a_released_handle(void) {
    CU(cuInit(0));
    const CUmemGenericAllocationHandle handle = create_handle(0, GRANULE);
    CU(cuMemRelease(handle));
    cuMemMap(reserve(GRANULE), GRANULE, 0, handle, 0);
}

static void query_a_destroyed_stream(void) {
    open_device(0);
    CU_GET(CUstream, stream, cuStreamCreate(&stream, 0));
    CU(cuStreamDestroy_v2(stream));
    cuStreamQuery(stream);
}

/* Returns a stream of a context that was reset. The driver dereferences it before it checks the current
   context. */
static CUstream lose_a_stream(void) {
    open_device(0);
    CU_GET(CUstream, stream, cuStreamCreate(&stream, 0));
    CU(cuDevicePrimaryCtxReset_v2(0));
    return stream;
}

static void query_a_lost_stream(void) { cuStreamQuery(lose_a_stream()); }

static void destroy_a_lost_stream_in_a_new_context(void) {
    const CUstream stream = lose_a_stream();
    CU_GET(CUcontext, context, cuDevicePrimaryCtxRetain(&context, 0));
    CU_GET(CUstream, fresh, cuStreamCreate(&fresh, 0));
    if (fresh != stream) { /* handles are not reused */
        cuStreamDestroy_v2(stream);
    }
}

static void wait_for_a_lost_event(void) {
    open_device(0);
    CU_GET(CUevent, event, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CU(cuDevicePrimaryCtxReset_v2(0));
    cuStreamWaitEvent(NULL, event, 0);
}

static void push_an_invalid_context(void) {
    int local = 0;
    CU(cuInit(0));
    cuCtxPushCurrent_v2((CUcontext)&local);
}

static void plan_a_failure_of_an_unknown_function(void) { sim_fail("cuMemAllocate", 1, CUDA_ERROR_UNKNOWN); }

static void plan_a_later_failure_without_work(void) { sim_fail_later("cuMemAlloc_v2", 1,
                                                                     CUDA_ERROR_UNKNOWN); }

/* Checks that a child process aborts. Its message on stderr is discarded. */
static void expect_abort(void (*misuse)(void)) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
        misuse();
        _exit(EXIT_SUCCESS);
    }
    child_is_ended_by(child, SIGABRT);
}

/* In a process that has not initialised the driver, so that its children can. */
ROLE(be_misused) {
    (void)socket;
    expect_abort(map_a_released_handle);
    expect_abort(query_a_destroyed_stream);
    expect_abort(query_a_lost_stream);
    expect_abort(destroy_a_lost_stream_in_a_new_context);
    expect_abort(wait_for_a_lost_event);
    expect_abort(push_an_invalid_context);
    expect_abort(plan_a_failure_of_an_unknown_function);
    expect_abort(plan_a_later_failure_without_work);
}

TEST(the_environment_sets_count_and_size) {
    peer with_defaults = peer_start("be_two_devices_of_8_gib");
    peer_finish(&with_defaults);
    setenv("KVMEM_SIM_DEVICES", "3", 1);
    setenv("KVMEM_SIM_MEMORY", "4194304", 1);
    CLEANUP(peer_finish) peer small = peer_start("be_small");
    unsetenv("KVMEM_SIM_DEVICES");
    unsetenv("KVMEM_SIM_MEMORY");
}

/* Misuse that crashes the real driver, and errors of a test. */
TEST(misuse_ends_the_process) {
    CLEANUP(peer_finish) peer misused = peer_start("be_misused");
}

/* Registering read-only memory needs the flag and the attribute of the device. */
TEST(read_only_memory_is_registered_if_the_device_supports_it) {
    const unsigned plain = CU_MEMHOSTREGISTER_PORTABLE;
    const unsigned to_read = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_READ_ONLY;
    void *host = mmap(NULL, MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(host != MAP_FAILED);
    open_device(0);
    CU_EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemHostRegister_v2(host, MIB, to_read));
    sim_set_attribute(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(host, MIB, plain));
    CU(cuMemHostRegister_v2(host, MIB, to_read));
    CU(cuMemHostUnregister(host));
    sim_reset();
    close_device(0);
    munmap(host, MIB);
}
