// SPDX-License-Identifier: Apache-2.0
// Stores: blocks of every kind of memory are put, and got into every kind, in all orders.
#include "caller_context.h"
#include "engine.h"
#include "sides.h"

static const uint32_t ids[] = {0, 1, 2, 3, 4, 5, 6};
static const kvmem_block_pair same[] = {{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {6, 6}};
static const kv_move all = {same, NUM(same), 0, 0, 3};

static void put_and_get(const char *path, side *source, side *destination, uint64_t flags) {
    store_setup setup;
    store_setup_init(&setup, path, REF(kv_aligned_config(&kv_kinds[0])));
    setup.options.flags = flags;
    OWN(kvmem_store, store, kvmem_store_open, &setup.options, PATIENCE);
    size_t moved = 0;
    EXPECT_OK(store_put(store, source->model.layout, 0, ids, NUM(ids), &moved));
    CHECK_EQ(moved, NUM(ids));
    EXPECT_OK(store_get(store, destination->model.layout, 0, ids, NUM(ids), &moved));
    CHECK_EQ(moved, NUM(ids));
    side_check_moved(destination, source, &all);
    kvmem_store_entry entries[NUM(ids)];
    EXPECT_OK(kvmem_store_list(store, 0, entries, NUM(ids), &moved, ERR));
    for (size_t i = 0; i < moved; i++) CHECK_EQ(entries[i].checksum, crc_of_block(&source->model, entries[i].key[0], 0, 3));
}

/* Bytes that are encrypted in the file, through host memory. */
static void put_and_get_encrypted(const char *path, side *source, side *destination, uint64_t flags) {
    static const unsigned char key[32] = {5};
    const kvmem_store_namespace_options options =
        OPTIONS(kvmem_store_namespace_options, it.name = "tenant", it.quota = 1 << 30, it.key = key, it.key_size = sizeof key);
    store_setup setup;
    store_setup_init(&setup, path, REF(kv_aligned_config(&kv_kinds[0])));
    setup.options.flags = flags;
    OWN(kvmem_store, store, kvmem_store_open, &setup.options, PATIENCE);
    GET(kvmem_store_info, info, kvmem_store_get_info, store);
    OWN(kvmem_store, tenant, kvmem_store_open_namespace, store,
        REF(WITH(options, it.quota = info.num_slots * info.slot_size)), PATIENCE);
    size_t moved = 0;
    EXPECT_OK(store_put(tenant, source->model.layout, 0, ids, NUM(ids), &moved));
    CHECK_EQ(moved, NUM(ids));
    EXPECT_OK(store_get(store, destination->model.layout, 0, ids, NUM(ids), &moved));
    CHECK_EQ(moved, 0);
    EXPECT_OK(store_get(tenant, destination->model.layout, 0, ids, NUM(ids), &moved));
    CHECK_EQ(moved, NUM(ids));
    side_check_moved(destination, source, &all);
}

typedef void (*put_and_get_with)(const char *path, side *source, side *destination, uint64_t flags);

static void from_and_to_every_place(uint64_t flags, put_and_get_with run) {
    RETAIN_DEVICE(0);
    for (size_t i = 0; i < NUM_PLACES; i++) {
        const kvmem_layout_config from = kv_aligned_config(&kv_kinds[i % KV_NUM_KINDS]);
        const kvmem_layout_config to = kv_aligned_config(&kv_kinds[(i + 1) % KV_NUM_KINDS]);
        SCRATCH_FILE(path, "store");
        OPENED(side, source, (place)i, 0, &from, NULL, 1);
        OPENED(side, destination, (place)((i + 5) % NUM_PLACES), 0, &to, NULL, 2);
        run(path, &source, &destination, flags);
    }
}

TEST_CALL(direct_stores_from_and_to_every_place, from_and_to_every_place(0, put_and_get))
TEST_CALL(buffered_stores_from_and_to_every_place, from_and_to_every_place(KVMEM_DISK_BUFFERED, put_and_get))
TEST_CALL(encrypted_blocks_from_and_to_every_place, from_and_to_every_place(0, put_and_get_encrypted))
