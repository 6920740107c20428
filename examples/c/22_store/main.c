// SPDX-License-Identifier: Apache-2.0
// Blocks are stored under keys. A later run of the program finds them, and computes only what is missing: `store FOLDER`. Those of a
// tenant are encrypted by a key of 32 bytes, and only found with it: `head -c 32 /dev/urandom >KEYFILE`, `store FOLDER TENANT KEYFILE`.
#include <kvmem.h>
#include <kvmem/store.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 8
#define KEY 32

static void check(kvmem_status status, kvmem_error **error)
{
    if (status >= 0) return;
    fprintf(stderr, "%s\n", kvmem_error_message(*error, NULL));
    exit(EXIT_FAILURE);
}

static kvmem_store *open_store(const char *folder, const kvmem_layout_config *shape, kvmem_error **error)
{
    const kvmem_store_value identity[] = {
        {.name = "model", .value = "Llama-3.1-8B", .value_size = 12},
        {.name = "revision", .value = "5206a32", .value_size = 7},
        {.name = "dtype", .value = "bf16", .value_size = 4},
    };
    const kvmem_store_options options = {.struct_size = sizeof options, .path = folder, .config = shape,
        .identity = identity, .num_values = 3, .durability = KVMEM_DURABILITY_RELAXED};
    kvmem_store *store;
    check(kvmem_store_open(&options, KVMEM_TIMEOUT_FOREVER, &store, error), error);
    return store;
}

/* A handle of the same store, for the blocks of one tenant. They are encrypted by its key. */
static kvmem_store *open_tenant(kvmem_store *store, const char *name, const void *key, kvmem_error **error)
{
    const kvmem_store_namespace_options options = {.struct_size = sizeof options, .name = name,
        .quota = 256 << 10, .key = key, .key_size = 32}; /* 8 slots of 32 KiB */
    kvmem_store *tenant;
    check(kvmem_store_open_namespace(store, &options, KVMEM_TIMEOUT_FOREVER, &tenant, error), error);
    return tenant;
}

static void read_key(const char *path, unsigned char key[32])
{
    FILE *file = fopen(path, "rb");
    if (file != NULL && fread(key, 32, 1, file) == 1 && fclose(file) == 0) return;
    fprintf(stderr, "%s has no key of 32 bytes\n", path);
    exit(EXIT_FAILURE);
}

/* Returns how many of the first blocks were stored, and loads them. */
static size_t load(kvmem_store *store, kvmem_layout *cache, const kvmem_store_blocks *blocks,
    kvmem_error **error)
{
    kvmem_transfer *transfer;
    size_t found;
    check(kvmem_store_get(store, cache, NULL, blocks, &transfer, &found, error), error);
    if (transfer == NULL) return 0;
    kvmem_status status = kvmem_transfer_wait(transfer, KVMEM_TIMEOUT_FOREVER, error);
    kvmem_transfer_destroy(transfer);
    if (status != KVMEM_STATUS_CORRUPT) {
        check(status, error);
        return found;
    }
    kvmem_error_destroy(*error); /* damaged blocks are no longer stored: compute them again */
    *error = NULL;
    return 0;
}

static void save(kvmem_store *store, kvmem_layout *cache, const kvmem_store_blocks *blocks, kvmem_error **error)
{
    kvmem_transfer *transfer;
    size_t moved;
    check(kvmem_store_put(store, cache, NULL, blocks, &transfer, &moved, error), error);
    if (transfer != NULL) check(kvmem_transfer_wait(transfer, KVMEM_TIMEOUT_FOREVER, error), error);
    kvmem_transfer_destroy(transfer);
    check(kvmem_store_flush(store, KVMEM_TIMEOUT_FOREVER, error), error);
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : "kv-blocks";
    kvmem_error *error = NULL;
    kvmem_layout_config shape = {.struct_size = sizeof shape, .num_blocks = BLOCKS, .num_layers = 4,
        .outer_dim = 2, .page_size = 16, .inner_dim = 128, .dtype_width = 2,
        .order = KVMEM_ORDER_FULLY_CONTIGUOUS, .alignment = 4096};
    kvmem_system_options memory = {.struct_size = sizeof memory};
    kvmem_layout_options options = {.struct_size = sizeof options, .config = &shape,
        .source = KVMEM_LAYOUT_ALLOCATE, .system = &memory};
    kvmem_layout *cache;
    check(kvmem_layout_build(&options, &cache, &error), &error);
    shape.num_blocks = 4 * BLOCKS; /* slots of the store: those of up to 3 tenants, and others */
    kvmem_store *store = open_store(folder, &shape, &error);
    if (argc > 3) {
        unsigned char key[32];
        read_key(argv[3], key);
        kvmem_store *tenant = open_tenant(store, argv[2], key, &error);
        kvmem_store_destroy(store); /* the tenant keeps it open */
        store = tenant;
    }

    /* A real key is a hash of all tokens up to the end of its block. */
    unsigned char keys[BLOCKS][KEY] = {{0}};
    uint32_t ids[BLOCKS];
    for (uint32_t block = 0; block < BLOCKS; block++) {
        ids[block] = block;
        keys[block][0] = (unsigned char)block;
    }
    kvmem_store_blocks blocks = {.struct_size = sizeof blocks, .keys = keys, .key_size = KEY,
        .num_keys = BLOCKS, .blocks = ids, .num_blocks = BLOCKS};
    const size_t found = load(store, cache, &blocks, &error);
    printf("%zu of %d blocks were stored\n", found, BLOCKS);
    /* Here the engine computes the blocks from `found` on. */
    save(store, cache, &blocks, &error);

    kvmem_store_destroy(store);
    kvmem_layout_destroy(cache);
    return 0;
}
