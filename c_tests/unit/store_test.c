// SPDX-License-Identifier: Apache-2.0
// Stores: blocks in all orders survive a restart; what is missing, damaged, full or misused is reported.
#include "harness.h"
#include "prometheus.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BLOCKS 7
static const uint32_t ids[BLOCKS] = {0, 1, 2, 3, 4, 5, 6};
static const kv_move all = KV_MOVE(3, {0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {6, 6});

/* A store whose slots are as many as the blocks of the layouts here. */
static kvmem_store *open_store(const char *path, uint32_t durability) {
    store_setup setup;
    store_setup_init(&setup, path, REF(kv_aligned_config(&kv_kinds[0])));
    setup.options.durability = durability;
    return MADE(kvmem_store, kvmem_store_open, &setup.options, PATIENCE);
}

static kvmem_store_info info_of(const kvmem_store *store) {
    GET(kvmem_store_info, info, kvmem_store_get_info, store);
    return info;
}

/* Puts blocks of `source` under the numbers of their ids. */
static void put(kvmem_store *store, const kv_side *source, size_t first, size_t count) {
    size_t moved = 99;
    EXPECT_OK(store_put(store, source->layout, first, ids + first, count, &moved));
    CHECK_EQ(moved, count);
}

TEST(blocks_survive_a_restart_in_all_orders_and_modes) {
    EACH_TWO_KV_KINDS(from, to) {
        for (uint32_t durability = KVMEM_DURABILITY_STRICT; durability <= KVMEM_DURABILITY_NONE; durability++) {
            SCRATCH_FILE(path, "store");
            KV_SIDES(source, destination, kv_aligned_config(from), kv_aligned_config(to));
            kvmem_store *store = open_store(path, durability);
            put(store, &source, 0, BLOCKS);
            EXPECT_OK(kvmem_store_flush(store, PATIENCE, ERR));
            DESTROYED(kvmem_store, store);
            OWNED(kvmem_store) again = open_store(path, durability);
            CHECK_EQ(info_of(again).num_stored, BLOCKS);
            size_t found = 0;
            EXPECT_OK(store_get(again, destination.layout, 0, ids, BLOCKS, &found));
            CHECK_EQ(found, BLOCKS);
            kv_side_check_moved(&destination, &source, &all);
        }
    }
}

TEST(a_get_takes_the_first_keys_up_to_one_that_is_missing) {
    SCRATCH_FILE(path, "store");
    KV_SIDES(source, destination, kv_aligned_config(&kv_kinds[0]), kv_aligned_config(&kv_kinds[1]));
    OWNED(kvmem_store) store = open_store(path, KVMEM_DURABILITY_STRICT);
    put(store, &source, 0, 2);
    put(store, &source, 3, 2);
    size_t found = 99;
    EXPECT_OK(store_get(store, destination.layout, 0, ids, BLOCKS, &found));
    CHECK_EQ(found, 2);
    const kv_move two = KV_MOVE(3, {0, 0}, {1, 1});
    kv_side_check_moved(&destination, &source, &two);
    EXPECT_OK(store_get(store, destination.layout, 2, ids, 2, &found)); /* nothing moves, and there is no transfer */
    CHECK_EQ(found, 0);
    kv_side_check(&destination);
    CHECK(store_has(store, 4) && !store_has(store, 2));
    const kvmem_store_info info = info_of(store);
    CHECK_EQ(info.num_hits, 2);
    CHECK_EQ(info.num_misses, 7);
    size_t series;
    CHECK_EQ(prometheus_sum("kvmem_store_events_total", "event=\"miss\"", &series), 7);
    CHECK_EQ(prometheus_sum("kvmem_store_events_total", "event=\"hit\"", &series), 2);
    CHECK_EQ(prometheus_sum("kvmem_store_slots", "state=\"stored\"", &series), info.num_stored);
    CHECK_EQ(prometheus_sum("kvmem_store_slots", "state=\"free\"", &series), info.num_slots - info.num_stored);
}

/* A path may have any character. Two stores can have one path. */
TEST(statistics_report_each_store_with_its_path) {
    SCRATCH_FILE(path, "a \"store\\\n");
    KV_SIDES(source, destination, kv_aligned_config(&kv_kinds[0]), kv_aligned_config(&kv_kinds[1]));
    size_t series;
    {
        OWNED(kvmem_store) store = open_store(path, KVMEM_DURABILITY_STRICT);
        put(store, &source, 0, 3);
        store_setup setup;
        store_setup_init(&setup, path, REF(kv_aligned_config(&kv_kinds[0])));
        setup.options.flags |= KVMEM_DISK_OPEN_EXISTING | KVMEM_DISK_READ_ONLY;
        OWN(kvmem_store, reader, kvmem_store_open, &setup.options, PATIENCE);
        size_t found = 0;
        EXPECT_OK(store_get(store, destination.layout, 0, ids, 2, &found));
        EXPECT_OK(store_get(reader, destination.layout, 0, ids, 1, &found));
        CHECK_EQ(found, 1);
        const uint64_t block = info_of(store).slot_size;
        CHECK_EQ(prometheus_sum("kvmem_store_bytes_total", "operation=\"put\"", &series), 3 * block);
        CHECK_EQ(series, 1);
        CHECK_EQ(prometheus_sum("kvmem_store_bytes_total", "operation=\"get\"", &series), 3 * block);
        CHECK_EQ(series, 2);
        CHECK_EQ(prometheus_sum("kvmem_store_runs_total", "operation=\"get\",outcome=\"ok\"", &series), 2);
        prometheus_sum("kvmem_store_slots", "state=\"stored\"", &series);
        CHECK_EQ(series, 2);
        OWN(kvmem_blob, text, kvmem_statistics_text);
        CHECK_HAS(kvmem_blob_data(text), "/a \\\"store\\\\\\n\",id=\"");
    }
    prometheus_sum("kvmem_store_slots", "", &series);
    CHECK_EQ(series, 0);
}

TEST(a_key_that_is_stored_keeps_its_bytes) {
    SCRATCH_FILE(path, "store");
    KV_SIDES(source, destination, kv_aligned_config(&kv_kinds[0]), kv_aligned_config(&kv_kinds[0]));
    OWNED(kvmem_store) store = open_store(path, KVMEM_DURABILITY_STRICT);
    put(store, &source, 0, BLOCKS);
    size_t moved = 99;
    EXPECT_OK(store_put(store, destination.layout, 0, ids, BLOCKS, &moved)); /* with other bytes */
    CHECK_EQ(moved, 0);
    EXPECT_OK(store_get(store, destination.layout, 0, ids, BLOCKS, &moved));
    kv_side_check_moved(&destination, &source, &all);
}

TEST(the_queue_reports_a_put_and_its_transfer_is_not_repeated) {
    SCRATCH_FILE(path, "store");
    OPENED(kv_side, source, REF(kv_aligned_config(&kv_kinds[0])), NULL, 1);
    OWNED(kvmem_store) store = open_store(path, KVMEM_DURABILITY_STRICT);
    OWN(kvmem_queue, queue, kvmem_queue_create);
    unsigned char keys[2 * STORE_KEY];
    store_keys(keys, 0, 2);
    const kvmem_store_blocks what = OPTIONS(kvmem_store_blocks, it.keys = keys, it.key_size = STORE_KEY, it.num_keys = 2,
                                            it.blocks = ids, it.num_blocks = 2, it.user_data = 77);
    const kvmem_transfer_options options = OPTIONS(kvmem_transfer_options, it.queue = queue);
    size_t moved = 0;
    OWNED(kvmem_transfer) transfer = NULL;
    EXPECT_OK(kvmem_store_put(store, source.layout, &options, &what, &transfer, &moved, ERR));
    const kvmem_completion completion = next_completion(queue);
    CHECK_EQ(completion.user_data, 77);
    CHECK_EQ(completion.status, KVMEM_STATUS_OK);
    CHECK(store_has(store, 0) && store_has(store, 1));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "kvmem_store_put", kvmem_transfer_submit(transfer, NULL, ERR));
}

TEST(leaves_are_evicted_first_and_pinned_blocks_stay) {
    SCRATCH_FILE(path, "store");
    OPENED(kv_side, source, REF(kv_aligned_config(&kv_kinds[0])), NULL, 1);
    OWNED(kvmem_store) store = open_store(path, KVMEM_DURABILITY_STRICT);
    put(store, &source, 0, BLOCKS); /* one sequence */
    unsigned char key[STORE_KEY];
    store_keys(key, 6, 1);
    uint64_t count = 0;
    EXPECT_OK(kvmem_store_pin(store, key, STORE_KEY, 1, &count, ERR));
    CHECK_EQ(count, 1);
    size_t moved = 0;
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "pinned", store_put(store, source.layout, 10, ids, 1, &moved));
    EXPECT_OK(kvmem_store_unpin(store, key, STORE_KEY, 1, &count, ERR));
    EXPECT_OK(store_put(store, source.layout, 10, ids, 1, &moved));
    CHECK(store_has(store, 10) && store_has(store, 0) && store_has(store, 5) && !store_has(store, 6));
    CHECK_EQ(info_of(store).num_evicted, 1);
}

TEST(without_eviction_the_caller_removes_blocks) {
    SCRATCH_FILE(path, "store");
    OPENED(kv_side, source, REF(kv_aligned_config(&kv_kinds[0])), NULL, 1);
    OWNED(kvmem_store) store = store_open_without_eviction(path);
    put(store, &source, 0, BLOCKS);
    size_t moved = 0;
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_MEMORY, "(of 7 slots, 7 are used, 0 free and 0 retired); remove blocks by kvmem_store_remove",
                   store_put(store, source.layout, 10, ids, 1, &moved));
    unsigned char keys[2 * STORE_KEY];
    store_keys(keys, 6, 2);
    uint64_t removed = 0;
    EXPECT_OK(kvmem_store_remove(store, keys, STORE_KEY, 2, PATIENCE, &removed, ERR));
    CHECK_EQ(removed, 1);
    EXPECT_OK(store_put(store, source.layout, 10, ids, 1, &moved));
    CHECK(store_has(store, 10) && !store_has(store, 6));
}

TEST(blocks_are_listed_with_their_parents) {
    SCRATCH_FILE(path, "store");
    OPENED(kv_side, source, REF(kv_aligned_config(&kv_kinds[0])), NULL, 1);
    OWNED(kvmem_store) store = open_store(path, KVMEM_DURABILITY_STRICT);
    put(store, &source, 0, 5);
    kvmem_store_entry entries[2];
    size_t count = 0, all_of_them = 0;
    uint64_t slot = 0;
    do {
        EXPECT_OK(kvmem_store_list(store, slot, entries, 2, &count, ERR));
        for (size_t i = 0; i < count; i++) {
            const uint64_t number = entries[i].key[0];
            CHECK_EQ(entries[i].key_size, STORE_KEY);
            CHECK_EQ(entries[i].parent_size, number == 0 ? 0 : STORE_KEY);
            if (number > 0) CHECK_EQ(entries[i].parent[0], number - 1);
            CHECK_EQ(entries[i].checksum, crc_of_block(&source, number, 0, 3));
        }
        all_of_them += count;
        if (count > 0) slot = entries[count - 1].slot + 1;
    } while (count == 2);
    CHECK_EQ(all_of_them, 5);
}

/* The slot of the block of a number. */
static uint64_t slot_of(const kvmem_store *store, uint64_t number) {
    kvmem_store_entry entries[BLOCKS];
    size_t count = 0;
    EXPECT_OK(kvmem_store_list(store, 0, entries, BLOCKS, &count, ERR));
    for (size_t i = 0; i < count; i++)
        if (entries[i].key[0] == number) return entries[i].slot;
    FAIL("block %d is not listed", (int)number);
    return 0;
}

TEST(a_damaged_block_is_a_miss_and_its_slot_is_not_used_again) {
    SCRATCH_FILE(path, "store");
    KV_SIDES(source, destination, kv_aligned_config(&kv_kinds[0]), kv_aligned_config(&kv_kinds[0]));
    kvmem_store *store = open_store(path, KVMEM_DURABILITY_STRICT);
    put(store, &source, 0, BLOCKS);
    const uint64_t slot_size = info_of(store).slot_size;
    store_damage(path, slot_of(store, 2), slot_size);
    unsigned char keys[BLOCKS * STORE_KEY];
    store_keys(keys, 0, BLOCKS);
    const kvmem_store_blocks what = OPTIONS(kvmem_store_blocks, it.keys = keys, it.key_size = STORE_KEY,
                                            it.num_keys = BLOCKS, it.blocks = ids, it.num_blocks = BLOCKS);
    kvmem_transfer *transfer = NULL;
    size_t moved = 0;
    EXPECT_OK(kvmem_store_get(store, destination.layout, NULL, &what, &transfer, &moved, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_CORRUPT, "1 of 7 blocks", kvmem_transfer_wait(transfer, PATIENCE, ERR));
    kv_expect_mismatches(transfer, REF((uint64_t)2), 1);
    DESTROYED(kvmem_transfer, transfer);
    EXPECT_OK(store_get(store, destination.layout, 0, ids, BLOCKS, &moved));
    CHECK_EQ(moved, 2); /* it is a miss now */
    store_damage(path, slot_of(store, 5), slot_size);
    uint64_t damaged = 0;
    EXPECT_OK(kvmem_store_verify(store, PATIENCE, &damaged, ERR));
    CHECK_EQ(damaged, 1);
    CHECK_EQ(info_of(store).num_damaged, 2);
    DESTROYED(kvmem_store, store);
    OWNED(kvmem_store) again = open_store(path, KVMEM_DURABILITY_STRICT);
    CHECK_EQ(info_of(again).num_retired, 2);
    CHECK_EQ(info_of(again).num_stored, 5);
}

TEST(blocks_that_cannot_be_read_are_misses) {
    SCRATCH_FILE(path, "store");
    KV_SIDES(source, destination, kv_aligned_config(&kv_kinds[0]), kv_aligned_config(&kv_kinds[0]));
    OWNED(kvmem_store) store = open_store(path, KVMEM_DURABILITY_STRICT);
    put(store, &source, 0, BLOCKS);
    CHECK_EQ(truncate(test_text("%s/blocks.0", path), 0), 0);
    size_t moved = 0;
    EXPECT(KVMEM_STATUS_CORRUPT, store_get(store, destination.layout, 0, ids, BLOCKS, &moved));
    CHECK_EQ(info_of(store).num_damaged, BLOCKS);
    EXPECT_OK(store_get(store, destination.layout, 0, ids, BLOCKS, &moved));
    CHECK_EQ(moved, 0);
}

TEST(a_store_of_another_identity_is_named_with_both_values) {
    SCRATCH_FILE(path, "store");
    kvmem_store_destroy(open_store(path, KVMEM_DURABILITY_STRICT));
    store_setup setup;
    store_setup_init(&setup, path, REF(kv_aligned_config(&kv_kinds[0])));
    setup.identity[0].value = "qwenn";
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "model is 'llama' in the store and 'qwenn' here", kvmem_store_open,
           &setup.options, PATIENCE);
    store_setup_init(&setup, path, REF(WITH(kv_aligned_config(&kv_kinds[0]), it.num_layers = 5)));
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "the store has blocks of another shape: num_layers is 3 in the file and 5 here",
           kvmem_store_open, &setup.options, PATIENCE);
    store_setup_init(&setup, path, REF(WITH(kv_aligned_config(&kv_kinds[0]), it.num_blocks = 0)));
    OWN(kvmem_store, store, kvmem_store_open, &setup.options, PATIENCE); /* with the slots that it has */
    CHECK_EQ(info_of(store).num_slots, BLOCKS);
    OWN(kvmem_blob, text, kvmem_store_describe, path);
    CHECK_HAS(kvmem_blob_data(text), "identity   model is 'llama'");
    CHECK_HAS(kvmem_blob_data(text), "writer     this process");
}

TEST(bad_arguments_are_named) {
    SCRATCH_FILE(path, "store");
    OPENED(kv_side, source, REF(kv_aligned_config(&kv_kinds[0])), NULL, 1);
    store_setup setup;
    store_setup_init(&setup, path, REF(kv_aligned_config(&kv_kinds[0])));
    setup.options.flags = KVMEM_DISK_OPEN_EXISTING;
    REFUSE(KVMEM_STATUS_NOT_FOUND, "contains no store", kvmem_store_open, &setup.options, PATIENCE);
    store_setup_init(&setup, test_text("%s/no/store", path), REF(kv_aligned_config(&kv_kinds[0])));
    REFUSE(KVMEM_STATUS_NOT_FOUND, "/no does not exist; create it first", kvmem_store_open, &setup.options, PATIENCE);
    store_setup_init(&setup, "/proc/self/status", REF(kv_aligned_config(&kv_kinds[0])));
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "give the path of a folder", kvmem_store_open, &setup.options, PATIENCE);
    store_setup_init(&setup, path, REF(kv_aligned_config(&kv_kinds[0])));
    setup.config.order = KVMEM_ORDER_LAYER_SEPARATE;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "begin with B", kvmem_store_open, &setup.options, PATIENCE);
    store_setup_init(&setup, path, REF(WITH(kv_aligned_config(&kv_kinds[0]), it.block_stride = 1 << 20)));
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "the stride of axis B (block) of a store", kvmem_store_open, &setup.options, PATIENCE);
    OWNED(kvmem_store) store = open_store(path, KVMEM_DURABILITY_STRICT);
    uint8_t found = 0;
    unsigned char keys[65] = {0};
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "15 bytes", kvmem_store_contains(store, keys, 15, 1, &found, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "65 bytes", kvmem_store_contains(store, keys, 65, 1, &found, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "keys is NULL, and num_keys is 2", kvmem_store_contains(store, NULL, 16, 2, &found, ERR));
    size_t moved = 0;
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_RANGE, "too few slots for 8 blocks (of 7 slots, 0 are used, 7 free and 0 retired); give fewer keys, or create a store", store_put(store, source.layout, 0, (uint32_t[8]){0}, 8, &moved));
    const unsigned char equal[2][STORE_KEY] = {{1}, {1}};
    const kvmem_store_blocks repeated = {.struct_size = sizeof(repeated), .keys = equal, .key_size = STORE_KEY,
        .num_keys = 2, .blocks = ids, .num_blocks = 2};
    kvmem_transfer *transfer;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "two keys in sequence are equal; give each block a key of its own",
                   kvmem_store_put(store, source.layout, NULL, &repeated, &transfer, &moved, ERR));
    OPENED(kv_side, other, REF(WITH(kv_aligned_config(&kv_kinds[0]), it.num_layers = 2)), NULL, 1);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "num_layers", store_put(store, other.layout, 0, ids, 1, &moved));
    CHECK(!store_has(store, 0));
    put(store, &source, 0, BLOCKS); /* no slot is lost */
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_RANGE, "", store_get(store, source.layout, 0, (uint32_t[]){7}, 1, &moved));
    unsigned char key[STORE_KEY];
    store_keys(key, 0, 1);
    uint64_t removed = 0;
    EXPECT_OK(kvmem_store_remove(store, key, STORE_KEY, 1, PATIENCE, &removed, ERR)); /* nothing holds it */
}

TEST(damaged_files_are_refused) {
    static const struct {
        const char *file;
        off_t size; /* added to that of the file */
        kvmem_status status;
    } changes[] = {
        {"blocks.0", -4096, KVMEM_STATUS_CORRUPT},
        {"blocks.0", 4096, KVMEM_STATUS_CORRUPT},
        {"index.0", -100000, KVMEM_STATUS_CORRUPT},
        {"store", -1, KVMEM_STATUS_CORRUPT},
        {"store", 1, KVMEM_STATUS_CORRUPT},
    };
    OPENED(kv_side, source, REF(kv_aligned_config(&kv_kinds[0])), NULL, 1);
    for (size_t i = 0; i < NUM(changes); i++) {
        SCRATCH_FILE(path, "store");
        kvmem_store *store = open_store(path, KVMEM_DURABILITY_STRICT);
        put(store, &source, 0, 2);
        DESTROYED(kvmem_store, store);
        const char *file = test_text("%s/%s", path, changes[i].file);
        const off_t size = (off_t)file_length(file) + changes[i].size;
        CHECK_EQ(truncate(file, size > 0 ? size : 0), 0);
        store_setup setup;
        store_setup_init(&setup, path, REF(kv_aligned_config(&kv_kinds[0])));
        REFUSE(changes[i].status, path, kvmem_store_open, &setup.options, PATIENCE);
        CHECK_HAS(test_last_message(), "restore its files from a copy, or remove the folder");
        if (strcmp(changes[i].file, "blocks.0") != 0) continue;
        CHECK_HAS(test_last_message(), "blocks.0 of the store was cut or replaced");
        OWN(kvmem_blob, text, kvmem_store_describe, path);
        CHECK_HAS(kvmem_blob_data(text), test_text("blocks.0 has %zu bytes, and had %zu", (size_t)size,
                                                   (size_t)(size - changes[i].size)));
    }
}

TEST(an_index_of_another_store_is_refused) {
    SCRATCH_FILE(path, "store");
    SCRATCH_FILE(other, "other");
    kvmem_store_destroy(open_store(path, KVMEM_DURABILITY_STRICT));
    kvmem_store_destroy(open_store(other, KVMEM_DURABILITY_STRICT));
    store_setup setup;
    store_setup_init(&setup, path, REF(kv_aligned_config(&kv_kinds[0])));
    char own[256], others[256];
    snprintf(own, sizeof(own), "%s/index.0", path);
    snprintf(others, sizeof(others), "%s/index.0", other);
    CHECK_EQ(rename(others, own), 0);
    REFUSE(KVMEM_STATUS_CORRUPT, "another store", kvmem_store_open, &setup.options, PATIENCE);
}

static const char *shared_path;

static void refuse_in_a_child(void) {
    store_setup setup;
    store_setup_init(&setup, shared_path, REF(kv_aligned_config(&kv_kinds[0])));
    REFUSE(KVMEM_STATUS_BUSY, test_text("process %d", (int)getppid()), kvmem_store_open, &setup.options, PATIENCE);
}

TEST(a_second_writer_is_refused_with_the_process_of_the_first) {
    SCRATCH_FILE(path, "store");
    OWNED(kvmem_store) store = open_store(path, KVMEM_DURABILITY_STRICT);
    store_setup setup;
    store_setup_init(&setup, path, REF(kv_aligned_config(&kv_kinds[0])));
    REFUSE(KVMEM_STATUS_BUSY, "this process", kvmem_store_open, &setup.options, PATIENCE);
    shared_path = path;
    in_a_forked_child(refuse_in_a_child);
}

static void without_a_writable_file_system(void) {
    store_setup setup;
    store_setup_init(&setup, shared_path, REF(kv_aligned_config(&kv_kinds[0])));
    fail_system_call(SYS_mkdirat, EROFS);
    fail_system_call(SYS_mkdir, EROFS);
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, shared_path, kvmem_store_open, &setup.options, PATIENCE);
}

TEST(a_read_only_file_system_is_reported) {
    SCRATCH_FILE(path, "store");
    shared_path = path;
    in_a_forked_child(without_a_writable_file_system);
}

TEST(a_store_on_tmpfs_works) {
    SCRATCH_FILE(unused, "store");
    char path[64];
    snprintf(path, sizeof(path), "/dev/shm/kvmem_store_%d", (int)getpid());
    OPENED(kv_side, source, REF(kv_aligned_config(&kv_kinds[0])), NULL, 1);
    OWNED(kvmem_store) store = open_store(path, KVMEM_DURABILITY_STRICT);
    static const char *const files[] = {"store", "index.0", "blocks.0", "writer"};
    for (size_t i = 0; i < NUM(files); i++) CHECK_EQ(unlink(test_text("%s/%s", path, files[i])), 0);
    CHECK_EQ(rmdir(path), 0); /* the store keeps the open files */
    (void)source;
}

static void without_space(void) {
    KV_SIDES(source, destination, kv_aligned_config(&kv_kinds[0]), kv_aligned_config(&kv_kinds[0]));
    kvmem_store *store = open_store(shared_path, KVMEM_DURABILITY_STRICT);
    put(store, &source, 0, BLOCKS);
    DESTROYED(kvmem_store, store);
    const struct rlimit none = {0, RLIM_INFINITY}, all_space = {RLIM_INFINITY, RLIM_INFINITY};
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
    store = open_store(shared_path, KVMEM_DURABILITY_STRICT);
    size_t found = 0;
    EXPECT_OK(store_get(store, destination.layout, 0, ids, BLOCKS, &found));
    CHECK_EQ(found, BLOCKS);
    kv_side_check_moved(&destination, &source, &all);
    DESTROYED(kvmem_store, store);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &all_space), 0);
}

/* The id of the process, which messages name, has no space either. */
TEST(a_store_without_space_is_opened_and_read) {
    SCRATCH_FILE(path, "store");
    shared_path = path;
    in_a_forked_child(without_space);
}

static void create_without_space(void) {
    const struct rlimit few = {3 * 4096, RLIM_INFINITY}, all_space = {RLIM_INFINITY, RLIM_INFINITY};
    store_setup setup;
    store_setup_init(&setup, shared_path, REF(kv_aligned_config(&kv_kinds[0])));
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &few), 0);
    REFUSE(KVMEM_STATUS_OUT_OF_MEMORY, "EFBIG", kvmem_store_open, &setup.options, PATIENCE);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &all_space), 0);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "contains no store", kvmem_store_describe, shared_path);
    setup.config.num_blocks = 2;
    setup.identity[0].value = "qwen2";
    OWN(kvmem_store, smaller, kvmem_store_open, &setup.options, PATIENCE);
    CHECK_EQ(info_of(smaller).num_slots, 2);
}

TEST(a_store_that_could_not_be_created_is_created_with_fewer_slots) {
    SCRATCH_FILE(path, "store");
    shared_path = path;
    in_a_forked_child(create_without_space);
}

static int injected;
static long call_to_fail;

static void a_put_fails(void) {
    SCRATCH_FILE(path, "store");
    OPENED(kv_side, source, REF(kv_aligned_config(&kv_kinds[0])), NULL, 1);
    OWNED(kvmem_store) store = open_store(path, KVMEM_DURABILITY_STRICT);
    fail_system_call_of_all_threads(call_to_fail, injected);
    size_t moved = 0;
    const kvmem_status status = store_put(store, source.layout, 0, ids, 2, &moved);
    CHECK_EQ(status, injected == ENOSPC ? KVMEM_STATUS_OUT_OF_MEMORY : KVMEM_STATUS_IO);
    CHECK(!store_has(store, 0) && !store_has(store, 1));
    CHECK_EQ(info_of(store).num_stored, 0);
    EXPECT_OK(store_get(store, source.layout, 0, ids, 2, &moved));
    CHECK_EQ(moved, 0);
}

TEST(a_put_that_cannot_be_written_is_not_visible) {
    static const long calls[] = {SYS_fdatasync, SYS_pwrite64};
    static const int errors[] = {EIO, ENOSPC};
    for (size_t i = 0; i < NUM(calls) * NUM(errors); i++) {
        call_to_fail = calls[i / NUM(errors)];
        injected = errors[i % NUM(errors)];
        in_a_forked_child(a_put_fails);
    }
}

TEST(a_store_may_be_destroyed_while_a_put_is_in_flight) {
    SCRATCH_FILE(path, "store");
    OPENED(kv_side, source, REF(kv_aligned_config(&kv_kinds[0])), NULL, 1);
    kvmem_store *store = open_store(path, KVMEM_DURABILITY_STRICT);
    unsigned char keys[BLOCKS * STORE_KEY];
    store_keys(keys, 0, BLOCKS);
    const kvmem_store_blocks what = OPTIONS(kvmem_store_blocks, it.keys = keys, it.key_size = STORE_KEY,
                                            it.num_keys = BLOCKS, it.blocks = ids, it.num_blocks = BLOCKS);
    size_t moved = 0;
    kvmem_transfer *transfer = NULL;
    EXPECT_OK(kvmem_store_put(store, source.layout, NULL, &what, &transfer, &moved, ERR));
    DESTROYED(kvmem_store, store);
    EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
    kvmem_transfer_destroy(transfer);
    OWNED(kvmem_store) again = open_store(path, KVMEM_DURABILITY_STRICT);
    CHECK_EQ(info_of(again).num_stored, BLOCKS);
}
