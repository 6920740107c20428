// SPDX-License-Identifier: Apache-2.0
// Regions and layouts in files, and transfers to and from them.
#include "walk.h"

#include "file_side.h"

FAULT_WALK_CASES

const bool operations_have_peer = false;

static kv_side host;
static kvmem_layout *stored;
static const kv_move all = KV_MOVE(3, {0, 0}, {6, 1}, {1, 2}, {5, 3});

void operations_open(void) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    kv_side_open(&host, &config, NULL, 1);
    stored = temporary_disk_layout(&config, NULL, 0);
}

void operations_close(void) {
    kvmem_layout_destroy(stored);
    kv_side_close(&host);
}

void operations_check(void) { kv_side_check(&host); }

static kvmem_status create(const char *name, uint64_t flags) {
    const char *path = name != NULL ? TEXT("%s/%s", fault_folder(), name) : NULL;
    OWNED(kvmem_region) region = NULL;
    kvmem_status status = kvmem_region_create_disk(
        REF(OPTIONS(kvmem_disk_options, it.path = path, it.directory = name == NULL ? fault_folder() : NULL,
                    it.size = MIB, it.flags = flags)),
        &region, ERR);
    THEN(status, kvmem_region_sync(region, ERR));
    return status;
}

OPERATION_CALL(create_a_temporary_file, create(NULL, 0))
OPERATION_CALL(create_a_buffered_file, create(NULL, KVMEM_DISK_BUFFERED))
OPERATION_CALL(create_a_named_file, create("cache", KVMEM_DISK_OPEN_OR_CREATE))

OPERATION(create_and_open_a_file) {
    kvmem_status status = create("cache", KVMEM_DISK_OPEN_OR_CREATE);
    THEN(status, create("cache", KVMEM_DISK_OPEN_EXISTING));
    THEN(status, create("cache", KVMEM_DISK_OPEN_EXISTING | KVMEM_DISK_READ_ONLY));
    return status;
}

OPERATION(build_a_layout_in_a_file) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    const kvmem_disk_options disk = OPTIONS(kvmem_disk_options, it.path = TEXT("%s/cache", fault_folder()),
                                            it.flags = KVMEM_DISK_OPEN_OR_CREATE);
    return TRIED(kvmem_layout, kvmem_layout_build,
                 REF(OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_ALLOCATE,
                             it.disk = &disk)));
}

static kvmem_status move(const kvmem_layout *source, const kvmem_layout *destination, uint32_t method, uint64_t flags) {
    OWNED(kvmem_transfer) transfer = NULL;
    kvmem_status status = kv_prepare(source, destination,
                                     KV_JOB(&all, it.transfer.method = method, it.run.flags = flags), &transfer, ERR);
    THEN(status, kvmem_transfer_submit(transfer, NULL, ERR));
    THEN(status, kvmem_transfer_wait(transfer, SECONDS(10), ERR));
    return status;
}

OPERATION_CALL(write_by_threads, move(host.layout, stored, KVMEM_METHOD_PREAD, 0))
OPERATION_CALL(read_and_verify, move(host.layout, stored, KVMEM_METHOD_PREAD, KVMEM_SUBMIT_VERIFY))

/* Where io_uring is not permitted, threads. */
OPERATION_CALL(write_by_any_method, move(host.layout, stored, 0, 0))

OPERATION(ask_for_a_path) {
    OWNED(kvmem_region) region = NULL;
    kvmem_status status = kvmem_region_create_disk(
        REF(OPTIONS(kvmem_disk_options, it.path = TEXT("%s/cache", fault_folder()), it.size = MIB, it.flags = KVMEM_DISK_OPEN_OR_CREATE)),
        &region, ERR);
    THEN(status, TRIED(kvmem_blob, kvmem_region_get_path, region));
    return status;
}
