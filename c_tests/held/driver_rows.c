// SPDX-License-Identifier: Apache-2.0
// A call of the driver for GPU 0 that blocks: operations on GPU 1 and on host memory, and queries of the objects involved, do not wait
// for it.
#include "held.h"

#include "caller_context.h"
#include "control.h"
#include "gpu_flight.h"
#include "layouts.h"
#include "patience.h"
#include "rates_blob.h"
#include "shared_memory.h"
#include "threads.h"

HELD_CASES
OWNER_ROLE
/* A child cannot use a driver that its parent has initialised. */
TEST_MAIN_ONCE

static flight in_gpu, from_file;
static uint64_t engine; /* its memory */
static kvmem_transfer *_Atomic moving; /* the last one of the row, which exists until held_close */
static shared_memory shared;
static bool has_owner;

/* Initialises the driver. */
static kvmem_status get_info(void) {
    kvmem_cuda_info info;
    return kvmem_cuda_get_info(&info, NULL);
}

static bool is_first(void) { return held_current()->run == get_info; }

void held_open(void) {
    if (is_first()) return;
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
    EXPECT_OK(kvmem_cuda_use_default_rates(1, ERR));
    flight_open(&in_gpu, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    engine = engine_allocate(0, MIB);
    flight_open(&from_file, .from = PLACE_FILE, .to = PLACE_DEVICE, .file_flags = KVMEM_DISK_BUFFERED);
}

void held_close(void) {
    kvmem_transfer_destroy(moving);
    if (is_first()) return;
    flight_close(&in_gpu);
    flight_close(&from_file);
    engine_free(0, engine);
    if (has_owner) shared_memory_close(&shared);
}

static kvmem_status transfer(const flight *between, uint32_t path) {
    const kv_job options = WITH(flight_options(between), it.transfer.method = path);
    kvmem_transfer *made = NULL;
    kvmem_status status = kv_prepare(between->source.model.layout, between->destination.model.layout, &options, &made, NULL);
    moving = made;
    THEN(status, kvmem_transfer_submit(made, NULL, NULL));
    THEN(status, kvmem_transfer_wait(made, PATIENCE, NULL));
    return status;
}

static kvmem_status device_region(void) {
    return TRIED(kvmem_region, kvmem_region_create_device, REF(OPTIONS(kvmem_device_options, it.size = MIB)));
}

static kvmem_status pinned_region(void) {
    return TRIED(kvmem_region, kvmem_region_create_pinned, REF(OPTIONS(kvmem_pinned_options, it.size = MIB)));
}

static kvmem_status create_elastic(kvmem_region **region) {
    return kvmem_region_create_elastic(REF(OPTIONS(kvmem_elastic_options, it.size = 4 * MIB, it.extent_size = 2 * MIB)), region, NULL);
}

static kvmem_status elastic_region(void) {
    OWNED(kvmem_region) region = NULL;
    kvmem_status status = create_elastic(&region);
    THEN(status, kvmem_region_commit(region, 0, 2 * MIB, NULL));
    THEN(status, kvmem_region_decommit(region, 0, 2 * MIB, NULL));
    return status;
}

static kvmem_status pool(void) {
    OWNED(kvmem_region) region = NULL;
    kvmem_status status = create_elastic(&region);
    THEN(status, kvmem_pool_set_current(0, region, NULL));
    void *block = kvmem_pool_malloc(MIB, 0, NULL);
    kvmem_pool_free(block, 0, 0, NULL);
    void *again = kvmem_pool_malloc(MIB, 0, NULL);
    kvmem_pool_free(again, 0, 0, NULL);
    kvmem_pool_set_current(0, NULL, NULL);
    return block != NULL && again != NULL ? status : KVMEM_STATUS_OUT_OF_MEMORY;
}

static kvmem_status mapped_memory(void) {
    OWNED(kvmem_vmm_memory) memory = NULL;
    OWNED(kvmem_vmm_range) range = NULL;
    OWNED(kvmem_vmm_mapping) mapping = NULL;
    kvmem_vmm_span span;
    kvmem_status status = kvmem_vmm_memory_create(
        REF(OPTIONS(kvmem_vmm_options, it.size = 2 * MIB, it.location = KVMEM_VMM_DEVICE)), &memory, NULL);
    THEN(status, kvmem_vmm_range_create(2 * MIB, 0, &span, &range, NULL));
    THEN(status, kvmem_vmm_mapping_create(range, 0, memory, &span, &mapping, NULL));
    THEN(status, kvmem_vmm_mapping_set_access(mapping, 0, KVMEM_ACCESS_READ_WRITE, NULL));
    return status;
}

static kvmem_status checksum(void) {
    uint32_t sum = 0;
    return kvmem_layout_checksum(in_gpu.destination.model.layout, (uint32_t[]){0}, 1, PATIENCE, &sum, NULL);
}

static kvmem_status rates(void) {
    kvmem_blob *rates = NULL;
    kvmem_cuda_set_copy_rates(0, 0, NULL, 0, NULL);
    const kvmem_status status = kvmem_cuda_get_copy_rates(0, 0, &rates, NULL);
    kvmem_blob_destroy(rates);
    return status;
}

static kvmem_status get_device_info(void) {
    kvmem_cuda_device_info info;
    return kvmem_cuda_get_device_info(0, &info, NULL);
}

static kvmem_status use_default_rates(void) { return kvmem_cuda_use_default_rates(0, NULL); }

static kvmem_status export_ipc(void) {
    kvmem_ipc_handle handle;
    int32_t device = -1;
    kvmem_status status = kvmem_ipc_export(engine, &handle, NULL);
    THEN(status, kvmem_cuda_find_device(handle.uuid, &device, NULL));
    return status;
}

static kvmem_status adopt_device(void) {
    return TRIED(kvmem_region, kvmem_region_adopt_device,
                 REF(OPTIONS(kvmem_adopt_options, it.address = (void *)(uintptr_t)engine, it.size = MIB)), 0);
}

static kvmem_status get_granularity(void) {
    uint64_t granularity = 0;
    return kvmem_vmm_get_granularity(REF(OPTIONS(kvmem_vmm_options, it.size = 2 * MIB)), KVMEM_GRANULARITY_MINIMUM, &granularity,
                                     NULL);
}

/* Memory that is exported and imported, mapped, and found by its address. */
static kvmem_status exported_memory(void) {
    OWNED(kvmem_vmm_memory) memory = NULL;
    OWNED(kvmem_vmm_memory) imported = NULL;
    OWNED(kvmem_vmm_memory) retained = NULL;
    OWNED(kvmem_vmm_range) range = NULL;
    OWNED(kvmem_vmm_mapping) mapping = NULL;
    kvmem_vmm_span span = {0};
    uint32_t access = 0;
    int32_t fd = -1;
    kvmem_status status = kvmem_vmm_memory_create(
        REF(OPTIONS(kvmem_vmm_options, it.size = 2 * MIB, it.flags = KVMEM_VMM_POSIX_FD)), &memory, NULL);
    THEN(status, kvmem_vmm_memory_export_fd(memory, &fd, NULL));
    THEN(status, kvmem_vmm_memory_import_fd(fd, 2 * MIB, 0, &imported, NULL));
    THEN(status, kvmem_vmm_range_create(2 * MIB, 0, &span, &range, NULL));
    THEN(status, kvmem_vmm_mapping_create(range, 0, memory, &span, &mapping, NULL));
    THEN(status, kvmem_vmm_mapping_set_access(mapping, 0, KVMEM_ACCESS_READ_WRITE, NULL));
    THEN(status, kvmem_vmm_mapping_get_access(mapping, 0, &access, NULL));
    THEN(status, kvmem_vmm_memory_retain(span.address, &retained, NULL));
    if (fd >= 0) close(fd);
    return status;
}

static kvmem_status resize_layout(void) {
    OWNED(kvmem_layout) layout = NULL;
    kvmem_status status = build_elastic_layout(&layout);
    THEN(status, kvmem_layout_resize(layout, 4, NULL));
    THEN(status, kvmem_layout_resize(layout, 1, NULL));
    return status;
}

static kvmem_status share_region(void) {
    OWNED(kvmem_region) region = NULL;
    OWNED(kvmem_share) share = NULL;
    OWNED(kvmem_region) opened = NULL;
    kvmem_status status = kvmem_region_create_device(REF(OPTIONS(kvmem_device_options, it.size = MIB)), &region, NULL);
    THEN(status, kvmem_share_create_region(region, NULL, &share, NULL));
    THEN(status, kvmem_share_open_region(share, NULL, &opened, NULL));
    return status;
}

static kvmem_status share_layout(void) {
    OWNED(kvmem_layout) layout = NULL;
    OWNED(kvmem_share) share = NULL;
    OWNED(kvmem_layout) opened = NULL;
    kvmem_status status = build_layout(true, &kv_kinds[0], &layout);
    THEN(status, kvmem_share_create_layout(layout, NULL, &share, NULL));
    THEN(status, kvmem_share_open_layout(share, NULL, &opened, NULL));
    return status;
}

/* Memory of another process. */
static void share_memory(void) {
    shared_memory_open(&shared, MIB, 1);
    has_owner = true;
}

static kvmem_status open_memory(void) { return TRIED(kvmem_region, kvmem_region_open_ipc, &shared.options); }

static void permit_fabric(void) { SIM(sim_set_fabric(true)); }

static kvmem_status over_the_fabric(void) {
    OWNED(kvmem_vmm_memory) memory = NULL;
    OWNED(kvmem_vmm_memory) imported = NULL;
    kvmem_fabric_handle handle;
    kvmem_status status = kvmem_vmm_memory_create(
        REF(OPTIONS(kvmem_vmm_options, it.size = 2 * MIB, it.flags = KVMEM_VMM_FABRIC)), &memory, NULL);
    THEN(status, kvmem_vmm_memory_export_fabric(memory, &handle, NULL));
    THEN(status, kvmem_vmm_memory_import_fabric(&handle, 2 * MIB, 0, &imported, NULL));
    return status;
}

static kvmem_status start(void) {
    kvmem_transfer *started = NULL;
    const kv_job job = WITH(flight_options(&in_gpu), it.transfer.method = KVMEM_METHOD_CUDA_COPY);
    kvmem_status status = kvmem_transfer_start(in_gpu.source.model.layout, in_gpu.destination.model.layout, &job.transfer, &job.run,
                                               &started, NULL);
    moving = started;
    THEN(status, kvmem_transfer_wait(started, PATIENCE, NULL));
    return status;
}

static kvmem_status on_a_stream(void) {
    kvmem_transfer *made = NULL;
    OPENED(stream, stream, 0);
    const kv_job options = WITH(flight_options(&in_gpu), it.transfer.method = KVMEM_METHOD_CUDA_COPY);
    kvmem_status status = kv_prepare(in_gpu.source.model.layout, in_gpu.destination.model.layout, &options, &made, NULL);
    moving = made;
    THEN(status, kvmem_transfer_submit_on_stream(made, NULL, stream.handle, NULL));
    THEN(status, kvmem_transfer_wait_on_stream(made, 0, stream.handle, NULL));
    THEN(status, kvmem_transfer_wait(made, PATIENCE, NULL));
    return status;
}

static void use_the_other_gpu(void) {
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE, .from_device = 1, .to_device = 1, .has_queue = true);
    /* A kernel that is not loaded within some milliseconds, as on a busy machine, is BUSY: the next call has it. */
    const uint64_t end = patience_end();
    while (flight_try(&flight, it.transfer.method = KVMEM_METHOD_CUDA_KERNEL) == KVMEM_STATUS_BUSY) {
        patience_wait(end, "a transfer on the other GPU");
    }
    CHECK(flight.transfer != NULL);
    flight_submit(&flight);
    flight_expect_completion(&flight, KVMEM_STATUS_OK);
    flight_check_moved(&flight);
}

static void use_host_memory(void) {
    OPENED(flight, flight, .from = PLACE_SYSTEM, .to = PLACE_SYSTEM, .has_queue = true);
    flight_create(&flight, it.transfer.method = 0);
    flight_submit(&flight);
    flight_expect_completion(&flight, KVMEM_STATUS_OK);
    flight_check_moved(&flight);
}

static void query(const flight *flight) {
    if (flight->source.whole != NULL) region_info(flight->source.whole);
    region_info(flight->destination.whole);
    GET(kvmem_layout_info, info, kvmem_layout_get_info, flight->destination.model.layout);
    CHECK(info.num_blocks > 0);
}

/* Without the driver. */
static void use_memory_of_test(void) {
    KV_SIDES(source, destination, kv_config(&kv_kinds[0]), kv_config(&kv_kinds[1]));
    kv_run(source.layout, destination.layout, &scattered_move);
}

void held_beside(void) {
    if (is_first()) {
        use_memory_of_test();
        return;
    }
    use_host_memory();
    query(&in_gpu);
    if (moving != NULL) {
        GET(kvmem_transfer_info, info, kvmem_transfer_get_info, moving);
        (void)kvmem_transfer_poll(moving, NULL);
    }
    use_the_other_gpu();
}

static kvmem_status by_kernel(void) { return transfer(&in_gpu, KVMEM_METHOD_CUDA_KERNEL); }
static kvmem_status staged(void) { return transfer(&in_gpu, KVMEM_METHOD_CUDA_STAGED); }
static kvmem_status one_by_one(void) { return transfer(&in_gpu, KVMEM_METHOD_CUDA_COPY); }
static kvmem_status in_a_batch(void) { return transfer(&in_gpu, KVMEM_METHOD_CUDA_BATCH); }
static kvmem_status of_a_file(void) { return transfer(&from_file, 0); }

#define OF_DRIVER "no call of the driver has a limit of time; only work on its GPU waits"
#define TRANSFER "kvmem_transfer_prepare kvmem_transfer_submit kvmem_transfer_wait"

const held_row held_rows[] = {
    /* BUSY: a kernel that is not loaded in time */
    {.functions = TRANSFER, .run = by_kernel, .late = KVMEM_STATUS_BUSY, .unbounded = OF_DRIVER},
    {.functions = TRANSFER, .run = staged, .late = KVMEM_STATUS_BUSY, .unbounded = OF_DRIVER},
    {.functions = TRANSFER, .run = one_by_one, .late = KVMEM_STATUS_BUSY, .unbounded = OF_DRIVER},
    {.functions = TRANSFER, .run = in_a_batch, .late = KVMEM_STATUS_BUSY, .unbounded = OF_DRIVER},
    {.functions = TRANSFER, .run = of_a_file, .late = KVMEM_STATUS_BUSY, .unbounded = OF_DRIVER},
    {.functions = "kvmem_region_create_device kvmem_region_destroy", .run = device_region, .unbounded = OF_DRIVER},
    {.functions = "kvmem_region_create_pinned kvmem_region_destroy", .run = pinned_region, .unbounded = OF_DRIVER},
    {.functions = "kvmem_region_create_elastic kvmem_region_commit kvmem_region_decommit", .run = elastic_region, .unbounded = OF_DRIVER},
    {.functions = "kvmem_pool_set_current kvmem_pool_malloc kvmem_pool_free", .run = pool, .unbounded = OF_DRIVER},
    {.functions = "kvmem_vmm_memory_create kvmem_vmm_range_create kvmem_vmm_mapping_create kvmem_vmm_mapping_set_access "
                  "kvmem_vmm_mapping_destroy kvmem_vmm_range_destroy kvmem_vmm_memory_destroy",
     .run = mapped_memory, .unbounded = OF_DRIVER},
    {.functions = "kvmem_layout_checksum", .run = checksum, .unbounded = OF_DRIVER},
    {.functions = "kvmem_cuda_get_copy_rates kvmem_cuda_set_copy_rates", .run = rates, .unbounded = OF_DRIVER},
    {.functions = "kvmem_cuda_get_info", .run = get_info, .unbounded = OF_DRIVER},
    {.functions = "kvmem_cuda_get_device_info", .run = get_device_info, .unbounded = OF_DRIVER},
    {.functions = "kvmem_cuda_use_default_rates", .run = use_default_rates, .unbounded = OF_DRIVER},
    {.functions = "kvmem_ipc_export kvmem_cuda_find_device", .run = export_ipc, .unbounded = OF_DRIVER},
    {.functions = "kvmem_region_adopt_device", .run = adopt_device, .unbounded = OF_DRIVER},
    {.functions = "kvmem_vmm_get_granularity", .run = get_granularity, .unbounded = OF_DRIVER},
    {.functions = "kvmem_vmm_memory_export_fd kvmem_vmm_memory_import_fd kvmem_vmm_memory_retain kvmem_vmm_mapping_get_access",
     .run = exported_memory, .unbounded = OF_DRIVER},
    {.functions = "kvmem_layout_resize", .run = resize_layout, .unbounded = OF_DRIVER},
    {.functions = "kvmem_share_create_region kvmem_share_open_region kvmem_share_destroy", .run = share_region, .unbounded = OF_DRIVER},
    {.functions = "kvmem_share_create_layout kvmem_share_open_layout", .run = share_layout, .unbounded = OF_DRIVER},
    {.functions = "kvmem_region_open_ipc", .prepare = share_memory, .run = open_memory, .unbounded = OF_DRIVER},
    {.functions = "kvmem_vmm_memory_export_fabric kvmem_vmm_memory_import_fabric", .prepare = permit_fabric, .run = over_the_fabric,
     .unbounded = OF_DRIVER},
    {.functions = "kvmem_transfer_start", .run = start, .late = KVMEM_STATUS_BUSY, .unbounded = OF_DRIVER},
    {.functions = "kvmem_transfer_submit_on_stream kvmem_transfer_wait_on_stream", .run = on_a_stream, .late = KVMEM_STATUS_BUSY,
     .unbounded = OF_DRIVER},
};
const size_t held_num_rows = NUM(held_rows);
