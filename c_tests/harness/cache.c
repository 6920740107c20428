// SPDX-License-Identifier: Apache-2.0
#include "cache.h"
#include "harness.h"

static const char letters[] = "BLONHC";

#define MAX_REGIONS 6
#define GUARD 64

static int axis_of(char letter) { return (int)(strchr(letters, letter) - letters); }

static void measure(cache *cache, const char *order) {
    const char *slash = strchr(order, '/');
    const char *inside = slash != NULL ? slash + 1 : order;
    cache->region_size = CACHE_WIDTH;
    for (size_t i = strlen(inside); i-- > 0;) {
        const int axis = axis_of(inside[i]);
        cache->strides[axis] = cache->region_size;
        cache->region_size *= cache->counts[axis];
    }
    cache->num_regions = 1;
    for (const char *letter = slash; letter != NULL && letter-- > order;) {
        cache->steps[axis_of(*letter)] = cache->num_regions;
        cache->num_regions *= cache->counts[axis_of(*letter)];
    }
    CHECK(cache->num_regions <= MAX_REGIONS);
    cache->size = GUARD + cache->num_regions * (cache->region_size + GUARD);
}

static uint64_t layers_of(const cache_shape *shape) { return shape->layers > 0 ? shape->layers : CACHE_LAYERS; }

kvmem_layout_config cache_config(const cache_shape *shape) {
    return OPTIONS(kvmem_layout_config, it.num_blocks = shape->blocks, it.num_layers = layers_of(shape),
                   it.outer_dim = 2, it.page_size = shape->tokens, it.inner_dim = shape->heads * CACHE_ELEMENTS,
                   it.num_heads = shape->heads, it.dtype_width = CACHE_WIDTH, it.order = shape->order);
}

void cache_open(cache *cache, const cache_shape *shape, uint32_t seed) {
    const uint64_t counts[CACHE_AXES] = {shape->blocks, layers_of(shape), 2, shape->tokens, shape->heads,
                                         CACHE_ELEMENTS};
    memset(cache, 0, sizeof(*cache));
    memcpy(cache->counts, counts, sizeof(counts));
    measure(cache, shape->order);
    cache->memory = test_allocate(cache->size);
    cache->expected = test_allocate(cache->size);
    kv_fill(cache->memory, cache->size, seed);
    memcpy(cache->expected, cache->memory, cache->size);
    cache->config = cache_config(shape);
    kvmem_region *regions[MAX_REGIONS];
    for (uint64_t i = 0; i < cache->num_regions; i++)
        regions[i] = region_adopt(cache->memory + GUARD + i * (cache->region_size + GUARD),
                                  cache->region_size);
    cache->layout = regions_lay_out(&cache->config, regions, cache->num_regions, NULL);
    for (uint64_t i = 0; i < cache->num_regions; i++) CALL(kvmem_region_destroy(regions[i]));
}

void cache_close(cache *cache) {
    CALL(kvmem_layout_destroy(cache->layout));
    free(cache->memory);
    free(cache->expected);
}

uint64_t cache_offset(const cache *cache, const uint64_t indices[CACHE_AXES]) {
    uint64_t region = 0, offset = 0;
    for (int axis = 0; axis < CACHE_AXES; axis++) {
        CHECK(indices[axis] < cache->counts[axis]);
        region += indices[axis] * cache->steps[axis];
        offset += indices[axis] * cache->strides[axis];
    }
    return GUARD + region * (cache->region_size + GUARD) + offset;
}

void cache_check_unchanged(const cache *cache) { CHECK_BYTES(cache->memory, cache->expected, cache->size); }

/* Token `index` of the tokens that a table moves: its block, and its index there. */
static void find_token(const cache *cache, const kvmem_block_table *table, uint64_t index,
                       uint64_t at[CACHE_AXES]) {
    const uint64_t token = table->first_token + index * (table->token_step > 0 ? table->token_step : 1);
    at[B] = table->blocks[token / cache->counts[N]];
    at[N] = token % cache->counts[N];
}

void cache_copy_elements(cache *to, const cache *from, const kv_job *options) {
    const kvmem_transfer_options *part = &options->transfer;
    const uint64_t heads = part->num_heads > 0 ? part->num_heads : from->counts[H];
    const uint64_t layers = part->num_layers > 0 ? part->num_layers : from->counts[L];
    for (uint64_t token = 0; token < options->run.num_tokens; token++) {
        uint64_t source[CACHE_AXES] = {0}, destination[CACHE_AXES] = {0};
        find_token(from, options->run.source_table, token, source);
        find_token(to, options->run.destination_table, token, destination);
        for (uint64_t i = 0; i < layers * 2 * heads * CACHE_ELEMENTS; i++) {
            source[L] = part->source_layer + i % layers;
            destination[L] = part->destination_layer + i % layers;
            source[O] = destination[O] = i / layers % 2;
            source[H] = part->source_head + i / layers / 2 % heads;
            destination[H] = part->destination_head + i / layers / 2 % heads;
            source[C] = destination[C] = i / layers / 2 / heads;
            memcpy(to->expected + cache_offset(to, destination), from->memory + cache_offset(from, source),
                   CACHE_WIDTH);
        }
    }
}
