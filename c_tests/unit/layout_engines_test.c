// SPDX-License-Identifier: Apache-2.0
// The orders of docs/layouts.md: each address is compared with the engine's own formula, derived from the
// shape of its tensor.
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

static uint64_t dense(const uint64_t *indices_and_sizes, size_t count) {
    uint64_t offset = 0;
    for (size_t i = 0; i < count; i += 2) {
        CHECK(indices_and_sizes[i] < indices_and_sizes[i + 1]);
        offset = offset * indices_and_sizes[i + 1] + indices_and_sizes[i];
    }
    return offset;
}

/* vLLM, FlashAttention, up to 0.22: kv_cache[layer] is [2, num_blocks, block_size, num_kv_heads,
 * head_size]. */
static place vllm_flash_nhd(element at) {
    return (place){at.l, 2 * DENSE(at.o, 2, at.b, B, at.n, N, at.h, H, at.c, D)};
}

/* The same with the stride order of HND. */
static place vllm_flash_hnd(element at) {
    return (place){at.l, 2 * DENSE(at.o, 2, at.b, B, at.h, H, at.n, N, at.c, D)};
}

/* FlashInfer with one tensor: [max_num_pages, 2, page_size, num_kv_heads, head_dim]. */
static place flashinfer_nhd(element at) {
    return (place){at.l, 2 * DENSE(at.b, B, at.o, 2, at.n, N, at.h, H, at.c, D)};
}

static place flashinfer_hnd(element at) {
    return (place){at.l, 2 * DENSE(at.b, B, at.o, 2, at.h, H, at.n, N, at.c, D)};
}

/* FlashInfer with a tuple: two tensors per layer, [max_num_pages, num_kv_heads, page_size, head_dim] each. */
static place flashinfer_pair_hnd(element at) {
    return (place){2 * at.l + at.o, 2 * DENSE(at.b, B, at.h, H, at.n, N, at.c, D)};
}

/* vLLM, keys and values in a row: [num_blocks, num_kv_heads, block_size, 2 * head_size]. */
static place vllm_packed_hnd(element at) {
    return (place){at.l, 2 * DENSE(at.b, B, at.h, H, at.n, N, at.o * D + at.c, 2 * D)};
}

static place vllm_packed_nhd(element at) {
    return (place){at.l, 2 * DENSE(at.b, B, at.n, N, at.h, H, at.o * D + at.c, 2 * D)};
}

/* The values of that cache alone: the second half of each row. Their region starts within the first row. */
static place vllm_packed_values(element at) {
    return (place){at.l, 2 * DENSE(at.b, B, at.n, N, at.h, H, D + at.c, 2 * D)};
}

/* vLLM KVCacheLayout: a group's buffer with pages of PAGE bytes, of which keys and values of one layer and
 * block use fewer, or of one layer, block and head. */
#define PAIR (2 * D)
#define PAGE 1000
#define HEAD_PAGE 150

static place vllm_lbhnc(element at) {
    return (place){0, DENSE(at.l, L, at.b, B) * PAGE + 2 * DENSE(at.h, H, at.n, N, at.c, PAIR)};
}

static place vllm_lbnhc(element at) {
    return (place){0, DENSE(at.l, L, at.b, B) * PAGE + 2 * DENSE(at.n, N, at.h, H, at.c, PAIR)};
}

static place vllm_lhbnc(element at) {
    return (place){0, DENSE(at.l, L, at.h, H, at.b, B) * HEAD_PAGE + 2 * DENSE(at.n, N, at.c, PAIR)};
}

static place vllm_blhnc(element at) {
    return (place){0, DENSE(at.b, B, at.l, L) * PAGE + 2 * DENSE(at.h, H, at.n, N, at.c, PAIR)};
}

static place vllm_blnhc(element at) {
    return (place){0, DENSE(at.b, B, at.l, L) * PAGE + 2 * DENSE(at.n, N, at.h, H, at.c, PAIR)};
}

static place vllm_bhlnc(element at) {
    return (place){0, DENSE(at.b, B, at.h, H, at.l, L) * HEAD_PAGE + 2 * DENSE(at.n, N, at.c, PAIR)};
}

/* vLLM MLA: [num_blocks, block_size, 576] in bf16; fp8_ds_mla: 656 bytes; the indexer's cache: 132 bytes. */
static place vllm_mla(element at) {
    return (place){at.l, 2 * DENSE(at.b, B, at.n, N, at.c, 576)};
}

static place vllm_fp8_ds_mla(element at) {
    return (place){at.l, DENSE(at.b, B, at.n, N, at.c, 656)};
}

static place vllm_indexer(element at) {
    return (place){at.l, DENSE(at.b, B, at.n, N, at.c, 132)};
}

/* A state of 300 bytes per block, in pages of the attention group's size. */
static place vllm_state(element at) {
    return (place){at.l, at.b * 4096 + at.c};
}

/* vLLM NVFP4: [num_blocks, 2 * num_kv_heads, block_size, head_size / 2 + head_size / 16], head_size 64. */
#define NVFP4 (64 / 2 + 64 / 16)
static place vllm_nvfp4(element at) {
    return (place){at.l, DENSE(at.b, B, at.o * H + at.h, 2 * H, at.n, N, at.c, NVFP4)};
}

/* TensorRT-LLM: a pool [blocks, layers, 2, heads, tokens per block, head size]. */
static place trtllm_pool(element at) {
    return (place){0, 2 * DENSE(at.b, B, at.l, L, at.o, 2, at.h, H, at.n, N, at.c, D)};
}

/* TensorRT-LLM v2: slots of equal buffers, keyed by layer and role. */
static place trtllm_slots(element at) {
    const uint64_t buffer = 2 * H * N * D;
    return (place){0, (at.b * (2 * L) + (at.l * 2 + at.o)) * buffer + 2 * DENSE(at.h, H, at.n, N, at.c, D)};
}

/* SGLang, GPU: k_buffer[layer] and v_buffer[layer], [slots, heads, head_dim]; N consecutive slots are a
 * block. */
static place sglang_mha(element at) {
    return (place){at.o * L + at.l, 2 * DENSE(at.b * N + at.n, B * N, at.h, H, at.c, D)};
}

static place sglang_mla(element at) {
    return (place){at.l, 2 * DENSE(at.b * N + at.n, B * N, at.c, 576)};
}

/* SGLang, host: [2, layers, slots, heads, head_dim], and so on. */
static place sglang_layer_first(element at) {
    return (place){0, 2 * DENSE(at.o, 2, at.l, L, at.b * N + at.n, B * N, at.h, H, at.c, D)};
}

static place sglang_page_first(element at) {
    return (place){0, 2 * DENSE(at.o, 2, at.b * N + at.n, B * N, at.l, L, at.h, H, at.c, D)};
}

static place sglang_page_first_direct(element at) {
    return (place){0, 2 * DENSE(at.o, 2, at.b, B, at.l, L, at.n, N, at.h, H, at.c, D)};
}

static place sglang_page_head(element at) {
    return (place){0, 2 * DENSE(at.o, 2, at.b, B, at.h, H, at.n, N, at.l, L, at.c, D)};
}

/* llama.cpp: cache_k_l<i> and cache_v_l<i>, rows of n_embd_gqa elements, one per cell. */
static place llama_rows(element at) {
    return (place){2 * at.l + at.o, 2 * DENSE(at.b * N + at.n, B * N, at.h * D + at.c, H * D)};
}

/* Without flash attention values are transposed: a row per element, of all cells. */
static place llama_transposed(element at) {
    return (place){at.l, 2 * DENSE(at.h * D + at.c, H * D, at.b * N + at.n, B * N)};
}

/* The values in one buffer with the keys, k0 v0 k1 v1: keys of 2 bytes, values of 1. */
#define KEYS (B * N * H * D * 2)
#define VALUES (B * N * H * D)
static place llama_values_of_one_buffer(element at) {
    return (place){0, at.l * (KEYS + VALUES) + KEYS + DENSE(at.b * N + at.n, B * N, at.h * D + at.c, H * D)};
}

/* MLC/TVM: pages[layer] is [num_pages, 2, num_kv_heads, page_size, head_dim]; MLA: [num_pages, page_size,
 * dim]. */
static place mlc_mha(element at) {
    return (place){at.l, 2 * DENSE(at.b, B, at.o, 2, at.h, H, at.n, N, at.c, D)};
}

static place mlc_mla(element at) {
    return (place){at.l, 2 * DENSE(at.b, B, at.n, N, at.c, 576)};
}

#define CONTIGUOUS .has_contiguous_pieces = true
#define SCATTERED .has_contiguous_pieces = false
#define COMBINED .outer = 1
#define NO_HEADS .heads = 1

static const engine engines[] = {
    {"vLLM FlashAttention NHD", "L/OBNHC", vllm_flash_nhd, CONTIGUOUS},
    {"vLLM FlashAttention HND", "L/OBHNC", vllm_flash_hnd, CONTIGUOUS},
    {"FlashInfer NHD", "L/BONHC", flashinfer_nhd, CONTIGUOUS},
    {"FlashInfer HND", "L/BOHNC", flashinfer_hnd, CONTIGUOUS},
    {"FlashInfer, two tensors, HND", "LO/BHNC", flashinfer_pair_hnd, CONTIGUOUS},
    {"vLLM packed HND", "L/BHNOC", vllm_packed_hnd, SCATTERED},
    {"vLLM packed NHD", "L/BNHOC", vllm_packed_nhd, SCATTERED},
    {"vLLM packed, values", "L/BNHC", vllm_packed_values, COMBINED, .head_stride = 2 * D * 2,
     .buffer_size = B * N * H * 2 * D * 2, .offset = D * 2},
    {"vLLM LBHNC", "LBHNC", vllm_lbhnc, COMBINED, .elements = PAIR, .block_stride = PAGE, CONTIGUOUS},
    {"vLLM LBNHC", "LBNHC", vllm_lbnhc, COMBINED, .elements = PAIR, .block_stride = PAGE, CONTIGUOUS},
    {"vLLM LHBNC", "LHBNC", vllm_lhbnc, COMBINED, .elements = PAIR, .block_stride = HEAD_PAGE},
    {"vLLM BLHNC", "BLHNC", vllm_blhnc, COMBINED, .elements = PAIR, .layer_stride = PAGE, CONTIGUOUS},
    {"vLLM BLNHC", "BLNHC", vllm_blnhc, COMBINED, .elements = PAIR, .layer_stride = PAGE, CONTIGUOUS},
    {"vLLM BHLNC", "BHLNC", vllm_bhlnc, COMBINED, .elements = PAIR, .layer_stride = HEAD_PAGE},
    {"vLLM MLA", "L/BNC", vllm_mla, COMBINED, NO_HEADS, .elements = 576, CONTIGUOUS},
    {"vLLM fp8_ds_mla", "L/BNC", vllm_fp8_ds_mla, COMBINED, NO_HEADS, .elements = 656, .width = 1,
     CONTIGUOUS},
    {"vLLM indexer", "L/BNC", vllm_indexer, COMBINED, NO_HEADS, .elements = 132, .width = 1, CONTIGUOUS},
    {"vLLM state", "L/BC", vllm_state, COMBINED, NO_HEADS, .tokens = 1, .elements = 300, .width = 1,
     .block_stride = 4096, CONTIGUOUS},
    {"vLLM NVFP4", "L/BOHNC", vllm_nvfp4, .elements = NVFP4, .width = 1, CONTIGUOUS},
    {"TensorRT-LLM", "BLOHNC", trtllm_pool, CONTIGUOUS},
    {"TensorRT-LLM v2", "BLOHNC", trtllm_slots, CONTIGUOUS},
    {"SGLang MHA", "OL/BNHC", sglang_mha, CONTIGUOUS},
    {"SGLang MLA", "L/BNC", sglang_mla, COMBINED, NO_HEADS, .elements = 576, CONTIGUOUS},
    {"SGLang host layer_first", "OLBNHC", sglang_layer_first, CONTIGUOUS},
    {"SGLang host page_first", "OBNLHC", sglang_page_first, SCATTERED},
    {"SGLang host page_first_direct", "OBLNHC", sglang_page_first_direct, CONTIGUOUS},
    {"SGLang host page_head", "OBHNLC", sglang_page_head, SCATTERED},
    {"llama.cpp", "LO/BNHC", llama_rows, CONTIGUOUS},
    {"llama.cpp transposed values", "L/HCBN", llama_transposed, COMBINED},
    {"llama.cpp, one buffer, values", "LBNHC", llama_values_of_one_buffer, COMBINED, .width = 1,
     .layer_stride = KEYS + VALUES, .buffer_size = L * (KEYS + VALUES), .offset = KEYS, CONTIGUOUS},
    {"MLC", "L/BOHNC", mlc_mha, CONTIGUOUS},
    {"MLC MLA", "L/BNC", mlc_mla, COMBINED, NO_HEADS, .elements = 576, CONTIGUOUS},
};

static uint64_t or_usual(uint64_t given, uint64_t usual) { return given > 0 ? given : usual; }

static kvmem_layout_config engine_config(const engine *engine) {
    const uint64_t heads = or_usual(engine->heads, H);
    return OPTIONS(kvmem_layout_config, it.num_blocks = or_usual(engine->blocks, B),
                   it.num_layers = or_usual(engine->layers, L), it.outer_dim = or_usual(engine->outer, 2),
                   it.page_size = or_usual(engine->tokens, N),
                   it.inner_dim = heads * or_usual(engine->elements, D), it.num_heads = heads > 1 ? heads : 0,
                   it.dtype_width = or_usual(engine->width, 2), it.order = engine->order,
                   it.block_stride = engine->block_stride, it.layer_stride = engine->layer_stride,
                   it.token_stride = engine->token_stride, it.head_stride = engine->head_stride);
}

/* The engine's buffers, and a layout over them. */
typedef struct cache {
    unsigned char *memory;
    uint64_t buffer_size;
    kvmem_layout *layout;
} cache;

static void cache_allocate(cache *cache, const engine *engine) {
    const kvmem_layout_config config = engine_config(engine);
    GET(kvmem_layout_requirements, needs, kvmem_layout_get_requirements, &config);
    cache->buffer_size = or_usual(engine->buffer_size, needs.region_size);
    cache->memory = test_allocate(needs.num_regions * cache->buffer_size);
}

static void cache_lay_out(cache *cache, const engine *engine) {
    const kvmem_layout_config config = engine_config(engine);
    GET(kvmem_layout_requirements, needs, kvmem_layout_get_requirements, &config);
    CHECK(engine->offset + needs.region_size <= cache->buffer_size);
    kvmem_region *regions[2 * L] = {NULL};
    CHECK(needs.num_regions <= NUM(regions));
    for (uint64_t i = 0; i < needs.num_regions; i++) {
        const kvmem_adopt_options adopt = OPTIONS(
            kvmem_adopt_options, it.address = cache->memory + i * cache->buffer_size + engine->offset,
            it.size = needs.region_size);
        EXPECT_OK(kvmem_region_adopt_host(&adopt, &regions[i], ERR));
    }
    EXPECT_OK(kvmem_layout_build(REF(OPTIONS(kvmem_layout_options, it.config = &config,
                                             it.source = KVMEM_LAYOUT_REGIONS, it.regions = regions,
                                             it.count = needs.num_regions)), &cache->layout, ERR));
    for (uint64_t i = 0; i < needs.num_regions; i++) CALL(kvmem_region_destroy(regions[i]));
}

static void cache_open(cache *cache, const engine *engine) {
    cache_allocate(cache, engine);
    cache_lay_out(cache, engine);
}

static void cache_close(cache *cache) {
    CALL(kvmem_layout_destroy(cache->layout));
    free(cache->memory);
}

/* The formula of kvmem_layout_strides. */
static uint64_t by_strides(const kvmem_layout_strides *strides, element at) {
    return strides->bases[at.l * strides->layer_step + at.o * strides->outer_step + at.n * strides->token_step +
                          at.h * strides->head_step] +
           at.b * strides->block_stride + at.l * strides->layer_stride + at.o * strides->outer_stride +
           at.n * strides->token_stride + at.h * strides->head_stride + at.c * strides->element_stride;
}

static void check_row(const engine *engine, const cache *cache, const kvmem_layout_strides *strides,
                      element at, uint64_t elements) {
    GET(kvmem_block, row, kvmem_layout_get_row, cache->layout, (uint32_t)at.b, at.l, at.o, at.n, at.h);
    CHECK_EQ(row.size, strides->row_size);
    for (at.c = 0; at.c < elements; at.c++) {
        const place place = engine->place_of(at);
        const uint64_t expected = (uintptr_t)cache->memory + place.buffer * cache->buffer_size + place.offset;
        if (row.address + at.c * strides->element_stride != expected || by_strides(strides, at) != expected)
            FAIL("%s: block %d, layer %d, outer %d, token %d, head %d, element %d", engine->name, (int)at.b,
                 (int)at.l, (int)at.o, (int)at.n, (int)at.h, (int)at.c);
    }
}

static void check_pieces(const engine *engine, const kvmem_layout_config *config, const cache *cache) {
    const uint64_t layer = config->num_layers - 1;
    kvmem_block piece;
    if (!engine->has_contiguous_pieces) {
        EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "kvmem_layout_get_row",
                       kvmem_layout_get_block(cache->layout, 0, 0, 0, &piece, ERR));
        return;
    }
    EXPECT_OK(kvmem_layout_get_block(cache->layout, 1, layer, config->outer_dim - 1, &piece, ERR));
    const place first = engine->place_of((element){.b = 1, .l = layer, .o = config->outer_dim - 1});
    CHECK_EQ(piece.address, (uintptr_t)cache->memory + first.buffer * cache->buffer_size + first.offset);
    CHECK_EQ(piece.size, config->page_size * config->inner_dim * config->dtype_width);
}

static void check_addresses(const engine *engine, const cache *cache) {
    const kvmem_layout_config config = engine_config(engine);
    GET(kvmem_layout_strides, strides, kvmem_layout_get_strides, cache->layout);
    const uint64_t heads = or_usual(config.num_heads, 1);
    element at = {0};
    for (at.b = 0; at.b < config.num_blocks; at.b++) {
        for (at.l = 0; at.l < config.num_layers; at.l++) {
            for (at.o = 0; at.o < config.outer_dim; at.o++) {
                for (at.n = 0; at.n < config.page_size; at.n++) {
                    for (at.h = 0; at.h < heads; at.h++)
                        check_row(engine, cache, &strides, at, config.inner_dim / heads);
                }
            }
        }
    }
    check_pieces(engine, &config, cache);
}

TEST(addresses_are_those_of_the_engine) {
    for (size_t i = 0; i < NUM(engines); i++) {
        OPENED(cache, cache, &engines[i]);
        check_addresses(&engines[i], &cache);
    }
}

/* fp8 with a scale of four bytes per token and head, in separate tensors: [B, N, H, D] and [B, N, H]. */
static place fp8_data(element at) {
    return (place){at.l, DENSE(at.b, B, at.n, N, at.h, H, at.c, D)};
}

static place fp8_scales(element at) {
    return (place){at.l, 4 * DENSE(at.b, B, at.n, N, at.h, H)};
}

/* The same in rows [B, H, N, D + 4]. */
#define SCALED (D + 4)
static place row_data(element at) {
    return (place){at.l, DENSE(at.b, B, at.h, H, at.n, N, at.c, SCALED)};
}

static place row_scales(element at) {
    return (place){at.l, DENSE(at.b, B, at.h, H, at.n, N, D + at.c, SCALED)};
}

/* TensorRT-LLM NVFP4, head_size 64: a pool of data and a pool of scales. */
static place trtllm_nvfp4_data(element at) {
    return (place){0, DENSE(at.b, B, at.l, L, at.o, 2, at.h, H, at.n, N, at.c, 32)};
}

static place trtllm_nvfp4_scales(element at) {
    return (place){0, DENSE(at.b, B, at.l, L, at.o, 2, at.h, H, at.n, N, at.c, 4)};
}

/* Sliding-window layers with fewer heads and larger blocks than the others: [B, 2, N, H, D] per layer. */
static place window_group(element at) {
    return (place){at.l, 2 * DENSE(at.b, B, at.o, 2, at.n, 2 * N, at.h, 2, at.c, D)};
}

/* llama.cpp: keys alone, and keys in one buffer with values of one byte. */
static place llama_keys(element at) {
    return (place){at.l, 2 * DENSE(at.b * N + at.n, B * N, at.h * D + at.c, H * D)};
}

static place llama_keys_of_one_buffer(element at) {
    return (place){0, at.l * (KEYS + VALUES) + 2 * DENSE(at.b * N + at.n, B * N, at.h * D + at.c, H * D)};
}

/* Caches of several parts. Parts in one buffer are described in the memory of the first. */
static const struct {
    const char *name;
    bool in_one_buffer;
    engine parts[2]; /* named after the parts */
} caches_of_parts[] = {
    {"vLLM MLA with an indexer", false,
     {{"latent", "L/BNC", vllm_fp8_ds_mla, COMBINED, NO_HEADS, .elements = 656, .width = 1, CONTIGUOUS},
      {"indexer", "L/BNC", vllm_indexer, COMBINED, NO_HEADS, .elements = 132, .width = 1, CONTIGUOUS}}},
    {"fp8, scales apart", false,
     {{"data", "L/BNHC", fp8_data, COMBINED, .width = 1, CONTIGUOUS},
      {"scales", "L/BNHC", fp8_scales, COMBINED, .elements = 1, .width = 4, CONTIGUOUS}}},
    {"fp8, scales in rows", true,
     {{"data", "L/BHNC", row_data, COMBINED, .width = 1, .token_stride = SCALED,
       .buffer_size = B * H * N * SCALED},
      {"scales", "L/BHNC", row_scales, COMBINED, .elements = 4, .width = 1, .token_stride = SCALED,
       .buffer_size = B * H * N * SCALED, .offset = D}}},
    {"vLLM hybrid", false,
     {{"attention", "L/BNHOC", vllm_packed_nhd, SCATTERED},
      {"state", "L/BC", vllm_state, COMBINED, NO_HEADS, .tokens = 1, .elements = 300, .width = 1,
       .block_stride = 4096, CONTIGUOUS}}},
    {"TensorRT-LLM NVFP4", false,
     {{"data", "BLOHNC", trtllm_nvfp4_data, .elements = 32, .width = 1, CONTIGUOUS},
      {"scales", "BLOHNC", trtllm_nvfp4_scales, .elements = 4, .width = 1, CONTIGUOUS}}},
    {"sliding-window group", false,
     {{"full", "L/BONHC", flashinfer_nhd, CONTIGUOUS},
      {"window", "L/BONHC", window_group, .layers = 2, .tokens = 2 * N, .heads = 2, CONTIGUOUS}}},
    {"llama.cpp, one buffer", true,
     {{"keys", "LBNHC", llama_keys_of_one_buffer, COMBINED, .layer_stride = KEYS + VALUES,
       .buffer_size = L * (KEYS + VALUES), CONTIGUOUS},
      {"values", "LBNHC", llama_values_of_one_buffer, COMBINED, .width = 1, .layer_stride = KEYS + VALUES,
       .buffer_size = L * (KEYS + VALUES), .offset = KEYS, CONTIGUOUS}}},
    {"llama.cpp, transposed values", false,
     {{"keys", "L/BNHC", llama_keys, COMBINED, CONTIGUOUS},
      {"values", "L/HCBN", llama_transposed, COMBINED}}},
};

TEST(parts_have_the_addresses_of_the_engine) {
    for (size_t i = 0; i < NUM(caches_of_parts); i++) {
        const engine *first = &caches_of_parts[i].parts[0], *second = &caches_of_parts[i].parts[1];
        OPENED(cache, one, first);
        cache other = one;
        if (!caches_of_parts[i].in_one_buffer) cache_allocate(&other, second);
        cache_lay_out(&other, second);
        const kvmem_layout_part parts[] = {{first->name, one.layout}, {second->name, other.layout}};
        OWN(kvmem_layout, combined, kvmem_layout_combine, parts, 2);
        for (size_t part = 0; part < 2; part++) {
            const engine *engine = &caches_of_parts[i].parts[part];
            OWN(kvmem_layout, layout, kvmem_layout_get_part, combined, engine->name);
            cache found = part == 0 ? one : other;
            found.layout = layout;
            check_addresses(engine, &found);
        }
        CALL(kvmem_layout_destroy(other.layout));
        DESTROYED(kvmem_layout, combined);
        if (!caches_of_parts[i].in_one_buffer) free(other.memory);
    }
}

/* The info contains the order, and the kind if the order equals a kind of KVBM. */
TEST(information_has_order_and_strides) {
    for (size_t i = 0; i < NUM(engines); i++) {
        OPENED(cache, cache, &engines[i]);
        GET(kvmem_layout_info, info, kvmem_layout_get_info, cache.layout);
        GET(kvmem_layout_strides, strides, kvmem_layout_get_strides, cache.layout);
        CHECK_STR(info.order, engines[i].order);
        CHECK_EQ(info.block_stride, strides.block_stride);
        CHECK_EQ(info.layer_stride, strides.layer_stride);
        CHECK_EQ(info.outer_stride, strides.outer_stride);
        CHECK_EQ(info.token_stride, strides.token_stride);
        CHECK_EQ(info.head_stride, strides.head_stride);
        CHECK_EQ(info.element_stride, strides.element_stride);
    }
}

/* The message names the wrong field or axis, and nothing else changes. */
TEST(wrong_orders_fail_with_their_cause) {
    const struct {
        const char *order;
        uint64_t block_stride, head_stride;
        const char *part;
    } wrong[] = {
        {"", 0, 0, "the order is empty"},
        {"LOBNHX", 0, 0, "'X' in the order 'LOBNHX' is no axis"},
        {"LOBNHCB", 0, 0, "axis B (block) is in the order 'LOBNHCB' twice"},
        {"L/B/ONHC", 0, 0, "'/' twice"},
        {"B/LONHC", 0, 0, "axis B (block) precedes '/'"},
        {"LONHC", 0, 0, "lacks axis B (block)"},
        {"LBNHC", 0, 0, "lacks axis O (outer slot), of which there are 2"},
        {"LOBNH", 0, 0, "lacks axis C (element)"},
        {"LOBNHC", 100, 0,
         "axis B (block) has a stride of 100 bytes, and one block spans "},
        {"LOBNHC", 0, 8, "axis H (head) has a stride of 8 bytes"},
        {"LOBNHC", UINT64_MAX, 0, "axis B (block) has"},
        {NULL, 0, 0, "order"},
    };
    for (size_t i = 0; i < NUM(wrong); i++) {
        const kvmem_layout_config config = WITH(engine_config(&engines[0]), it.order = wrong[i].order,
                                                it.block_stride = wrong[i].block_stride,
                                                it.head_stride = wrong[i].head_stride);
        kvmem_layout_requirements needs;
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, wrong[i].part,
                       kvmem_layout_get_requirements(&config, &needs, ERR));
    }
}

/* Padded pages of a KVBM layout. */
TEST(the_orders_of_kvbm_accept_strides) {
    kvmem_layout_config config =
        WITH(engine_config(&engines[2]), it.order = KVMEM_ORDER_LAYER_SEPARATE, it.block_stride = 5000);
    OWNED(kvmem_layout) layout = layout_allocate_system(&config);
    GET(kvmem_layout_info, info, kvmem_layout_get_info, layout);
    CHECK_STR(info.order, "L/BONHC");
    CHECK_EQ(info.block_stride, 5000);
    GET(kvmem_block, first, kvmem_layout_get_block, layout, 0, 1, 0);
    GET(kvmem_block, second, kvmem_layout_get_block, layout, 1, 1, 0);
    CHECK_EQ(second.address - first.address, 5000);
}
