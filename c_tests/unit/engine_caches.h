// SPDX-License-Identifier: Apache-2.0
// The caches of inference engines: their orders, and their own formulas for the address of an element,
// derived from the shapes of their tensors.
#pragma once

#include "harness.h"

/* An element: block, layer, keys or values, token of the block, head, element of the head. */
typedef struct element {
    uint64_t b, l, o, n, h, c;
} element;

/* The sizes of all engines here, small and different from each other. */
enum { B = 5, L = 3, N = 4, H = 6, D = 8 };

/* The position of an element: a buffer of the engine, and the offset in bytes. */
typedef struct place {
    uint64_t buffer, offset;
} place;

typedef struct engine {
    const char *name;
    const char *order;
    place (*place_of)(element at);
    uint64_t blocks, layers, outer, tokens, heads, elements, width; /* 0: B, L, 2, N, H, D and 2 */
    uint64_t block_stride, layer_stride, token_stride, head_stride;
    uint64_t buffer_size;           /* 0: one buffer per region, of that size */
    uint64_t offset;                /* of the region in its buffer */
    bool has_contiguous_pieces;
} engine;

/* The offset of x[i0][i1]... in a dense tensor, from pairs of index and size. */
#define DENSE(...) dense((const uint64_t[]){__VA_ARGS__}, NUM(((const uint64_t[]){__VA_ARGS__})))

uint64_t dense(const uint64_t *indices_and_sizes, size_t count);

#define CONTIGUOUS .has_contiguous_pieces = true
#define SCATTERED .has_contiguous_pieces = false
#define COMBINED .outer = 1
#define NO_HEADS .heads = 1

/* The position of an element in a cache that is tested alone and as a part. */
place flashinfer_nhd(element at);
place vllm_packed_nhd(element at);
place vllm_fp8_ds_mla(element at);
place vllm_indexer(element at);
place vllm_state(element at);
place llama_transposed(element at);
place llama_values_of_one_buffer(element at);
/* Keys of 2 bytes and values of 1 in one buffer. */
#define KEYS (B * N * H * D * 2)
#define VALUES (B * N * H * D)

/* The caches of one part. */
extern const engine engines[];
extern const size_t num_engines;

kvmem_layout_config engine_config(const engine *engine);

/* The engine's buffers, and a layout over them. */
typedef struct cache {
    unsigned char *memory;
    uint64_t buffer_size;
    kvmem_layout *layout;
} cache;

void cache_allocate(cache *cache, const engine *engine);
void cache_lay_out(cache *cache, const engine *engine);
/* Both. */
void cache_open(cache *cache, const engine *engine);
void cache_close(cache *cache);
/* The address of each element is that of the engine. */
void check_addresses(const engine *engine, const cache *cache);
