// SPDX-License-Identifier: Apache-2.0
#include "engine_caches.h"

uint64_t dense(const uint64_t *indices_and_sizes, size_t count) {
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
place flashinfer_nhd(element at) {
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

place vllm_packed_nhd(element at) {
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

place vllm_fp8_ds_mla(element at) {
    return (place){at.l, DENSE(at.b, B, at.n, N, at.c, 656)};
}

place vllm_indexer(element at) {
    return (place){at.l, DENSE(at.b, B, at.n, N, at.c, 132)};
}

/* A state of 300 bytes per block, in pages of the attention group's size. */
place vllm_state(element at) {
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
place llama_transposed(element at) {
    return (place){at.l, 2 * DENSE(at.h * D + at.c, H * D, at.b * N + at.n, B * N)};
}

/* The values in one buffer with the keys, k0 v0 k1 v1: keys of 2 bytes, values of 1. */
place llama_values_of_one_buffer(element at) {
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

const engine engines[] = {
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
const size_t num_engines = NUM(engines);

static uint64_t or_usual(uint64_t given, uint64_t usual) { return given > 0 ? given : usual; }

kvmem_layout_config engine_config(const engine *engine) {
    const uint64_t heads = or_usual(engine->heads, H);
    return OPTIONS(kvmem_layout_config, it.num_blocks = or_usual(engine->blocks, B),
                   it.num_layers = or_usual(engine->layers, L), it.outer_dim = or_usual(engine->outer, 2),
                   it.page_size = or_usual(engine->tokens, N),
                   it.inner_dim = heads * or_usual(engine->elements, D), it.num_heads = heads > 1 ? heads : 0,
                   it.dtype_width = or_usual(engine->width, 2), it.order = engine->order,
                   it.block_stride = engine->block_stride, it.layer_stride = engine->layer_stride,
                   it.token_stride = engine->token_stride, it.head_stride = engine->head_stride);
}

void cache_allocate(cache *cache, const engine *engine) {
    const kvmem_layout_config config = engine_config(engine);
    GET(kvmem_layout_requirements, needs, kvmem_layout_get_requirements, &config);
    cache->buffer_size = or_usual(engine->buffer_size, needs.region_size);
    cache->memory = test_allocate(needs.num_regions * cache->buffer_size);
}

void cache_lay_out(cache *cache, const engine *engine) {
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

void cache_open(cache *cache, const engine *engine) {
    cache_allocate(cache, engine);
    cache_lay_out(cache, engine);
}

void cache_close(cache *cache) {
    CALL(kvmem_layout_destroy(cache->layout));
    free(cache->memory);
}

/* The formula of kvmem_layout_info. */
static uint64_t by_strides(const kvmem_layout_info *strides, element at) {
    return strides->bases[at.l * strides->layer_step + at.o * strides->outer_step + at.n * strides->token_step +
                          at.h * strides->head_step] +
           at.b * strides->block_stride + at.l * strides->layer_stride + at.o * strides->outer_stride +
           at.n * strides->token_stride + at.h * strides->head_stride + at.c * strides->element_stride;
}

static void check_row(const engine *engine, const cache *cache, const kvmem_layout_info *strides,
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

void check_addresses(const engine *engine, const cache *cache) {
    const kvmem_layout_config config = engine_config(engine);
    const kvmem_layout_info strides = layout_info(cache->layout);
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
