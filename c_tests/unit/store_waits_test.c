// SPDX-License-Identifier: Apache-2.0
// The file system of a store does not respond: each call ends at its timeout, other calls and other stores go on, and what was late ends
// when the file system responds.
#include "harness.h"
#include "held_call.h"

#include <stdatomic.h>
#include <sys/syscall.h>

#define BLOCKS 7
#define LIMIT MILLISECONDS(100)
#define READER (KVMEM_DISK_READ_ONLY | KVMEM_DISK_OPEN_EXISTING)
static const uint32_t ids[BLOCKS] = {0, 1, 2, 3, 4, 5, 6};

/* What the held thread does now. It starts all threads of kvmem here, so that none of them makes calls that are not held. */
enum { RUNNING = 99 };
static kv_side source;
static const char *path;
static kvmem_store *store;
static atomic_int status;
static atomic_bool begins, goes_on;

static kvmem_status open_store(uint32_t durability, uint64_t flags, uint64_t timeout, kvmem_store **opened) {
    store_setup setup;
    store_setup_init(&setup, path, &source.config);
    setup.options.durability = durability;
    setup.options.flags = flags;
    return kvmem_store_open(&setup.options, timeout, opened, ERR);
}

static kvmem_status open_once(void) {
    kvmem_store *opened = NULL;
    const kvmem_status outcome = open_store(0, 0, LIMIT, &opened);
    CHECK((outcome == KVMEM_STATUS_OK) == (opened != NULL));
    kvmem_store_destroy(opened);
    return outcome;
}

/* A caller that repeats the call has no thread more in each. */
static kvmem_status open_again_and_again(void) {
    const kvmem_status first = open_once();
    const size_t threads = count_directory_entries("/proc/self/task");
    for (int i = 0; i < 5; i++) EXPECT(KVMEM_STATUS_TIMED_OUT, open_once());
    CHECK_EQ(count_directory_entries("/proc/self/task"), threads);
    return first;
}

static kvmem_status moved(kvmem_status started, kvmem_transfer *transfer) {
    if (started != KVMEM_STATUS_OK) return started;
    const kvmem_status end = transfer == NULL ? KVMEM_STATUS_OK : kvmem_transfer_wait(transfer, PATIENCE, ERR);
    kvmem_transfer_destroy(transfer);
    return end;
}

static kvmem_store_blocks block_with_limit(unsigned char *key, uint64_t number) {
    store_keys(key, number, 1);
    return OPTIONS(kvmem_store_blocks, it.keys = key, it.key_size = STORE_KEY, it.num_keys = 1, it.blocks = ids,
                   it.num_blocks = 1, it.run_timeout_ns = LIMIT);
}

static kvmem_status put(void) {
    unsigned char key[STORE_KEY];
    kvmem_transfer *transfer = NULL;
    size_t count = 0;
    const kvmem_store_blocks what = block_with_limit(key, 100);
    const kvmem_status started = kvmem_store_put(store, source.layout, NULL, &what, &transfer, &count, ERR);
    return moved(started, transfer);
}

static kvmem_status get(void) {
    OPENED(kv_side, destination, REF(kv_aligned_config(&kv_kinds[0])), NULL, 9);
    unsigned char key[STORE_KEY];
    kvmem_transfer *transfer = NULL;
    size_t count = 0;
    const kvmem_store_blocks what = block_with_limit(key, 0);
    const kvmem_status started =
        kvmem_store_get(store, destination.layout, NULL, &what, &transfer, &count, ERR);
    return moved(started, transfer);
}

static kvmem_status remove_one(void) {
    unsigned char key[STORE_KEY];
    store_keys(key, 0, 1);
    uint64_t removed = 0;
    return kvmem_store_remove(store, key, STORE_KEY, 1, LIMIT, &removed, ERR);
}

static kvmem_status flush(void) { return kvmem_store_flush(store, LIMIT, ERR); }

static kvmem_status verify(void) {
    uint64_t damaged = 0;
    return kvmem_store_verify(store, LIMIT, &damaged, ERR);
}

static kvmem_status describe(void) {
    OWN(kvmem_blob, text, kvmem_store_describe, path);
    return kvmem_blob_size(text) > 0 ? KVMEM_STATUS_OK : KVMEM_STATUS_CORRUPT;
}

/* The call that reads blocks on this machine. */
enum { READS_BLOCKS = -1 };

static const struct row {
    const char *name;
    kvmem_status (*run)(void);
    long call;
    size_t stored; /* blocks before the call; without any the store is not open */
    uint32_t durability;
    uint64_t flags;
    bool has_no_timeout; /* only the calling thread waits */
} rows[] = {
    {"kvmem_store_open", open_again_and_again, SYS_fdatasync, 0, 0, 0, false},
    {"kvmem_store_put with an eviction", put, SYS_fdatasync, BLOCKS, KVMEM_DURABILITY_STRICT, 0, false},
    {"the end of kvmem_store_put", put, SYS_fdatasync, 2, KVMEM_DURABILITY_STRICT, 0, false},
    {"kvmem_store_remove", remove_one, SYS_fdatasync, 2, KVMEM_DURABILITY_STRICT, 0, false},
    {"kvmem_store_flush", flush, SYS_fdatasync, 2, KVMEM_DURABILITY_RELAXED, 0, false},
    {"kvmem_store_verify", verify, READS_BLOCKS, 2, KVMEM_DURABILITY_STRICT, 0, false},
    {"kvmem_store_flush of a reader", flush, SYS_pread64, 2, 0, READER, false},
    {"kvmem_store_get of a reader", get, SYS_pread64, 2, 0, READER, false},
    {"kvmem_store_describe", describe, SYS_pread64, 2, KVMEM_DURABILITY_STRICT, 0, true},
};

static void fill(const struct row *row) {
    size_t count = 0;
    EXPECT_OK(open_store(row->durability, 0, PATIENCE, &store));
    EXPECT_OK(store_put(store, source.layout, 0, ids, row->stored, &count));
    CHECK_EQ(count, row->stored);
    if (row->flags == 0) return;
    EXPECT_OK(kvmem_store_flush(store, PATIENCE, ERR));
    DESTROYED(kvmem_store, store);
    EXPECT_OK(open_store(row->durability, row->flags, PATIENCE, &store));
}

/* Late work has the store open until it has ended. */
static void check_sound(void) {
    AWAIT(open_store(0, 0, PATIENCE, &store) == KVMEM_STATUS_OK);
    test_forget_error();
    uint64_t damaged = 7;
    EXPECT_OK(kvmem_store_verify(store, PATIENCE, &damaged, ERR));
    CHECK_EQ(damaged, 0);
    DESTROYED(kvmem_store, store);
}

static void run_row(const struct row *row) {
    SCRATCH_FILE(folder, "store");
    path = folder;
    status = RUNNING;
    goes_on = false;
    if (row->stored > 0) fill(row);
    begins = true;
    status = (int)row->run();
    test_forget_error();
    AWAIT(goes_on);
    if (row->has_no_timeout) CHECK_EQ(status, KVMEM_STATUS_OK);
    kvmem_store_destroy(store);
    store = NULL;
    check_sound();
}

static void run_rows(void) {
    for (size_t i = 0; i < NUM(rows); i++) run_row(&rows[i]);
}

static bool has_begun(const uint64_t *arguments) {
    (void)arguments;
    return begins;
}

/* What a store says of itself needs no file. */
static void ask(kvmem_store *asked) {
    store_has(asked, 1);
    GET(kvmem_store_info, info, kvmem_store_get_info, asked);
    CHECK_EQ(info.num_slots, BLOCKS);
    kvmem_store_entry entry;
    size_t count = 0;
    EXPECT_OK(kvmem_store_list(asked, 0, &entry, 1, &count, ERR));
}

/* Without a timeout a call works on its own thread, which nothing holds. */
static void use_another_store(void) {
    SCRATCH_FILE(folder, "other");
    store_setup setup;
    store_setup_init(&setup, folder, &source.config);
    setup.options.durability = KVMEM_DURABILITY_NONE;
    OWN(kvmem_store, other, kvmem_store_open, &setup.options, KVMEM_TIMEOUT_FOREVER);
    ask(other);
    EXPECT_OK(kvmem_store_flush(other, KVMEM_TIMEOUT_FOREVER, ERR));
}

TEST(calls_end_at_their_timeout_while_the_file_system_does_not_respond) {
    kv_side_open(&source, REF(kv_aligned_config(&kv_kinds[0])), NULL, 1);
    const long reads_blocks = has_io_uring() ? SYS_io_uring_enter : SYS_pread64;
    held_calls_begin(run_rows, (long[]){SYS_fdatasync, SYS_pread64, SYS_io_uring_enter}, 3);
    for (size_t i = 0; i < NUM(rows); i++) {
        printf("        %s\n", rows[i].name);
        held_calls_next(rows[i].call == READS_BLOCKS ? reads_blocks : rows[i].call, has_begun);
        if (!rows[i].has_no_timeout) AWAIT(status != RUNNING);
        CHECK_EQ(status, rows[i].has_no_timeout ? RUNNING : KVMEM_STATUS_TIMED_OUT);
        if (store != NULL) ask(store);
        use_another_store();
        begins = false;
        goes_on = true;
    }
    held_call_end();
    kv_side_close(&source);
}
