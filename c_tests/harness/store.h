// SPDX-License-Identifier: Apache-2.0
// Stores for tests: keys by number, and puts and gets from their start to their end.
#pragma once

#include <kvmem/store.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STORE_KEY 32

/* Options of a store with blocks of that shape, and an identity. */
typedef struct store_setup {
    kvmem_layout_config config;
    kvmem_store_value identity[2];
    kvmem_store_options options;
} store_setup;
/* `setup` refers to itself. */
void store_setup_init(store_setup *setup, const char *path, const kvmem_layout_config *config);
/* A store of aligned blocks of the first kind, from which only the caller removes blocks. */
kvmem_store *store_open_without_eviction(const char *path);

/* Keys of these numbers, one after the other; `keys` has STORE_KEY bytes for each. */
void store_keys(unsigned char *keys, uint64_t first, size_t count);
/* Whether the store has the key of a number. */
bool store_has(const kvmem_store *store, uint64_t number);

/* Puts blocks under the keys from `first` on. Returns the status of the run, and how many blocks it moved. */
kvmem_status store_put(kvmem_store *store, const kvmem_layout *source, uint64_t first, const uint32_t *blocks,
                       size_t count, size_t *num_moved);
kvmem_status store_get(kvmem_store *store, const kvmem_layout *destination, uint64_t first,
                       const uint32_t *blocks, size_t count, size_t *num_moved);

/* Changes bytes of a slot in the file of blocks. */
void store_damage(const char *path, uint64_t slot, uint64_t slot_size);
