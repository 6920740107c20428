// SPDX-License-Identifier: Apache-2.0
// What a caller, another program or a file system can do wrong to a store: each is refused or survived, and named.
#include "harness.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BLOCKS 7
static const uint32_t ids[BLOCKS] = {0, 1, 2, 3, 4, 5, 6};

static kvmem_store *open_store(const char *path) {
    store_setup setup;
    store_setup_init(&setup, path, REF(kv_aligned_config(&kv_kinds[0])));
    return MADE(kvmem_store, kvmem_store_open, &setup.options, PATIENCE);
}

static void refuse(const char *path, kvmem_status status, const char *part) {
    store_setup setup;
    store_setup_init(&setup, path, REF(kv_aligned_config(&kv_kinds[0])));
    REFUSE(status, part, kvmem_store_open, &setup.options, PATIENCE);
}

static uint64_t stored(const kvmem_store *store) {
    GET(kvmem_store_info, info, kvmem_store_get_info, store);
    return info.num_stored;
}

/* Leaves a closed store with the blocks of `source`. */
static void fill(const char *path, const kv_side *source) {
    OWNED(kvmem_store) store = open_store(path);
    size_t moved = 0;
    EXPECT_OK(store_put(store, source->layout, 0, ids, BLOCKS, &moved));
    CHECK_EQ(moved, BLOCKS);
}

static kvmem_status start(kvmem_store *store, const kvmem_layout *layout, const kvmem_store_blocks *what, bool puts,
                          kvmem_transfer **transfer, size_t *moved) {
    return (puts ? kvmem_store_put : kvmem_store_get)(store, layout, NULL, what, transfer, moved, ERR);
}

TEST(keys_have_16_to_64_bytes_in_every_function) {
    static const size_t sizes[] = {0, 15, 65};
    SCRATCH_FILE(path, "store");
    OPENED(kv_side, side, REF(kv_aligned_config(&kv_kinds[0])), NULL, 1);
    OWNED(kvmem_store) store = open_store(path);
    const unsigned char key[65] = {1};
    for (size_t i = 0; i < NUM(sizes); i++) {
        const size_t size = sizes[i];
        const char *part = TEXT("a key has %zu bytes, it must have 16 to 64", size);
        kvmem_store_blocks what = OPTIONS(kvmem_store_blocks, it.keys = key, it.key_size = size, it.num_keys = 1, it.blocks = ids,
                                          it.num_blocks = 1);
        kvmem_transfer *transfer = NULL;
        size_t moved = 0;
        uint64_t number = 0;
        uint8_t found = 0;
        for (int puts = 0; puts < 2; puts++)
            EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, part, start(store, side.layout, &what, puts, &transfer, &moved));
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, part, kvmem_store_contains(store, key, size, 1, &found, ERR));
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, part, kvmem_store_pin(store, key, size, 1, &number, ERR));
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, part, kvmem_store_unpin(store, key, size, 1, &number, ERR));
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, part,
                       kvmem_store_remove(store, key, size, 1, PATIENCE, &number, ERR));
    }
}

TEST(a_value_that_one_identity_lacks_is_named) {
    SCRATCH_FILE(path, "store");
    kvmem_store_destroy(open_store(path));
    store_setup setup;
    store_setup_init(&setup, path, REF(kv_aligned_config(&kv_kinds[0])));
    setup.identity[1] = (kvmem_store_value){"revision", "7", 1};
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "dtype is 'bf16' in the store and missing here", kvmem_store_open, &setup.options,
           PATIENCE);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "revision is missing in the store and '7' here", kvmem_store_open, &setup.options,
           PATIENCE);
    setup.identity[1].name = "model";
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "names 'model' twice", kvmem_store_open, &setup.options, PATIENCE);
}

/* Moves a file of one store to another one. */
static void replace(const char *file, const char *from, const char *to) {
    CHECK_EQ(rename(TEXT("%s/%s", from, file), TEXT("%s/%s", to, file)), 0);
}

/* With another identity: then no process writes the store. */
TEST(a_writer_that_is_refused_leaves_its_readers_what_they_had) {
    SCRATCH_FILE(path, "store");
    KV_SIDES(source, destination, kv_aligned_config(&kv_kinds[0]), kv_aligned_config(&kv_kinds[0]));
    fill(path, &source);
    store_setup setup;
    store_setup_init(&setup, path, REF(kv_aligned_config(&kv_kinds[0])));
    setup.options.flags = KVMEM_DISK_OPEN_EXISTING | KVMEM_DISK_READ_ONLY;
    setup.options.eviction = KVMEM_EVICTION_CALLER;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "eviction is 1, which only the writer of a store chooses", kvmem_store_open, &setup.options,
           PATIENCE);
    setup.options.eviction = 0;
    OWN(kvmem_store, before, kvmem_store_open, &setup.options, PATIENCE);
    setup.options.flags = 0;
    setup.identity[0].value = "qwenn";
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "model is 'llama' in the store", kvmem_store_open, &setup.options, PATIENCE);
    store_setup_init(&setup, path, REF(kv_aligned_config(&kv_kinds[0])));
    setup.options.flags = KVMEM_DISK_OPEN_EXISTING | KVMEM_DISK_READ_ONLY;
    OWN(kvmem_store, after, kvmem_store_open, &setup.options, PATIENCE);
    kvmem_store *const readers[] = {before, after};
    for (size_t i = 0; i < NUM(readers); i++) {
        size_t moved = 0;
        EXPECT_OK(kvmem_store_flush(readers[i], PATIENCE, ERR));
        EXPECT_OK(store_get(readers[i], destination.layout, 0, ids, BLOCKS, &moved));
        CHECK_EQ(moved, BLOCKS);
    }
}

TEST(files_of_another_store_are_refused) {
    SCRATCH_FILE(path, "store");
    SCRATCH_FILE(other, "other");
    KV_SIDES(one, two, kv_aligned_config(&kv_kinds[0]), kv_aligned_config(&kv_kinds[0]));
    fill(path, &one);
    fill(other, &two);
    const char *own = TEXT("%s/own", path);
    CHECK_EQ(rename(TEXT("%s/blocks.0", path), own), 0);
    replace("blocks.0", other, path);
    refuse(path, KVMEM_STATUS_CORRUPT, "blocks.0 of the store was cut or replaced");
    CHECK_EQ(rename(own, TEXT("%s/blocks.0", path)), 0);
    {
        OWNED(kvmem_store) store = open_store(path);
        size_t found = 0;
        EXPECT_OK(store_get(store, two.layout, 0, ids, BLOCKS, &found));
        CHECK_EQ(found, BLOCKS);
    }
    replace("store", other, path);
    refuse(path, KVMEM_STATUS_CORRUPT, "belongs to another store");
}

TEST(blocks_without_a_header_are_no_new_store) {
    SCRATCH_FILE(path, "store");
    OPENED(kv_side, side, REF(kv_aligned_config(&kv_kinds[0])), NULL, 1);
    fill(path, &side);
    CHECK_EQ(rename(TEXT("%s/store", path), TEXT("%s/moved", path)), 0);
    const size_t size = file_length(TEXT("%s/index.0", path));
    refuse(path, KVMEM_STATUS_CORRUPT, "the file store is missing");
    CHECK_HAS(test_last_message(), "restore its files from a copy, or remove the folder");
    CHECK_EQ(file_length(TEXT("%s/index.0", path)), size);
    CHECK_EQ(rename(TEXT("%s/moved", path), TEXT("%s/store", path)), 0);
    OWNED(kvmem_store) store = open_store(path);
    CHECK_EQ(stored(store), BLOCKS);
}

TEST(other_files_in_the_folder_stay) {
    SCRATCH_FILE(path, "store");
    kvmem_store_destroy(open_store(path));
    const char *notes = TEXT("%s/notes.txt", path);
    write_file(notes, "mine", 4);
    kvmem_store_destroy(open_store(path));
    CHECK_EQ(file_length(notes), 4);
}

TEST(an_index_that_was_cut_or_has_more_bytes_is_read_up_to_its_last_record) {
    static const struct {
        off_t change;
        uint64_t stored;
    } cases[] = {{-1, BLOCKS - 1}, {-256, BLOCKS - 1}, {-257, BLOCKS - 2}, {1, BLOCKS}, {4096, BLOCKS}};
    OPENED(kv_side, source, REF(kv_aligned_config(&kv_kinds[0])), NULL, 1);
    for (size_t i = 0; i < NUM(cases); i++) {
        SCRATCH_FILE(path, "store");
        fill(path, &source);
        const char *index = TEXT("%s/index.0", path);
        const off_t length = (off_t)file_length(index);
        CHECK_EQ(truncate(index, length + cases[i].change), 0);
        OWNED(kvmem_store) store = open_store(path);
        CHECK_EQ(stored(store), cases[i].stored);
        CHECK_EQ(file_length(index), 256 * (1 + cases[i].stored));
    }
}

TEST(a_missing_file_is_named) {
    static const char *const files[] = {"index.0", "blocks.0"};
    OPENED(kv_side, source, REF(kv_aligned_config(&kv_kinds[0])), NULL, 1);
    for (size_t i = 0; i < NUM(files); i++) {
        SCRATCH_FILE(path, "store");
        fill(path, &source);
        CHECK_EQ(unlink(TEXT("%s/%s", path, files[i])), 0);
        refuse(path, KVMEM_STATUS_CORRUPT, files[i]);
    }
}

static const char *shared_path;

static void open_as_nobody(void) {
    if (geteuid() == 0) CHECK_EQ(setresuid(65534, 65534, 65534), 0);
    refuse(shared_path, KVMEM_STATUS_PERMISSION_DENIED, shared_path);
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, shared_path, kvmem_store_describe, shared_path);
}

TEST(a_folder_without_permission_is_named) {
    SCRATCH_FILE(path, "store");
    kvmem_store_destroy(open_store(path));
    CHECK_EQ(chmod(path, 0), 0);
    shared_path = path;
    in_a_forked_child(open_as_nobody);
    CHECK_EQ(chmod(path, 0700), 0);
}

static void open_on_a_read_only_file_system(void) {
    fail_system_call(SYS_openat, EROFS);
    refuse(shared_path, KVMEM_STATUS_PERMISSION_DENIED, shared_path);
}

TEST(an_existing_store_on_a_read_only_file_system_is_named) {
    SCRATCH_FILE(path, "store");
    kvmem_store_destroy(open_store(path));
    shared_path = path;
    in_a_forked_child(open_on_a_read_only_file_system);
}

TEST(a_path_that_is_no_folder_is_refused) {
    SCRATCH_FILE(path, "file");
    write_file(path, "text", 4);
    refuse(path, KVMEM_STATUS_INVALID_ARGUMENT, path);
    refuse(TEXT("%s/below/it", path), KVMEM_STATUS_INVALID_ARGUMENT, path);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, path, kvmem_store_describe, path);
}

TEST(a_clock_that_was_set_back_makes_no_negative_age) {
    SCRATCH_FILE(path, "store");
    kvmem_store_destroy(open_store(path));
    const struct timespec later[2] = {{.tv_sec = 4000000000}, {.tv_sec = 4000000000}};
    CHECK_EQ(utimensat(AT_FDCWD, TEXT("%s/store", path), later, 0), 0);
    OWN(kvmem_blob, text, kvmem_store_describe, path);
    CHECK_HAS(kvmem_blob_data(text), "created    0 seconds ago");
}

TEST(a_key_that_is_given_twice_is_stored_once_and_a_block_is_filled_once) {
    SCRATCH_FILE(path, "store");
    KV_SIDES(source, destination, kv_aligned_config(&kv_kinds[0]), kv_aligned_config(&kv_kinds[0]));
    OWNED(kvmem_store) store = open_store(path);
    unsigned char keys[2 * STORE_KEY];
    memset(keys, 7, sizeof(keys));
    kvmem_store_blocks what = OPTIONS(kvmem_store_blocks, it.keys = keys, it.key_size = STORE_KEY, it.num_keys = 2,
                                      it.blocks = ids, it.num_blocks = 2, it.flags = KVMEM_STORE_UNRELATED);
    kvmem_transfer *transfer = NULL;
    size_t moved = 0;
    EXPECT_OK(kvmem_store_put(store, source.layout, NULL, &what, &transfer, &moved, ERR));
    CHECK_EQ(moved, 1);
    EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
    DESTROYED(kvmem_transfer, transfer);
    what.flags = 0;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "its own parent",
                   kvmem_store_put(store, source.layout, NULL, &what, &transfer, &moved, ERR));
    const uint32_t same[2] = {3, 3};
    what.blocks = same;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "blocks[0] and blocks[1] are 3, and a get fills a block once",
                   kvmem_store_get(store, destination.layout, NULL, &what, &transfer, &moved, ERR));
    kv_side_check(&destination);
    CHECK_EQ(stored(store), 1);
}

TEST(a_store_may_be_destroyed_while_a_get_is_in_flight) {
    const kv_move all = KV_MOVE(3, {0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {6, 6});
    SCRATCH_FILE(path, "store");
    KV_SIDES(source, destination, kv_aligned_config(&kv_kinds[0]), kv_aligned_config(&kv_kinds[1]));
    fill(path, &source);
    kvmem_store *store = open_store(path);
    unsigned char keys[BLOCKS * STORE_KEY];
    store_keys(keys, 0, BLOCKS);
    const kvmem_store_blocks what = OPTIONS(kvmem_store_blocks, it.keys = keys, it.key_size = STORE_KEY, it.num_keys = BLOCKS,
                                            it.blocks = ids, it.num_blocks = BLOCKS);
    kvmem_transfer *transfer = NULL;
    size_t moved = 0;
    EXPECT_OK(kvmem_store_get(store, destination.layout, NULL, &what, &transfer, &moved, ERR));
    DESTROYED(kvmem_store, store);
    EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
    DESTROYED(kvmem_transfer, transfer);
    kv_side_check_moved(&destination, &source, &all);
    kvmem_store_destroy(open_store(path)); /* the end of the run has closed it */
}

TEST(a_put_by_layer_is_stored_and_a_get_by_layer_is_refused) {
    const kv_move two = KV_MOVE(3, {0, 0}, {1, 1});
    SCRATCH_FILE(path, "store");
    KV_SIDES(source, destination, kv_aligned_config(&kv_kinds[1]), kv_aligned_config(&kv_kinds[2]));
    OWNED(kvmem_store) store = open_store(path);
    unsigned char keys[2 * STORE_KEY];
    store_keys(keys, 0, 2);
    const kvmem_store_blocks what = OPTIONS(kvmem_store_blocks, it.keys = keys, it.key_size = STORE_KEY, it.num_keys = 2,
                                            it.blocks = ids, it.num_blocks = 2);
    const kvmem_transfer_options options = OPTIONS(kvmem_transfer_options, it.flags = KVMEM_TRANSFER_BY_LAYER);
    kvmem_transfer *transfer = NULL;
    size_t moved = 0;
    EXPECT_OK(kvmem_store_put(store, source.layout, &options, &what, &transfer, &moved, ERR));
    EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
    DESTROYED(kvmem_transfer, transfer);
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "KVMEM_TRANSFER_BY_LAYER",
                   kvmem_store_get(store, destination.layout, &options, &what, &transfer, &moved, ERR));
    EXPECT_OK(store_get(store, destination.layout, 0, ids, 2, &moved));
    kv_side_check_moved(&destination, &source, &two);
}
