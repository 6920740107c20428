// SPDX-License-Identifier: Apache-2.0
// Regions in host memory, layouts and transfers of them, and queues.
#include "walk.h"

#include "file_side.h"

FAULT_WALK_CASES

const bool operations_have_peer = false;

/* More than the walk allows for what is not a leak. */
#define LARGE (32 * MIB)

static kv_side source, destination;
static const kv_move all = KV_MOVE(3, {0, 0}, {6, 1}, {1, 2}, {5, 3});

void operations_open(void) {
    kv_side_open(&source, REF(kv_aligned_config(&kv_kinds[0])), NULL, 1);
    kv_side_open(&destination, REF(kv_aligned_config(&kv_kinds[1])), NULL, 2);
}

void operations_close(void) {
    kv_side_close(&source);
    kv_side_close(&destination);
}

void operations_check(void) { kv_side_check(&source); }

static kvmem_status create_system(uint64_t size, uint64_t flags, uint32_t threads) {
    return TRIED(kvmem_region, kvmem_region_create_system,
                 REF(OPTIONS(kvmem_system_options, it.size = size, it.flags = flags, it.prefault_threads = threads)));
}

OPERATION_CALL(create_system_memory, create_system(LARGE, 0, 0))
OPERATION_CALL(create_shareable_memory, create_system(LARGE, KVMEM_SYSTEM_SHAREABLE, 0))
OPERATION_CALL(create_touched_memory, create_system(4 * MIB, 0, 2))
OPERATION_CALL(create_memory_with_huge_pages, create_system(LARGE, KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES, 0))

OPERATION(view_memory) {
    OWNED(kvmem_region) memory = NULL;
    OWNED(kvmem_region) view = NULL;
    kvmem_status status = kvmem_region_create_system(
        REF(OPTIONS(kvmem_system_options, it.size = MIB, it.flags = KVMEM_SYSTEM_SHAREABLE)), &memory, ERR);
    THEN(status, kvmem_region_create_view(memory, 4096, 8192, &view, ERR));
    return status;
}

OPERATION(build_a_layout) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    const kvmem_system_options system = OPTIONS(kvmem_system_options);
    return TRIED(kvmem_layout, kvmem_layout_build,
                 REF(OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_ALLOCATE,
                             it.system = &system)));
}

static kvmem_status run(kvmem_transfer *transfer) {
    kvmem_status status = kvmem_transfer_submit(transfer, NULL, ERR);
    THEN(status, kvmem_transfer_wait(transfer, SECONDS(10), ERR));
    return status;
}

OPERATION(move_blocks) {
    OWNED(kvmem_transfer) transfer = NULL;
    kvmem_status status = kv_prepare(source.layout, destination.layout, REF(kv_job_of(&all)), &transfer, ERR);
    THEN(status, run(transfer));
    return status;
}

OPERATION(report_to_a_queue) {
    OWNED(kvmem_queue) queue = NULL;
    OWNED(kvmem_transfer) transfer = NULL;
    kvmem_completion completion;
    size_t count = 0;
    int32_t fd = -1;
    kvmem_status status = kvmem_queue_create(&queue, ERR);
    THEN(status, kvmem_queue_get_fd(queue, &fd, ERR));
    THEN(status, kv_prepare(source.layout, destination.layout, KV_JOB(&all, it.transfer.queue = queue), &transfer, ERR));
    THEN(status, kvmem_transfer_submit(transfer, NULL, ERR));
    THEN(status, kvmem_queue_wait(queue, SECONDS(10), &completion, 1, &count, ERR));
    THEN(status, completion.status);
    return status;
}
