// SPDX-License-Identifier: Apache-2.0
// Calls on stores, each of which has a folder of its own while an operation runs.
#include "options.h"
#include "owned.h"
#include "table.h"

#define KEYS 3

static kvmem_store *open_store(fuzz *fuzz, const char *path, const kvmem_layout_config *config) {
    const kvmem_store_value identity[] = {{.name = or_null(fuzz, "model"), .value = "m", .value_size = 1}};
    FUZZ_OPTIONS(kvmem_store_options, options);
    options.path = or_null(fuzz, path);
    options.config = or_null(fuzz, config);
    options.identity = identity;
    options.num_values = random_below(fuzz, 2);
    options.durability = random_one_in(fuzz, 10) ? (uint32_t)random_below(fuzz, 5) : KVMEM_DURABILITY_NONE;
    options.eviction = (uint32_t)random_below(fuzz, random_one_in(fuzz, 20) ? 4 : 2);
    options.flags = random_one_in(fuzz, 10) ? random_flags(fuzz, 7) : KVMEM_DISK_BUFFERED;
    /* Without a timeout: a store that opens later would create files in a folder that is being removed. */
    options.struct_size = random_struct_size(fuzz, sizeof(options));
    kvmem_store *store = POISON;
    const kvmem_status status = TRY(fuzz, kvmem_store_open, or_null(fuzz, &options), KVMEM_TIMEOUT_FOREVER, &store);
    CHECK((status == KVMEM_STATUS_OK) == (store != NULL));
    return store;
}

/* Puts or gets blocks, and sometimes waits for the end. */
static void move(fuzz *fuzz, kvmem_store *store, const kvmem_layout *layout, const unsigned char *keys, bool puts) {
    const uint32_t blocks[KEYS] = {0, 1, 2};
    FUZZ_OPTIONS(kvmem_store_blocks, what);
    what.keys = or_null(fuzz, keys);
    what.key_size = random_one_in(fuzz, 30) ? random_below(fuzz, 16) : 16;
    what.num_keys = 1 + random_below(fuzz, KEYS);
    what.blocks = or_null(fuzz, blocks);
    what.num_blocks = random_one_in(fuzz, 30) ? 1 : what.num_keys;
    what.flags = random_one_in(fuzz, 8) ? random_flags(fuzz, KVMEM_STORE_UNRELATED) : 0;
    what.run_timeout_ns = random_one_in(fuzz, 8) ? random_timeout(fuzz) : 0;
    what.struct_size = random_struct_size(fuzz, sizeof(what));
    kvmem_transfer *transfer = POISON;
    size_t moved = 0;
    const kvmem_status status = puts ? TRY(fuzz, kvmem_store_put, store, layout, NULL, or_null(fuzz, &what), &transfer, &moved)
                                     : TRY(fuzz, kvmem_store_get, store, layout, NULL, or_null(fuzz, &what), &transfer, &moved);
    if (status != KVMEM_STATUS_OK) CHECK(transfer == NULL);
    if (transfer == NULL) return;
    if (random_one_in(fuzz, 4)) TRY(fuzz, kvmem_transfer_cancel, transfer);
    TRY(fuzz, kvmem_transfer_wait, transfer, SECONDS(20));
    DO(fuzz, kvmem_transfer_destroy, transfer);
}

static void use_keys(fuzz *fuzz, kvmem_store *store, const unsigned char *keys) {
    const void *some = or_null(fuzz, keys);
    uint8_t found[KEYS];
    uint64_t number = 0;
    TRY(fuzz, kvmem_store_contains, store, some, 16, KEYS, or_null(fuzz, found));
    TRY(fuzz, kvmem_store_pin, store, some, 16, 1, or_null(fuzz, &number));
    if (random_one_in(fuzz, 2)) TRY(fuzz, kvmem_store_unpin, store, some, 16, 1, or_null(fuzz, &number));
    if (random_one_in(fuzz, 2)) TRY(fuzz, kvmem_store_remove, store, some, 16, 2, SECONDS(20), or_null(fuzz, &number));
    kvmem_store_entry entries[2];
    size_t count = 0;
    TRY(fuzz, kvmem_store_list, store, random_below(fuzz, 4), or_null(fuzz, entries), 1 + random_below(fuzz, 2), &count);
    kvmem_store_info info;
    TRY(fuzz, kvmem_store_get_info, store, or_null(fuzz, &info));
    if (random_one_in(fuzz, 8)) TRY(fuzz, kvmem_store_flush, store, SECONDS(20));
    if (random_one_in(fuzz, 4)) TRY(fuzz, kvmem_store_verify, store, SECONDS(20), or_null(fuzz, &number));
}

/* Opens a namespace, uses it, and sometimes removes it. Two of three are encrypted, not always by the same key. */
static void use_namespace(fuzz *fuzz, kvmem_store *store, const kvmem_layout *layout, const unsigned char *keys) {
    static const char *const names[] = {"a", "b", "c", ""};
    const char *name = names[random_below(fuzz, random_one_in(fuzz, 20) ? 4 : 3)];
    unsigned char key[32] = {(unsigned char)random_below(fuzz, random_one_in(fuzz, 8) ? 2 : 1)};
    FUZZ_OPTIONS(kvmem_store_namespace_options, options);
    options.name = or_null(fuzz, name);
    options.quota = random_one_in(fuzz, 8) ? random_below(fuzz, 1 << 20) : 4096 * random_below(fuzz, 3);
    options.key = name[0] == 'a' ? NULL : key;
    options.key_size = options.key && !random_one_in(fuzz, 20) ? sizeof key : 0;
    options.struct_size = random_struct_size(fuzz, sizeof(options));
    kvmem_store *space = POISON;
    const kvmem_status status =
        TRY(fuzz, kvmem_store_open_namespace, store, or_null(fuzz, &options), KVMEM_TIMEOUT_FOREVER, &space);
    CHECK((status == KVMEM_STATUS_OK) == (space != NULL));
    if (space != NULL) {
        move(fuzz, space, layout, keys, true);
        use_keys(fuzz, space, keys);
        move(fuzz, space, layout, keys, false);
    }
    if (random_one_in(fuzz, 2)) {
        DO(fuzz, kvmem_store_destroy, space);
        space = NULL;
    }
    uint64_t removed = 0;
    if (random_one_in(fuzz, 3)) TRY(fuzz, kvmem_store_remove_namespace, store, or_null(fuzz, name), SECONDS(20), &removed);
    DO(fuzz, kvmem_store_destroy, space);
}

/* Opens the store for reading, too: what changes it is refused. */
static void use_reader(fuzz *fuzz, const char *path, const kvmem_layout_config *config, const kvmem_layout *layout,
                       const unsigned char *keys) {
    const kvmem_store_value identity[] = {{.name = "model", .value = "m", .value_size = 1}};
    FUZZ_OPTIONS(kvmem_store_options, options);
    options.path = path;
    options.config = config;
    options.identity = identity;
    options.num_values = random_below(fuzz, 2);
    options.flags = KVMEM_DISK_OPEN_EXISTING | KVMEM_DISK_READ_ONLY | KVMEM_DISK_BUFFERED;
    options.struct_size = random_struct_size(fuzz, sizeof(options));
    kvmem_store *reader = POISON;
    const kvmem_status status = TRY(fuzz, kvmem_store_open, &options, KVMEM_TIMEOUT_FOREVER, &reader);
    CHECK((status == KVMEM_STATUS_OK) == (reader != NULL));
    if (reader == NULL) return;
    move(fuzz, reader, layout, keys, random_one_in(fuzz, 4));
    use_keys(fuzz, reader, keys);
    DO(fuzz, kvmem_store_destroy, reader);
}

static void use_store(fuzz *fuzz) {
    const kvmem_layout_config config = WITH(kv_config(&kv_kinds[0]), it.num_blocks = KEYS, it.alignment = 4096);
    SCRATCH(directory);
    char path[160];
    snprintf(path, sizeof(path), "%s", scratch_file(&directory, "store"));
    OWNED(kvmem_layout) layout = NULL;
    const kvmem_system_options system = OPTIONS(kvmem_system_options);
    const kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_ALLOCATE,
                                                 it.system = &system);
    TRY(fuzz, kvmem_layout_build, &options, &layout);
    kvmem_store *store = open_store(fuzz, path, &config);
    unsigned char keys[KEYS * 16];
    for (size_t i = 0; i < sizeof(keys); i++) keys[i] = (unsigned char)(i / 16);
    for (int i = 0; i < 3 && store != NULL && layout != NULL; i++) {
        move(fuzz, store, layout, keys, i < 2);
        use_keys(fuzz, store, keys);
        if (random_one_in(fuzz, 2)) use_namespace(fuzz, store, layout, keys);
        if (random_one_in(fuzz, 3)) use_reader(fuzz, path, &config, layout, keys);
    }
    kvmem_blob *text = NULL;
    TRY(fuzz, kvmem_store_describe, or_null(fuzz, path), &text);
    DO(fuzz, kvmem_blob_destroy, text);
    DO(fuzz, kvmem_store_destroy, store);
}

const operation store_operations[] = {
    OPERATION(3, use_store),
    {0},
};
