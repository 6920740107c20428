// SPDX-License-Identifier: Apache-2.0
// Files and kernels that fail a transfer: what is not all moved is an error, and says which.
#include "harness.h"

static const kv_move all = KV_MOVE(3, {0, 0}, {6, 1}, {1, 2}, {5, 3}, {2, 4}, {4, 5}, {3, 6});
/* Of which no two are one request, on whatever side the file is. */
static const kvmem_block_pair apart_pairs[] = {{0, 0}, {2, 2}, {4, 4}, {6, 6}};
static const kv_move apart = {apart_pairs, NUM(apart_pairs), 0, 0, 3};

/* Memory and a file of 7 blocks of 24 KiB. */
typedef file_pair sides;
#define sides_close file_pair_close
static void sides_open(sides *sides, uint64_t flags) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    file_pair_open(sides, &config, &config, NULL, flags);
}

static kvmem_transfer *create(sides *sides, bool to_file, uint32_t path) {
    return file_pair_transfer(sides, to_file, KV_OPTIONS(&all, it.path = path));
}

/* It ends with this status and errno; 0 for a failure of the library's own finding. */
static void expect_failure(kvmem_transfer *transfer, kvmem_status status, int code, const char *part) {
    RUN_ENDS(status, part, transfer);
    if (code != 0) CHECK_CAUSE(KVMEM_DOMAIN_ERRNO, code);
    EXPECT(status, kvmem_transfer_poll(transfer, ERR));
}

/* Runs it well, in both directions. */
static void expect_to_work(sides *sides, uint32_t path) {
    file_pair_run(sides, true, &all, path);
    file_pair_run(sides, false, &all, path);
}

static const uint64_t modes[] = {0, KVMEM_DISK_BUFFERED};
static const uint32_t ways[] = {KVMEM_PATH_PREAD, KVMEM_PATH_URING};

static size_t num_ways(void) { return can_test_io_uring() ? 2 : 1; }

/* A read that the file can't serve is an error, not data: at a page, within one, and of an empty file. */
TEST(a_file_cut_short_is_an_error) {
    for (size_t i = 0; i < NUM(modes) * num_ways(); i++) {
        const uint64_t lengths[] = {3 * 4096 + 24576, 5 * 4096 + 24576 + 777, 0};
        for (size_t k = 0; k < NUM(lengths); k++) {
            OPENED(sides, sides, modes[i % NUM(modes)]);
            OWNED(kvmem_transfer) transfer = create(&sides, false, ways[i / NUM(modes)]);
            file_side_truncate(&sides.file, lengths[k]);
            expect_failure(transfer, KVMEM_STATUS_IO, 0, "truncated");
            file_side_truncate(&sides.file, sides.file.model.size);
            /* Of a file that has its length, if not its bytes. */
            RUN(transfer);
        }
    }
}

/* A transfer that was cut short by a failure reports so to its queue, with no bytes. */
TEST(the_queue_hears_of_a_failure) {
    for (size_t i = 0; i < num_ways(); i++) {
        CLEANUP(sides_close) sides sides;
        sides_open(&sides, KVMEM_DISK_BUFFERED);
        OWN(kvmem_queue, queue, kvmem_queue_create);
        OWNED(kvmem_transfer) transfer = file_pair_transfer(
            &sides, false, KV_OPTIONS(&all, it.path = ways[i], it.queue = queue, it.user_data = 7));
        file_side_truncate(&sides.file, 8192);
        EXPECT_OK(kvmem_transfer_submit(transfer, ERR));
        const kvmem_completion completion = next_completion(queue);
        CHECK_EQ(completion.user_data, 7);
        CHECK_EQ(completion.status, KVMEM_STATUS_IO);
        CHECK_EQ(completion.bytes, 0);
    }
}

/* The process may write no further than the middle of the file: the kernel writes a part, then refuses. It
   also sends SIGXFSZ, whose default action would end the child. */
static void no_room_in_the_middle(void) {
    for (size_t i = 0; i < NUM(modes) * num_ways(); i++) {
        CLEANUP(sides_close) sides sides;
        sides_open(&sides, modes[i % NUM(modes)]);
        OWNED(kvmem_transfer) transfer = create(&sides, true, ways[i / NUM(modes)]);
        const struct rlimit little = {sides.file.model.size / 2, RLIM_INFINITY};
        const struct rlimit plenty = {RLIM_INFINITY, RLIM_INFINITY};
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
        expect_failure(transfer, KVMEM_STATUS_OUT_OF_MEMORY, EFBIG, "EFBIG");
        CHECK_HAS(test_last_message(), "RLIMIT_FSIZE");
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &plenty), 0);
        expect_to_work(&sides, ways[i / NUM(modes)]);
    }
}

TEST_CALL(there_is_no_room_in_the_middle, in_a_forked_child(no_room_in_the_middle))

static int injected;
static kvmem_status expected_of_it;

/* The file's second half can't be read or written. The threads that do it start later, and have the
 * filter. */
static void answer_in_the_middle(void) {
    OPENED(sides, sides, KVMEM_DISK_BUFFERED);
    const kvmem_transfer_options options = WITH(kv_transfer_options(&apart), it.path = KVMEM_PATH_PREAD);
    OWNED(kvmem_transfer) write = file_pair_transfer(&sides, true, &options);
    OWNED(kvmem_transfer) read = file_pair_transfer(&sides, false, &options);
    CHECK_EQ(transfer_info(read).num_requests, NUM(apart_pairs));
    const kv_side *model = &sides.file.model;
    const uint32_t middle = (uint32_t)(model->starts[0] + 4 * kv_block_stride(&model->config));
    refuse_system_call_from(SYS_pwritev, middle, injected);
    refuse_system_call_from(SYS_preadv, middle, injected);
    expect_failure(write, expected_of_it, injected, injected == ENOSPC ? "bytes are free" : "write");
    expect_failure(read, expected_of_it, injected, "read");
}

TEST(what_the_kernel_answers_is_kept) {
    static const struct {
        int code;
        kvmem_status status;
    } answers[] = {
        {EIO, KVMEM_STATUS_IO},
        {ENOSPC, KVMEM_STATUS_OUT_OF_MEMORY},
        {EDQUOT, KVMEM_STATUS_OUT_OF_MEMORY},
        {EPERM, KVMEM_STATUS_PERMISSION_DENIED},
        {EAGAIN, KVMEM_STATUS_IO},
        {EINTR, KVMEM_STATUS_IO},
    };
    for (size_t i = 0; i < NUM(answers); i++) {
        injected = answers[i].code;
        expected_of_it = answers[i].status;
        in_a_forked_child(answer_in_the_middle);
    }
}

static const char *said_of_it;

/* What a container without io_uring answers, and a kernel without memory for a ring. */
static void without_a_ring(void) {
    OPENED(sides, sides, 0);
    refuse_system_call(SYS_io_uring_setup, injected);
    CHECK(!has_io_uring());
    OWNED(kvmem_transfer) transfer = create(&sides, true, 0);
    CHECK_EQ(transfer_info(transfer).path, KVMEM_PATH_PREAD);
    CHECK_HAS(kv_explained(transfer, NULL), said_of_it);
    expect_to_work(&sides, 0);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "io_uring", kvmem_transfer_create, sides.host.layout,
           sides.file.model.layout, KV_OPTIONS(&all, it.path = KVMEM_PATH_URING));
}

TEST(without_io_uring_threads_move_the_same_bytes) {
    static const int answers[] = {ENOSYS, EPERM, ENOMEM, EMFILE};
    static const char *const said[NUM(answers)] = {"the kernel has no io_uring", "io_uring is not permitted",
                                                   "RLIMIT_MEMLOCK", "RLIMIT_NOFILE"};
    /* Without limits there is nothing to say of them. */
    struct rlimit before;
    CHECK_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    const rlim_t most = (rlim_t)64 << 20;
    const struct rlimit lowered = {before.rlim_cur < most ? before.rlim_cur : most, before.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &lowered), 0);
    for (size_t i = 0; i < NUM(answers); i++) {
        injected = answers[i];
        said_of_it = said[i];
        in_a_forked_child(without_a_ring);
    }
    CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

/* A filter that lets a ring be made, and not used, is found out before it matters. */
static void a_ring_that_does_not_work(void) {
    OPENED(sides, sides, 0);
    refuse_system_call(SYS_io_uring_enter, EPERM);
    expect_to_work(&sides, 0);
    OWNED(kvmem_transfer) transfer = create(&sides, true, 0);
    CHECK_EQ(transfer_info(transfer).path, KVMEM_PATH_PREAD);
}

TEST_CALL(a_ring_that_does_not_work_is_not_taken, in_a_forked_child(a_ring_that_does_not_work))

/* One that stops working fails what was to go through it, and is not taken again. */
static void a_ring_taken_away(void) {
    OPENED(sides, sides, 0);
    OWNED(kvmem_transfer) transfer = create(&sides, true, KVMEM_PATH_URING);
    refuse_system_call(SYS_io_uring_enter, EPERM);
    expect_failure(transfer, KVMEM_STATUS_PERMISSION_DENIED, EPERM, "io_uring");
    expect_failure(transfer, KVMEM_STATUS_IO, 0, "create the transfer again");
    expect_to_work(&sides, 0);
}

TEST(a_ring_taken_away_is_an_error) {
    if (!has_io_uring()) SKIP("io_uring: this kernel has none, or does not permit it to this process");
    in_a_forked_child(a_ring_taken_away);
}

static sides parents;

static void in_the_child(void) {
    REFUSE(KVMEM_STATUS_INVALID_STATE, "", kvmem_transfer_create, parents.host.layout,
           parents.file.model.layout, KV_OPTIONS(&all));
    OPENED(sides, sides, 0);
    OWNED(kvmem_transfer) transfer = create(&sides, true, 0);
    CHECK_EQ(transfer_info(transfer).path, has_io_uring() ? KVMEM_PATH_URING : KVMEM_PATH_PREAD);
    expect_to_work(&sides, 0);
    expect_to_work(&sides, KVMEM_PATH_PREAD);
}

/* The child has a ring and threads of its own; the parent goes on with its. */
TEST(a_forked_child_moves_blocks_of_its_own) {
    sides_open(&parents, 0);
    for (int i = 0; i < 3; i++) {
        expect_to_work(&parents, 0);
        expect_to_work(&parents, KVMEM_PATH_PREAD);
        in_a_forked_child(in_the_child);
    }
    expect_to_work(&parents, 0);
    sides_close(&parents);
}

/* The ring and what wakes its thread are there while a disk layout is, and no longer than its last run. */
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
        sched_yield(); /* to the thread that had the ring; this case has a deadline */
    }
}
