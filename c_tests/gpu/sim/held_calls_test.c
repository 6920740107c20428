// SPDX-License-Identifier: Apache-2.0
// A call of the driver that blocks, for each call that kvmem makes for an operation on GPU 0: operations on
// GPU 1 and on host memory, and queries of the objects involved, do not wait for it.
#include "control.h"
#include "gpu_flight.h"
#include "patience.h"
#include "rates_blob.h"
#include "threads.h"
#include "caller_context.h"

#include <stdatomic.h>

typedef enum operation { TRANSFER, FILE_TRANSFER, DEVICE_REGION, PINNED_REGION, ELASTIC_REGION, POOL, VMM, CHECKSUM, RATES } operation;

typedef struct row {
    const char *function; /* the call that blocks */
    operation operation;
    uint32_t path;
    bool may_be_busy; /* the operation does not wait for the end of the call */
} row;

static const row rows[] = {
    {"cuDevicePrimaryCtxRetain", TRANSFER, KVMEM_METHOD_CUDA_KERNEL, false},
    {"cuCtxRecordEvent", TRANSFER, KVMEM_METHOD_CUDA_KERNEL, true},
    {"cuModuleLoadData", TRANSFER, KVMEM_METHOD_CUDA_KERNEL, true}, /* for 10 s */
    {"cuModuleGetFunction", TRANSFER, KVMEM_METHOD_CUDA_KERNEL, true},
    {"cuMemHostRegister_v2", TRANSFER, KVMEM_METHOD_CUDA_KERNEL, false},
    {"cuPointerGetAttribute", TRANSFER, KVMEM_METHOD_CUDA_KERNEL, false},
    {"cuStreamCreateWithPriority", TRANSFER, KVMEM_METHOD_CUDA_KERNEL, false},
    {"cuLaunchKernel", TRANSFER, KVMEM_METHOD_CUDA_KERNEL, false},
    {"cuMemCreate", TRANSFER, KVMEM_METHOD_CUDA_STAGED, false},
    {"cuMemAddressReserve", TRANSFER, KVMEM_METHOD_CUDA_STAGED, false},
    {"cuMemSetAccess", TRANSFER, KVMEM_METHOD_CUDA_STAGED, false},
    /* the thread that loads kernels makes the first of them */
    {"cuEventCreate", TRANSFER, KVMEM_METHOD_CUDA_STAGED, true},
    {"cuEventRecord", TRANSFER, KVMEM_METHOD_CUDA_STAGED, false},
    {"cuMemcpyAsync", TRANSFER, KVMEM_METHOD_CUDA_COPY, false},
    {"cuMemcpyBatchAsync", TRANSFER, KVMEM_METHOD_CUDA_BATCH, false},
    {"cuMemHostRegister_v2", FILE_TRANSFER, 0, false},
    {"cuMemAlloc_v2", DEVICE_REGION, 0, false},
    {"cuMemFree_v2", DEVICE_REGION, 0, false},
    {"cuMemHostRegister_v2", PINNED_REGION, 0, false},
    {"cuMemHostUnregister", PINNED_REGION, 0, false},
    {"cuMemCreate", ELASTIC_REGION, 0, false},
    {"cuMemMap", ELASTIC_REGION, 0, false},
    {"cuMemSetAccess", ELASTIC_REGION, 0, false},
    {"cuMemUnmap", ELASTIC_REGION, 0, false},
    {"cuMemRelease", ELASTIC_REGION, 0, false},
    {"cuEventRecord", POOL, 0, false},
    {"cuEventQuery", POOL, 0, false},
    {"cuMemCreate", VMM, 0, false},
    {"cuMemAddressReserve", VMM, 0, false},
    {"cuMemMap", VMM, 0, false},
    {"cuMemSetAccess", VMM, 0, false},
    {"cuMemUnmap", VMM, 0, false},
    {"cuLaunchKernel", CHECKSUM, 0, false},
    {"cuMemCreate", RATES, 0, false},
    {"cuMemHostRegister_v2", RATES, 0, false},
    {"cuModuleLoadData", RATES, 0, false},
    {"cuEventQuery", RATES, 0, false},
    {"cuLaunchKernel", RATES, 0, false},
    {"cuMemUnmap", RATES, 0, false},
};

typedef struct actor {
    const row *row;
    const flight *flight;
    atomic_bool is_over;
    kvmem_status status;
} actor;

static kvmem_status transfer(const flight *flight, uint32_t path) {
    const kv_job options = WITH(flight_options(flight), it.transfer.method = path);
    kvmem_transfer *made = NULL;
    kvmem_status status = kv_prepare(flight->source.model.layout, flight->destination.model.layout, &options,
                                                &made, NULL);
    if (status == KVMEM_STATUS_OK) status = kvmem_transfer_submit(made, NULL, NULL);
    if (status == KVMEM_STATUS_OK) status = kvmem_transfer_wait(made, PATIENCE, NULL);
    kvmem_transfer_destroy(made);
    return status;
}

static kvmem_status device_region(void) {
    const kvmem_device_options options = OPTIONS(kvmem_device_options, it.size = MIB);
    kvmem_region *region = NULL;
    const kvmem_status status = kvmem_region_create_device(&options, &region, NULL);
    kvmem_region_destroy(region);
    return status;
}

static kvmem_status pinned_region(void) {
    const kvmem_pinned_options options = OPTIONS(kvmem_pinned_options, it.size = MIB);
    kvmem_region *region = NULL;
    const kvmem_status status = kvmem_region_create_pinned(&options, &region, NULL);
    kvmem_region_destroy(region);
    return status;
}

static kvmem_status elastic_region(void) {
    const kvmem_elastic_options options = OPTIONS(kvmem_elastic_options, it.size = 4 * MIB, it.extent_size = 2 * MIB);
    kvmem_region *region = NULL;
    kvmem_status status = kvmem_region_create_elastic(&options, &region, NULL);
    if (status == KVMEM_STATUS_OK) status = kvmem_region_commit(region, 0, 2 * MIB, NULL);
    if (status == KVMEM_STATUS_OK) status = kvmem_region_decommit(region, 0, 2 * MIB, NULL);
    kvmem_region_destroy(region);
    return status;
}

static kvmem_status pool(void) {
    const kvmem_elastic_options options = OPTIONS(kvmem_elastic_options, it.size = 4 * MIB, it.extent_size = 2 * MIB);
    kvmem_region *region = NULL;
    kvmem_status status = kvmem_region_create_elastic(&options, &region, NULL);
    if (status == KVMEM_STATUS_OK) status = kvmem_pool_set_current(0, region, NULL);
    void *block = kvmem_pool_malloc(MIB, 0, NULL);
    kvmem_pool_free(block, 0, 0, NULL);
    void *again = kvmem_pool_malloc(MIB, 0, NULL);
    kvmem_pool_free(again, 0, 0, NULL);
    kvmem_pool_set_current(0, NULL, NULL);
    kvmem_region_destroy(region);
    return block != NULL && again != NULL ? status : KVMEM_STATUS_OUT_OF_MEMORY;
}

static kvmem_status mapped_memory(void) {
    kvmem_vmm_memory *memory = NULL;
    kvmem_vmm_range *range = NULL;
    kvmem_vmm_mapping *mapping = NULL;
    kvmem_vmm_span span;
    const kvmem_vmm_options options = OPTIONS(kvmem_vmm_options, it.size = 2 * MIB, it.location = KVMEM_VMM_DEVICE);
    kvmem_status status = kvmem_vmm_memory_create(&options, &memory, NULL);
    if (status == KVMEM_STATUS_OK) status = kvmem_vmm_range_create(2 * MIB, 0, &span, &range, NULL);
    if (status == KVMEM_STATUS_OK) status = kvmem_vmm_mapping_create(range, 0, memory, &span, &mapping, NULL);
    if (status == KVMEM_STATUS_OK) status = kvmem_vmm_mapping_set_access(mapping, 0, KVMEM_ACCESS_READ_WRITE, NULL);
    kvmem_vmm_mapping_destroy(mapping);
    kvmem_vmm_range_destroy(range);
    kvmem_vmm_memory_destroy(memory);
    return status;
}

static kvmem_status checksum(const flight *flight) {
    uint32_t sum = 0;
    return kvmem_layout_checksum(flight->destination.model.layout, (uint32_t[]){0}, 1, PATIENCE, &sum, NULL);
}

static kvmem_status rates(void) {
    kvmem_blob *rates = NULL;
    kvmem_cuda_set_copy_rates(0, 0, NULL, 0, NULL);
    const kvmem_status status = kvmem_cuda_get_copy_rates(0, 0, &rates, NULL);
    kvmem_blob_destroy(rates);
    return status;
}

static void *act(void *argument) {
    actor *actor = argument;
    switch (actor->row->operation) {
    case TRANSFER:
    case FILE_TRANSFER: actor->status = transfer(actor->flight, actor->row->path); break;
    case DEVICE_REGION: actor->status = device_region(); break;
    case PINNED_REGION: actor->status = pinned_region(); break;
    case ELASTIC_REGION: actor->status = elastic_region(); break;
    case POOL: actor->status = pool(); break;
    case VMM: actor->status = mapped_memory(); break;
    case CHECKSUM: actor->status = checksum(actor->flight); break;
    case RATES: actor->status = rates(); break;
    }
    actor->is_over = true;
    return NULL;
}

static place source_of(const row *row) { return row->operation == FILE_TRANSFER ? PLACE_FILE : PLACE_PINNED; }

static void use_the_other_gpu(const row *row) {
    const uint32_t path = row->path;
    OPENED(flight, flight, .from = source_of(row), .to = PLACE_DEVICE, .from_device = 1, .to_device = 1,
           .file_flags = KVMEM_DISK_BUFFERED, .has_queue = true);
    /* A kernel that is not loaded within some milliseconds, as on a busy machine, is BUSY: the next call has it. */
    const uint64_t end = patience_end();
    while (flight_try(&flight, it.transfer.method = path) == KVMEM_STATUS_BUSY) {
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

static void hold(const row *row) {
    SIM(sim_reset());
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
    OPENED(flight, flight, .from = source_of(row), .to = PLACE_DEVICE, .file_flags = KVMEM_DISK_BUFFERED);
    actor actor = {.row = row, .flight = &flight};
    threads thread;
    SIM(sim_hold_call(row->function));
    threads_start(&thread, 1, act, &actor, 0);
    const uint64_t end = patience_end();
    while (SIM(sim_held_calls()) == 0 && !actor.is_over) patience_wait(end, row->function);
    /* Another thread of the operation may make the same call. */
    if (SIM(sim_held_calls()) == 0)
        FAIL("%s was not called, and the operation ended: %s", row->function, kvmem_status_name(actor.status));
    query(&flight);
    use_host_memory();
    use_the_other_gpu(row);
    SIM(sim_go_calls());
    threads_join(&thread);
    if (actor.status != KVMEM_STATUS_OK && !(row->may_be_busy && actor.status == KVMEM_STATUS_BUSY))
        FAIL("while %s was held: %s", row->function, kvmem_status_name(actor.status));
}

TEST(other_gpus_and_queries_do_not_wait_for_a_call_of_the_driver) {
    for (size_t i = 0; i < NUM(rows); i++) hold(&rows[i]);
    SIM(sim_reset());
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
}
