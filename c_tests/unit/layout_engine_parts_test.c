// SPDX-License-Identifier: Apache-2.0
// Caches of several parts: each address in a part is compared with the engine's own formula.
#include "engine_caches.h"

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
