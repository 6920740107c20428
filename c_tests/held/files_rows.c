// SPDX-License-Identifier: Apache-2.0
// Regions, layouts and transfers in files, and shares of them, while their file system does not respond.
#include "held.h"

HELD_CASES

#define SIZE UINT64_C(65536)

static kv_side host;
static kvmem_region *file, *named, *doomed, *made;
static kvmem_layout *stored, *other, *made_layout;
static kvmem_share *of_file, *received;
static int owner = -1;  /* the socket of a process that owns a region and a layout in files */
static kvmem_transfer *begun;
static kvmem_queue *queue;
static char path[160];
static int memory = -1;
static const kv_move all = KV_MOVE(3, {0, 0}, {6, 1}, {1, 2}, {5, 3});

static kvmem_status create(const char *at, uint64_t flags, kvmem_region **region) {
    return kvmem_region_create_disk(REF(OPTIONS(kvmem_disk_options, it.path = at, it.directory = at == NULL ? held_folder() : NULL,
                                                it.size = SIZE, it.flags = flags)),
                                    region, ERR);
}

static kvmem_status build(const char *at, kvmem_layout **layout) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    const kvmem_disk_options disk = OPTIONS(kvmem_disk_options, it.path = at, it.directory = at == NULL ? held_folder() : NULL,
                                            it.flags = at == NULL ? 0 : KVMEM_DISK_OPEN_OR_CREATE);
    return kvmem_layout_build(
        REF(OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_ALLOCATE, it.disk = &disk)), layout, ERR);
}

void held_open(void) {
    kv_side_open(&host, REF(kv_aligned_config(&kv_kinds[0])), NULL, 1);
    snprintf(path, sizeof(path), "%s/named", held_folder());
    EXPECT_OK(create(path, KVMEM_DISK_OPEN_OR_CREATE, &named));
    DESTROYED(kvmem_region, named);
    EXPECT_OK(create(TEXT("%s/used", held_folder()), KVMEM_DISK_OPEN_OR_CREATE, &named));
    EXPECT_OK(create(NULL, 0, &file));
    EXPECT_OK(create(NULL, KVMEM_DISK_BUFFERED, &doomed));
    EXPECT_OK(build(NULL, &stored));
    EXPECT_OK(build(NULL, &other));
    EXPECT_OK(kvmem_share_create_region(named, NULL, &of_file, ERR));
    memory = memfd_create(HELD_MEMORY, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(memory > 0 && ftruncate(memory, SIZE) == 0);
}

void held_close(void) {
    kvmem_transfer_destroy(begun);
    kvmem_queue_destroy(queue);
    kvmem_share_destroy(of_file);
    kvmem_share_destroy(received);
    if (owner >= 0) close(owner);
    kvmem_layout_destroy(made_layout);
    kvmem_layout_destroy(stored);
    kvmem_layout_destroy(other);
    kvmem_region_destroy(made);
    kvmem_region_destroy(file);
    kvmem_region_destroy(named);
    kvmem_region_destroy(doomed);
    kv_side_close(&host);
    close(memory);
}

static kvmem_status move(const kvmem_layout *to, uint64_t timeout) {
    OWNED(kvmem_transfer) transfer = NULL;
    kvmem_status status = kv_prepare(
        host.layout, to, KV_JOB(&all, it.transfer.method = KVMEM_METHOD_PREAD, it.run.run_timeout_ns = timeout), &transfer, ERR);
    THEN(status, kvmem_transfer_submit(transfer, NULL, ERR));
    THEN(status, kvmem_transfer_wait(transfer, KVMEM_TIMEOUT_FOREVER, ERR));
    return status;
}

void held_beside(void) {
    CHECK_EQ(region_info(file).size, SIZE);
    CHECK_EQ(region_info(named).size, SIZE);
    CHECK(layout_info(stored).num_blocks > 0);
    GET(kvmem_share_info, info, kvmem_share_get_info, of_file);
    OWN(kvmem_region, view, kvmem_region_create_view, file, 4096, 8192);
    OWNED(kvmem_region) another = NULL;
    EXPECT_OK(create(NULL, 0, &another));
    EXPECT_OK(kvmem_region_sync(another, ERR));
    EXPECT_OK(move(other, PATIENCE));
    OPENED(kv_side, target, REF(kv_aligned_config(&kv_kinds[1])), NULL, 2);
    kv_run(host.layout, target.layout, &all);
}

/* Another process: creates a region or a layout in a file, sends a share, and ends with the socket. */
static _Noreturn void own(bool is_layout, int socket) {
    kvmem_region *region = NULL;
    kvmem_layout *layout = NULL;
    kvmem_share *share = NULL;
    const char *at = TEXT("%s/shared", held_folder());
    char byte;
    if (is_layout) {
        EXPECT_OK(build(at, &layout));
        EXPECT_OK(kvmem_share_create_layout(layout, NULL, &share, ERR));
    } else {
        EXPECT_OK(create(at, KVMEM_DISK_OPEN_OR_CREATE, &region));
        EXPECT_OK(kvmem_share_create_region(region, NULL, &share, ERR));
    }
    EXPECT_OK(kvmem_share_send(share, socket, PATIENCE, ERR));
    _exit(read(socket, &byte, 1) == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
}

static void receive(bool is_layout) {
    int ends[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(ends[0]);
        alarm(PATIENCE_SECONDS);
        own(is_layout, ends[1]);
    }
    close(ends[1]);
    owner = ends[0];
    EXPECT_OK(kvmem_share_receive(owner, PATIENCE, &received, ERR));
}

static void receive_region(void) { receive(false); }
static void receive_layout(void) { receive(true); }
static kvmem_status open_region(void) { return kvmem_share_open_region(received, NULL, &made, ERR); }
static kvmem_status open_layout(void) { return kvmem_share_open_layout(received, NULL, &made_layout, ERR); }
static kvmem_status create_temporary(void) { return create(NULL, 0, &made); }
static kvmem_status create_named(void) { return create(TEXT("%s/new", held_folder()), KVMEM_DISK_OPEN_OR_CREATE, &made); }
static kvmem_status open_existing(void) { return create(path, KVMEM_DISK_OPEN_EXISTING, &made); }
static kvmem_status build_named(void) { return build(TEXT("%s/blocks", held_folder()), &made_layout); }
static kvmem_status adopt(void) {
    return kvmem_region_adopt_memfd(REF(OPTIONS(kvmem_adopt_memfd_options, it.fd = memory, it.size = SIZE)), &made, ERR);
}
static kvmem_status sync_file(void) { return kvmem_region_sync(named, ERR); }
static kvmem_status get_path(void) { return TRIED(kvmem_blob, kvmem_region_get_path, named); }
static kvmem_status destroy(void) {
    DESTROYED(kvmem_region, doomed);
    return KVMEM_STATUS_OK;
}
static kvmem_status run(void) { return move(stored, held_limit()); }

static kvmem_status start(void) {
    OWNED(kvmem_transfer) transfer = NULL;
    const kv_job job = WITH(kv_job_of(&all), it.transfer.method = KVMEM_METHOD_PREAD);
    kvmem_status status = kvmem_transfer_start(stored, host.layout, &job.transfer, REF(WITH(job.run, it.run_timeout_ns = held_limit())),
                                               &transfer, ERR);
    THEN(status, kvmem_transfer_wait(transfer, KVMEM_TIMEOUT_FOREVER, ERR));
    return status;
}

/* A run without a limit, which ends after those that wait for it. */
static kvmem_status begin_a_run(void) {
    kvmem_status status = kvmem_queue_create(&queue, ERR);
    THEN(status, kv_prepare(host.layout, stored,
                            KV_JOB(&all, it.transfer.method = KVMEM_METHOD_PREAD, it.transfer.queue = queue), &begun, ERR));
    THEN(status, kvmem_transfer_submit(begun, NULL, ERR));
    return status;
}

static kvmem_status wait_for_a_run(void) {
    kvmem_status status = begin_a_run();
    THEN(status, kvmem_transfer_wait(begun, held_limit(), ERR));
    return status;
}

static kvmem_status wait_for_layers(void) {
    kvmem_status status = begin_a_run();
    THEN(status, kvmem_transfer_wait_layers(begun, 3, held_limit(), ERR));
    return status;
}

static kvmem_status wait_for_a_completion(void) {
    kvmem_completion completion;
    size_t count = 0;
    kvmem_status status = begin_a_run();
    THEN(status, kvmem_queue_wait(queue, held_limit(), &completion, 1, &count, ERR));
    return status;
}

const held_row held_rows[] = {
    {.functions = "kvmem_region_create_disk", .run = create_temporary, .unbounded = HELD_BY_FILES},
    {.functions = "kvmem_region_create_disk", .run = create_named, .unbounded = HELD_BY_FILES},
    {.functions = "kvmem_region_create_disk", .run = open_existing, .unbounded = HELD_BY_FILES},
    {.functions = "kvmem_region_adopt_memfd", .run = adopt, .unbounded = HELD_BY_FILES},
    {.functions = "kvmem_layout_build", .run = build_named, .unbounded = HELD_BY_FILES},
    {.functions = "kvmem_region_sync", .run = sync_file, .unbounded = HELD_BY_FILES},
    {.functions = "kvmem_region_get_path", .run = get_path, .unbounded = HELD_BY_FILES},
    {.functions = "kvmem_region_destroy", .run = destroy, .unbounded = HELD_BY_FILES},
    {.functions = "kvmem_share_open_region", .prepare = receive_region, .run = open_region, .unbounded = HELD_BY_FILES},
    {.functions = "kvmem_share_open_layout", .prepare = receive_layout, .run = open_layout, .unbounded = HELD_BY_FILES},
    {.functions = "kvmem_transfer_prepare kvmem_transfer_submit kvmem_transfer_wait", .run = run},
    {.functions = "kvmem_transfer_start", .run = start},
    {.functions = "kvmem_transfer_wait", .run = wait_for_a_run},
    {.functions = "kvmem_transfer_wait_layers", .run = wait_for_layers},
    {.functions = "kvmem_queue_wait", .run = wait_for_a_completion},
};
const size_t held_num_rows = NUM(held_rows);
