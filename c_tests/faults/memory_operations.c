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

OPERATION(adopt_memory) {
    static unsigned char bytes[4096];
    OWNED(kvmem_region) region = NULL;
    OWNED(kvmem_region) view = NULL;
    kvmem_status status =
        kvmem_region_adopt_host(REF(OPTIONS(kvmem_adopt_options, it.address = bytes, it.size = sizeof(bytes))), &region, ERR);
    THEN(status, kvmem_region_create_view(region, 64, 128, &view, ERR));
    return status;
}

/* Of memory that is not shared: the kernel is asked who has it, and which pages are there. */
OPERATION(ask_the_kernel_about_memory) {
    OWNED(kvmem_region) region = NULL;
    kvmem_region_holders holders;
    kvmem_region_residency residency;
    kvmem_status status = kvmem_region_create_system(
        REF(OPTIONS(kvmem_system_options, it.size = MIB, it.flags = KVMEM_SYSTEM_SHAREABLE)), &region, ERR);
    THEN(status, kvmem_region_get_holders(region, &holders, ERR));
    THEN(status, kvmem_region_get_residency(region, &residency, ERR));
    return status;
}

OPERATION(adopt_a_memory_file) {
    OWNED(kvmem_region) region = NULL;
    CLEANUP(test_close) const int file = memfd_create("adopted", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, 65536) != 0) return KVMEM_STATUS_OK; /* not a call of the library */
    return kvmem_region_adopt_memfd(REF(OPTIONS(kvmem_adopt_memfd_options, it.fd = file, it.size = 65536)), &region, ERR);
}

OPERATION(create_epochs) {
    OWNED(kvmem_layout) layout = NULL;
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    const kvmem_system_options system = OPTIONS(kvmem_system_options);
    kvmem_status status = kvmem_layout_build(
        REF(OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_ALLOCATE, it.system = &system)), &layout, ERR);
    THEN(status, kvmem_layout_create_epochs(layout, NULL, ERR));
    return status;
}

OPERATION(checksum_blocks) {
    static const uint32_t ids[] = {0, 1, 6};
    uint32_t sums[NUM(ids)];
    return kvmem_layout_checksum(source.layout, ids, NUM(ids), SECONDS(10), sums, ERR);
}

/* The first comparison measures host copies. */
OPERATION(explain_a_transfer) {
    OWNED(kvmem_transfer) transfer = NULL;
    kvmem_compared_method methods[8];
    size_t count = 0;
    const kv_job job = kv_job_of(&all);
    kvmem_status status = kvmem_transfer_start(source.layout, destination.layout, &job.transfer, &job.run, &transfer, ERR);
    THEN(status, kvmem_transfer_wait_layers(transfer, 1, SECONDS(10), ERR));
    THEN(status, kvmem_transfer_wait(transfer, SECONDS(10), ERR));
    THEN(status, kvmem_transfer_get_methods(transfer, methods, NUM(methods), &count, ERR));
    THEN(status, TRIED(kvmem_blob, kvmem_transfer_explain, transfer));
    return status;
}

/* More than one thread copies. */
OPERATION(move_many_bytes) {
    static const uint32_t ids[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    OWNED(kvmem_layout) from = NULL;
    OWNED(kvmem_layout) to = NULL;
    OWNED(kvmem_transfer) transfer = NULL;
    const kvmem_layout_config config = kv_large_config(&kv_kinds[0]), other = kv_large_config(&kv_kinds[1]);
    const kvmem_system_options system = OPTIONS(kvmem_system_options);
    const kvmem_block_table table = {ids, NUM(ids), 0, 1};
    const kv_job job = JOB(it.run.source_table = &table, it.run.destination_table = &table,
                           it.run.num_tokens = NUM(ids) * config.page_size, it.run.flags = KVMEM_SUBMIT_VERIFY);
    kvmem_status status = kvmem_layout_build(
        REF(OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_ALLOCATE, it.system = &system)), &from, ERR);
    THEN(status, kvmem_layout_build(
        REF(OPTIONS(kvmem_layout_options, it.config = &other, it.source = KVMEM_LAYOUT_ALLOCATE, it.system = &system)), &to, ERR));
    THEN(status, kvmem_transfer_start(from, to, &job.transfer, &job.run, &transfer, ERR));
    THEN(status, kvmem_transfer_wait(transfer, SECONDS(10), ERR));
    return status;
}

static void receive_message(uint32_t level, const char *target, const char *message, void *user_data) {
    (void)level, (void)target, (void)message, (void)user_data;
}

OPERATION(receive_the_log) {
    kvmem_status status = kvmem_log_set_callback(KVMEM_LOG_TRACE, receive_message, NULL, ERR);
    THEN(status, create_system(LARGE, 0, 0));
    (void)kvmem_log_set_callback(0, NULL, NULL, NULL); /* it keeps the error of what has failed before */
    return status;
}

/* The socket and its thread stay until the process ends. */
OPERATION(serve_statistics) { return kvmem_statistics_serve(ERR); }
