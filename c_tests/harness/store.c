// SPDX-License-Identifier: Apache-2.0
#include "harness.h"

void store_setup_init(store_setup *setup, const char *path, const kvmem_layout_config *config) {
    setup->config = *config;
    setup->identity[0] = (kvmem_store_value){"model", "llama", 5};
    setup->identity[1] = (kvmem_store_value){"dtype", "bf16", 4};
    setup->options = OPTIONS(kvmem_store_options, it.path = path, it.config = &setup->config,
                             it.identity = setup->identity, it.num_values = 2);
}

kvmem_store *store_open_without_eviction(const char *path) {
    store_setup setup;
    store_setup_init(&setup, path, REF(kv_aligned_config(&kv_kinds[0])));
    setup.options.eviction = KVMEM_EVICTION_CALLER;
    return MADE(kvmem_store, kvmem_store_open, &setup.options, PATIENCE);
}

void store_keys(unsigned char *keys, uint64_t first, size_t count) {
    memset(keys, 0xA5, count * STORE_KEY);
    for (size_t i = 0; i < count; i++) {
        const uint64_t number = first + i;
        memcpy(keys + i * STORE_KEY, &number, sizeof(number));
    }
}

bool store_has(const kvmem_store *store, uint64_t number) {
    unsigned char key[STORE_KEY];
    store_keys(key, number, 1);
    uint8_t found = 7;
    EXPECT_OK(kvmem_store_contains(store, key, STORE_KEY, 1, &found, ERR));
    return found == 1;
}

/* The options of these blocks; the caller frees the keys. */
static kvmem_store_blocks blocks_of(unsigned char *keys, uint64_t first, const uint32_t *blocks,
                                    size_t count) {
    store_keys(keys, first, count);
    return OPTIONS(kvmem_store_blocks, it.keys = keys, it.key_size = STORE_KEY, it.num_keys = count,
                   it.blocks = blocks, it.num_blocks = count);
}

/* The end of a run, if there is one. */
static kvmem_status end(kvmem_status status, kvmem_transfer *transfer) {
    if (status == KVMEM_STATUS_OK && transfer != NULL) status = kvmem_transfer_wait(transfer, PATIENCE, ERR);
    kvmem_transfer_destroy(transfer);
    return status;
}

kvmem_status store_put(kvmem_store *store, const kvmem_layout *source, uint64_t first, const uint32_t *blocks,
                       size_t count, size_t *num_moved) {
    unsigned char *keys = test_allocate(count * STORE_KEY);
    const kvmem_store_blocks what = blocks_of(keys, first, blocks, count);
    kvmem_transfer *transfer = NULL;
    const kvmem_status status = kvmem_store_put(store, source, NULL, &what, &transfer, num_moved, ERR);
    free(keys);
    return end(status, transfer);
}

kvmem_status store_get(kvmem_store *store, const kvmem_layout *destination, uint64_t first,
                       const uint32_t *blocks, size_t count, size_t *num_moved) {
    unsigned char *keys = test_allocate(count * STORE_KEY);
    const kvmem_store_blocks what = blocks_of(keys, first, blocks, count);
    kvmem_transfer *transfer = NULL;
    const kvmem_status status = kvmem_store_get(store, destination, NULL, &what, &transfer, num_moved, ERR);
    free(keys);
    return end(status, transfer);
}

void store_damage(const char *path, uint64_t slot, uint64_t slot_size) {
    const int fd = open(test_text("%s/blocks.0", path), O_WRONLY);
    CHECK(fd >= 0);
    CHECK_EQ(pwrite(fd, "damaged", 7, (off_t)(slot * slot_size)), 7);
    CHECK_EQ(fsync(fd), 0);
    close(fd);
}
