// SPDX-License-Identifier: Apache-2.0
// Functions of stores while their file system does not respond.
#include "held.h"

HELD_CASES

#define BLOCKS 7
static const uint32_t ids[BLOCKS] = {0, 1, 2, 3, 4, 5, 6};

static kv_side host, target;
static store_setup setup;
static kvmem_store *store, *full, *doomed, *other, *reader, *made, *shared;
static const kvmem_store_namespace_options space = {.struct_size = sizeof space, .name = "tenant", .quota = 24576};

static kvmem_store *open_with(const char *name, uint32_t durability, uint64_t flags) {
    store_setup of_one;
    store_setup_init(&of_one, TEXT("%s/%s", held_folder(), name), REF(kv_aligned_config(&kv_kinds[0])));
    of_one.options.durability = durability;
    of_one.options.flags = flags;
    of_one.options.interval_ns = flags ? KVMEM_TIMEOUT_FOREVER : 0; /* a reader makes calls only in its rows */
    return MADE(kvmem_store, kvmem_store_open, &of_one.options, PATIENCE);
}

static kvmem_store *open_store(const char *name, uint32_t durability, size_t stored) {
    size_t moved = 0;
    kvmem_store *made = open_with(name, durability, 0);
    if (stored > 0) EXPECT_OK(store_put(made, host.layout, 0, ids, stored, &moved));
    return made;
}

void held_open(void) {
    kv_side_open(&host, REF(kv_aligned_config(&kv_kinds[0])), NULL, 1);
    kv_side_open(&target, REF(kv_aligned_config(&kv_kinds[1])), NULL, 2);
    static char path[160];
    snprintf(path, sizeof(path), "%s/new", held_folder());
    store_setup_init(&setup, path, REF(kv_aligned_config(&kv_kinds[0])));
    store = open_store("store", KVMEM_DURABILITY_RELAXED, 2);
    shared = open_with("shared", KVMEM_DURABILITY_RELAXED, 0);
    full = open_store("full", KVMEM_DURABILITY_STRICT, BLOCKS);
    doomed = open_store("doomed", KVMEM_DURABILITY_RELAXED, 1);
    kvmem_store_destroy(open_store("left", KVMEM_DURABILITY_RELAXED, 1));
    other = open_store("other", KVMEM_DURABILITY_STRICT, 2);
    kvmem_store_destroy(open_store("read", KVMEM_DURABILITY_STRICT, 2));
    reader = open_with("read", 0, KVMEM_DISK_READ_ONLY | KVMEM_DISK_OPEN_EXISTING);
}

void held_close(void) {
    kvmem_store_destroy(shared);
    kvmem_store_destroy(made);
    kvmem_store_destroy(store);
    kvmem_store_destroy(full);
    kvmem_store_destroy(doomed);
    kvmem_store_destroy(other);
    kvmem_store_destroy(reader);
    kv_side_close(&host);
    kv_side_close(&target);
}

/* What a store says of itself needs no file. */
static void ask(kvmem_store *asked) {
    unsigned char key[STORE_KEY];
    kvmem_store_entry entry;
    uint64_t found = 0;
    size_t count = 0;
    store_has(asked, 1);
    store_keys(key, 1, 1);
    GET(kvmem_store_info, info, kvmem_store_get_info, asked);
    CHECK_EQ(info.num_slots, BLOCKS);
    EXPECT_OK(kvmem_store_pin(asked, key, STORE_KEY, 1, &found, ERR));
    EXPECT_OK(kvmem_store_unpin(asked, key, STORE_KEY, 1, &found, ERR));
    EXPECT_OK(kvmem_store_list(asked, 0, &entry, 1, &count, ERR));
}

void held_beside(void) {
    static uint64_t number = 2;
    size_t moved = 0;
    ask(store);
    ask(full);
    EXPECT_OK(store_put(other, host.layout, number++, ids, 1, &moved));
    CHECK_EQ(moved, 1);
    OPENED(kv_side, into, REF(kv_aligned_config(&kv_kinds[1])), NULL, 3);
    EXPECT_OK(store_get(other, into.layout, 0, ids, 2, &moved));
    CHECK_EQ(moved, 2);
}

static kvmem_status open_new(void) { return kvmem_store_open(&setup.options, held_limit(), &made, ERR); }

static kvmem_status open_left(void) {
    setup.options.path = TEXT("%s/left", held_folder());
    return open_new();
}

/* A put or a get of one block, to its end. */
static kvmem_status move(kvmem_store *in, uint64_t number, bool puts) {
    OWNED(kvmem_transfer) transfer = NULL;
    unsigned char key[STORE_KEY];
    size_t moved = 0;
    store_keys(key, number, 1);
    const kvmem_store_blocks blocks = OPTIONS(kvmem_store_blocks, it.keys = key, it.key_size = STORE_KEY, it.num_keys = 1,
                                              it.blocks = ids, it.num_blocks = 1, it.run_timeout_ns = held_limit());
    kvmem_status status = puts ? kvmem_store_put(in, host.layout, NULL, &blocks, &transfer, &moved, ERR)
                               : kvmem_store_get(in, target.layout, NULL, &blocks, &transfer, &moved, ERR);
    THEN(status, kvmem_transfer_wait(transfer, PATIENCE, ERR));
    return status;
}

static kvmem_status put(void) { return move(store, 100, true); }
static kvmem_status put_and_evict(void) { return move(full, 100, true); }
static kvmem_status get(void) { return move(store, 0, false); }
static kvmem_status get_as_reader(void) { return move(reader, 0, false); }

static kvmem_status remove_one(void) {
    unsigned char key[STORE_KEY];
    uint64_t removed = 0;
    store_keys(key, 0, 1);
    return kvmem_store_remove(full, key, STORE_KEY, 1, held_limit(), &removed, ERR);
}

static kvmem_status flush(void) { return kvmem_store_flush(store, held_limit(), ERR); }
static kvmem_status flush_reader(void) { return kvmem_store_flush(reader, held_limit(), ERR); }

static kvmem_status open_namespace(void) {
    OWNED(kvmem_store) opened = NULL;
    return kvmem_store_open_namespace(shared, &space, held_limit(), &opened, ERR);
}

static void create_namespace(void) {
    kvmem_store_destroy(MADE(kvmem_store, kvmem_store_open_namespace, shared, &space, PATIENCE));
}

static kvmem_status remove_namespace(void) {
    uint64_t removed = 0;
    return kvmem_store_remove_namespace(shared, space.name, held_limit(), &removed, ERR);
}

static kvmem_status verify(void) {
    uint64_t damaged = 0;
    return kvmem_store_verify(store, held_limit(), &damaged, ERR);
}

static kvmem_status describe(void) {
    return TRIED(kvmem_blob, kvmem_store_describe, TEXT("%s/store", held_folder()));
}

static kvmem_status destroy(void) {
    DESTROYED(kvmem_store, doomed);
    return KVMEM_STATUS_OK;
}

const held_row held_rows[] = {
    {.functions = "kvmem_store_open", .run = open_new},
    {.functions = "kvmem_store_open", .run = open_left},
    {.functions = "kvmem_store_put", .run = put},
    {.functions = "kvmem_store_put", .run = put_and_evict},
    {.functions = "kvmem_store_get", .run = get},
    {.functions = "kvmem_store_get", .run = get_as_reader},
    {.functions = "kvmem_store_remove", .run = remove_one},
    {.functions = "kvmem_store_flush", .run = flush},
    {.functions = "kvmem_store_flush", .run = flush_reader},
    {.functions = "kvmem_store_open_namespace", .run = open_namespace},
    {.functions = "kvmem_store_remove_namespace", .prepare = create_namespace, .run = remove_namespace},
    {.functions = "kvmem_store_verify", .run = verify},
    {.functions = "kvmem_store_describe", .run = describe, .unbounded = HELD_BY_FILES},
    {.functions = "kvmem_store_destroy", .run = destroy, .unbounded = HELD_BY_FILES},
};
const size_t held_num_rows = NUM(held_rows);
