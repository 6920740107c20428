// SPDX-License-Identifier: Apache-2.0
// Files and kernels that fail a transfer: an incomplete transfer is an error that names its cause.
#include "harness.h"

static const kv_move all = KV_MOVE(3, {0, 0}, {6, 1}, {1, 2}, {5, 3}, {2, 4}, {4, 5}, {3, 6});
/* No two of these are merged into one request, on either side. */
static const kvmem_block_pair apart_pairs[] = {{0, 0}, {2, 2}, {4, 4}, {6, 6}};
static const kv_move apart = {apart_pairs, NUM(apart_pairs), 0, 0, 3};

/* Memory and a file of 7 blocks of 24 KiB. */
typedef file_pair sides;
#define sides_close file_pair_close
static void sides_open(sides *sides, uint64_t flags) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    file_pair_open(sides, &config, &config, NULL, flags);
}

static kvmem_transfer *create(sides *sides, bool to_file, uint32_t method) {
    return file_pair_transfer(sides, to_file, KV_JOB(&all, it.transfer.method = method));
}

/* The run fails with this status and errno; 0: no errno. */
static void expect_failure(kvmem_transfer *transfer, kvmem_status status, int code, const char *part) {
    RUN_ENDS(status, part, transfer);
    if (code != 0) CHECK_CAUSE(KVMEM_DOMAIN_ERRNO, code);
    EXPECT(status, kvmem_transfer_poll(transfer, ERR));
}

/* Runs successfully in both directions. */
static void expect_to_work(sides *sides, uint32_t method) {
    file_pair_run(sides, true, &all, method);
    file_pair_run(sides, false, &all, method);
}

static const uint64_t modes[] = {0, KVMEM_DISK_BUFFERED};
static const uint32_t methods[] = {KVMEM_METHOD_PREAD, KVMEM_METHOD_URING};

static size_t num_paths(void) { return can_test_io_uring() ? 2 : 1; }

/* Reading past the end of the file is an error: at a page, within a page, and of an empty file. */
TEST(a_truncated_file_is_an_error) {
    for (size_t i = 0; i < NUM(modes) * num_paths(); i++) {
        const uint64_t lengths[] = {3 * 4096 + 24576, 5 * 4096 + 24576 + 777, 0};
        for (size_t k = 0; k < NUM(lengths); k++) {
            OPENED(sides, sides, modes[i % NUM(modes)]);
            OWNED(kvmem_transfer) transfer = create(&sides, false, methods[i / NUM(modes)]);
            file_side_truncate(&sides.file, lengths[k]);
            expect_failure(transfer, KVMEM_STATUS_IO, 0, "truncated");
            file_side_truncate(&sides.file, sides.file.model.size);
            /* The file has its length again, but not its bytes. */
            RUN(transfer);
        }
    }
}

/* A run that failed reports this to its queue, with no bytes. */
TEST(the_queue_reports_a_failure) {
    for (size_t i = 0; i < num_paths(); i++) {
        CLEANUP(sides_close) sides sides;
        sides_open(&sides, KVMEM_DISK_BUFFERED);
        OWN(kvmem_queue, queue, kvmem_queue_create);
        OWNED(kvmem_transfer) transfer = file_pair_transfer(
            &sides, false, KV_JOB(&all, it.transfer.method = methods[i], it.transfer.queue = queue, it.run.user_data = 7));
        file_side_truncate(&sides.file, 8192);
        EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
        const kvmem_completion completion = next_completion(queue);
        CHECK_EQ(completion.user_data, 7);
        CHECK_EQ(completion.status, KVMEM_STATUS_IO);
        CHECK_EQ(completion.bytes, 0);
    }
}

/* The process may not write past the middle of the file: the kernel writes a part, then fails. It also sends
   SIGXFSZ, whose default action would end the child. */
static void full_in_the_middle(void) {
    for (size_t i = 0; i < NUM(modes) * num_paths(); i++) {
        CLEANUP(sides_close) sides sides;
        sides_open(&sides, modes[i % NUM(modes)]);
        OWNED(kvmem_transfer) transfer = create(&sides, true, methods[i / NUM(modes)]);
        const struct rlimit little = {sides.file.model.size / 2, RLIM_INFINITY};
        const struct rlimit plenty = {RLIM_INFINITY, RLIM_INFINITY};
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
        expect_failure(transfer, KVMEM_STATUS_OUT_OF_MEMORY, EFBIG, "EFBIG");
        CHECK_HAS(test_last_message(), "RLIMIT_FSIZE");
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &plenty), 0);
        expect_to_work(&sides, methods[i / NUM(modes)]);
    }
}

TEST_CALL(a_file_that_cannot_grow_is_an_error, in_a_forked_child(full_in_the_middle))

static int injected;
static kvmem_status expected_of_it;

/* Accesses to the file's second half fail. The threads that make them are started later, so they have the
   filter. */
static void fail_in_the_middle(void) {
    OPENED(sides, sides, KVMEM_DISK_BUFFERED);
    const kv_job options = WITH(kv_job_of(&apart), it.transfer.method = KVMEM_METHOD_PREAD);
    OWNED(kvmem_transfer) write = file_pair_transfer(&sides, true, &options);
    OWNED(kvmem_transfer) read = file_pair_transfer(&sides, false, &options);
    CHECK_EQ(transfer_info(read).num_requests, NUM(apart_pairs));
    const kv_side *model = &sides.file.model;
    const uint32_t middle = (uint32_t)(model->starts[0] + 4 * kv_block_stride(&model->config));
    fail_system_call_from(SYS_pwritev, middle, injected);
    fail_system_call_from(SYS_preadv, middle, injected);
    expect_failure(write, expected_of_it, injected, injected == ENOSPC ? "bytes are free" : "write");
    expect_failure(read, expected_of_it, injected, "read");
}

TEST(the_errno_of_the_kernel_is_reported) {
    static const struct {
        int code;
        kvmem_status status;
    } errors[] = {
        {EIO, KVMEM_STATUS_IO},
        {ENOSPC, KVMEM_STATUS_OUT_OF_MEMORY},
        {EDQUOT, KVMEM_STATUS_OUT_OF_MEMORY},
        {EPERM, KVMEM_STATUS_PERMISSION_DENIED},
        {EAGAIN, KVMEM_STATUS_IO},
        {EINTR, KVMEM_STATUS_IO},
    };
    for (size_t i = 0; i < NUM(errors); i++) {
        injected = errors[i].code;
        expected_of_it = errors[i].status;
        in_a_forked_child(fail_in_the_middle);
    }
}

static const char *said_of_it;

/* The errors of a container without io_uring, and of a kernel without memory for a ring. */
static void without_a_ring(void) {
    OPENED(sides, sides, 0);
    fail_system_call(SYS_io_uring_setup, injected);
    CHECK(!has_io_uring());
    OWNED(kvmem_transfer) transfer = create(&sides, true, 0);
    CHECK_EQ(transfer_info(transfer).method, KVMEM_METHOD_PREAD);
    CHECK_HAS(kv_explained(transfer, NULL), said_of_it);
    expect_to_work(&sides, 0);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "io_uring", kv_prepare, sides.host.layout,
           sides.file.model.layout, KV_JOB(&all, it.transfer.method = KVMEM_METHOD_URING));
}

TEST(without_io_uring_threads_move_the_same_bytes) {
    static const int errors[] = {ENOSYS, EPERM, ENOMEM, EMFILE};
    static const char *const said[NUM(errors)] = {"the kernel has no io_uring", "io_uring is not permitted",
                                                  "RLIMIT_MEMLOCK", "RLIMIT_NOFILE"};
    /* Without limits the message does not mention them. */
    struct rlimit before;
    CHECK_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    const rlim_t most = (rlim_t)64 << 20;
    const struct rlimit lowered = {before.rlim_cur < most ? before.rlim_cur : most, before.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &lowered), 0);
    for (size_t i = 0; i < NUM(errors); i++) {
        injected = errors[i];
        said_of_it = said[i];
        in_a_forked_child(without_a_ring);
    }
    CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

/* A filter that allows creating a ring but not using it is detected when the ring is created. */
static void a_ring_that_does_not_work(void) {
    OPENED(sides, sides, 0);
    fail_system_call(SYS_io_uring_enter, EPERM);
    expect_to_work(&sides, 0);
    OWNED(kvmem_transfer) transfer = create(&sides, true, 0);
    CHECK_EQ(transfer_info(transfer).method, KVMEM_METHOD_PREAD);
}

TEST_CALL(a_ring_that_does_not_work_is_not_used, in_a_forked_child(a_ring_that_does_not_work))

/* If a ring stops working, its requests fail, and it is not used again. */
static void a_ring_that_stops_working(void) {
    OPENED(sides, sides, 0);
    OWNED(kvmem_transfer) transfer = create(&sides, true, KVMEM_METHOD_URING);
    fail_system_call(SYS_io_uring_enter, EPERM);
    expect_failure(transfer, KVMEM_STATUS_PERMISSION_DENIED, EPERM, "io_uring");
    expect_failure(transfer, KVMEM_STATUS_IO, 0, "create the transfer again");
    expect_to_work(&sides, 0);
}

TEST(a_ring_that_stops_working_is_an_error) {
    if (!has_io_uring()) SKIP("io_uring: this kernel has none, or does not permit it to this process");
    in_a_forked_child(a_ring_that_stops_working);
}

/* A kernel that accepts no request and reports no error is asked for 5 s. */
static void a_ring_that_accepts_nothing(void) {
    OPENED(sides, sides, 0);
    OWNED(kvmem_transfer) transfer = create(&sides, true, KVMEM_METHOD_URING);
    fail_system_call(SYS_io_uring_enter, 0);
    expect_failure(transfer, KVMEM_STATUS_IO, EAGAIN, "io_uring");
    expect_to_work(&sides, 0);
}

TEST(a_ring_that_accepts_nothing_is_an_error) {
    if (!has_io_uring()) SKIP("io_uring: this kernel has none, or does not permit it to this process");
    in_a_forked_child(a_ring_that_accepts_nothing);
}

static sides parents;

static void in_the_child(void) {
    REFUSE(KVMEM_STATUS_INVALID_STATE, "", kv_prepare, parents.host.layout,
           parents.file.model.layout, KV_JOB(&all));
    OPENED(sides, sides, 0);
    OWNED(kvmem_transfer) transfer = create(&sides, true, 0);
    CHECK_EQ(transfer_info(transfer).method, has_io_uring() ? KVMEM_METHOD_URING : KVMEM_METHOD_PREAD);
    expect_to_work(&sides, 0);
    expect_to_work(&sides, KVMEM_METHOD_PREAD);
}

/* The child has its own ring and threads; those of the parent are unchanged. */
TEST(a_forked_child_moves_its_own_blocks) {
    sides_open(&parents, 0);
    for (int i = 0; i < 3; i++) {
        expect_to_work(&parents, 0);
        expect_to_work(&parents, KVMEM_METHOD_PREAD);
        in_a_forked_child(in_the_child);
    }
    expect_to_work(&parents, 0);
    sides_close(&parents);
}

/* The ring and its eventfd exist while a disk layout exists, and no longer than its last run. */
TEST(nothing_stays_open) {
    sides sides;
    const size_t before = count_open_files();
    sides_open(&sides, 0);
    const size_t without = count_open_files();
    expect_to_work(&sides, 0);
    CHECK(count_open_files() <= without + 2);
    for (int i = 0; i < 50; i++) {
        expect_to_work(&sides, 0);
        CHECK(count_open_files() <= without + 2);
    }
    sides_close(&sides);
    while (count_open_files() > before) {
        sched_yield(); /* lets the thread of the ring run; the deadline of the case limits this */
    }
}
