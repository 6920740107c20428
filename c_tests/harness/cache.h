// SPDX-License-Identifier: Apache-2.0
// Layouts of any order over memory, with addresses by a formula of the tests, and copies element by element.
#pragma once

#include "kv.h"

enum { B, L, O, N, H, C };
#define CACHE_AXES 6
#define CACHE_LAYERS 3
#define CACHE_ELEMENTS 5
#define CACHE_WIDTH 2

typedef struct cache_shape {
    const char *order;
    uint64_t blocks, tokens, heads;
    uint64_t layers; /* 0 for CACHE_LAYERS */
} cache_shape;
kvmem_layout_config cache_config(const cache_shape *shape);

/* One side: addresses by a formula of its own, from the order alone. */
typedef struct cache {
    uint64_t counts[CACHE_AXES], strides[CACHE_AXES], steps[CACHE_AXES];
    uint64_t num_regions, region_size, size;
    unsigned char *memory, *expected;
    kvmem_layout_config config;
    kvmem_layout *layout;
} cache;

/* Fills it with a pattern. */
void cache_open(cache *cache, const cache_shape *shape, uint32_t seed);
void cache_close(cache *cache);
/* Bytes from the start of its memory to an element. */
uint64_t cache_offset(const cache *cache, const uint64_t indices[CACHE_AXES]);
/* Copies the tokens, layers and heads of a job element by element into the expected bytes. */
void cache_copy_elements(cache *to, const cache *from, const kv_job *options);
void cache_check_unchanged(const cache *cache);
