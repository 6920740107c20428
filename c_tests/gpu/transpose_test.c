// SPDX-License-Identifier: Apache-2.0
// Random layouts in memory of an engine: any order of axes, elements of 1 to 8 bytes, any start. Tokens and
// heads are moved to, within and from memory of the GPU. Every byte of the destination is compared with the
// same transfer in host memory, also those before, between and after what is moved.
#include "caller_context.h"
#include "engine.h"
#include "regions.h"

#include <string.h>

#define BLOCKS 5
#define GUARD 256
#define MAX_OFFSET 64

typedef struct numbers {
    uint64_t state;
} numbers;

/* Returns a number from `least` to `most`. */
static uint64_t between(numbers *numbers, uint64_t least, uint64_t most) {
    numbers->state = numbers->state * 6364136223846793005u + 1442695040888963407u;
    return least + (numbers->state >> 33) % (most - least + 1);
}

/* One side, in any memory: `offset` bytes after the first guard band. */
typedef struct shape {
    char order[8];
    kvmem_layout_config config;
    uint64_t region_size, offset;
} shape;

static void draw_order(numbers *numbers, char order[8]) {
    strcpy(order, "BLONHC");
    for (size_t last = 5; last > 0; last--) {
        const size_t other = between(numbers, 0, last);
        const char moved = order[other];
        order[other] = order[last];
        order[last] = moved;
    }
}

/* Shapes with the same elements per head. Half of the starts are aligned. */
static void draw_shape(numbers *numbers, const kvmem_layout_config *common, shape *drawn) {
    draw_order(numbers, drawn->order);
    drawn->config = *common;
    drawn->config.order = drawn->order;
    drawn->config.page_size =
        between(numbers, 0, 2) == 0 ? 8 * between(numbers, 1, 2) : between(numbers, 1, 11);
    drawn->config.num_heads = between(numbers, 1, 4);
    drawn->config.inner_dim = drawn->config.num_heads * common->inner_dim;
    GET(kvmem_layout_requirements, needs, kvmem_layout_get_requirements, &drawn->config);
    drawn->region_size = needs.region_size;
    drawn->offset =
        between(numbers, 0, 1) == 0 ? 16 * between(numbers, 0, 2) : between(numbers, 0, MAX_OFFSET);
}

static uint64_t size_of(const shape *shape) { return shape->region_size + 2 * GUARD + MAX_OFFSET; }

/* A layout over memory of `size_of` bytes. */
static kvmem_layout *lay_out(const shape *shape, uint64_t memory, bool on_device) {
    const uint64_t start = memory + GUARD + shape->offset;
    OWNED(kvmem_region) region = on_device ? region_adopt_on_gpu(start, shape->region_size, NULL)
                                           : region_adopt((void *)(uintptr_t)start, shape->region_size);
    return regions_lay_out(&shape->config, &region, 1, NULL);
}

typedef struct drawn {
    shape from, to;
    uint32_t source_ids[BLOCKS], destination_ids[BLOCKS];
    kvmem_block_table tables[2];
    kv_job options;
} drawn;

static void draw_ids(numbers *numbers, uint32_t ids[BLOCKS]) {
    const uint32_t first = (uint32_t)between(numbers, 0, BLOCKS - 1), step = (uint32_t)between(numbers, 1,
                                                                                               BLOCKS - 1);
    for (uint32_t i = 0; i < BLOCKS; i++) ids[i] = (first + i * step) % BLOCKS;
}

static void draw(numbers *numbers, drawn *drawn) {
    const kvmem_layout_config common =
        OPTIONS(kvmem_layout_config, it.num_blocks = BLOCKS, it.num_layers = between(numbers, 1, 2),
                it.outer_dim = between(numbers, 1, 2), it.inner_dim = between(numbers, 1, 24),
                it.dtype_width = UINT64_C(1) << between(numbers, 0, 3));
    draw_shape(numbers, &common, &drawn->from);
    draw_shape(numbers, &common, &drawn->to);
    draw_ids(numbers, drawn->source_ids);
    draw_ids(numbers, drawn->destination_ids);
    const uint64_t here = drawn->from.config.page_size * BLOCKS, there = drawn->to.config.page_size * BLOCKS;
    const uint64_t all = here < there ? here : there, first = between(numbers, 0, all / 2);
    const uint64_t step = between(numbers, 0, 3) == 0 ? 2 : 1;
    drawn->tables[0] = (kvmem_block_table){drawn->source_ids, BLOCKS, first, step};
    drawn->tables[1] = (kvmem_block_table){drawn->destination_ids, BLOCKS, first / 2, 1};
    const uint64_t heads[] = {drawn->from.config.num_heads, drawn->to.config.num_heads};
    const uint64_t max_heads = heads[0] < heads[1] ? heads[0] : heads[1];
    const uint64_t num_heads = between(numbers, 1, max_heads);
    drawn->options = JOB(it.run.source_table = &drawn->tables[0],
                             it.run.destination_table = &drawn->tables[1],
                             it.run.num_tokens = between(numbers, 1, (all - first + step - 1) / step),
                             it.transfer.num_heads = num_heads, it.transfer.source_head = between(numbers, 0,
                                                                                                  heads[0] - num_heads),
                             it.transfer.destination_head = between(numbers, 0, heads[1] - num_heads));
}

static void run(const shape *from, uint64_t source, bool from_device, const shape *to, uint64_t destination,
                bool to_device, const kv_job *options) {
    OWNED(kvmem_layout) here = lay_out(from, source, from_device);
    OWNED(kvmem_layout) there = lay_out(to, destination, to_device);
    OWN(kvmem_transfer, transfer, kv_prepare, here, there, options);
    RUN(transfer);
}

/* Two sides in page-locked memory and in memory of the GPU, and what is expected in the destination. */
typedef struct memories {
    unsigned char *source, *destination, *expected;
    uint64_t source_on_gpu, destination_on_gpu;
} memories;

static void memories_open(memories *memories) {
    const uint64_t size = MIB;
    memories->source = engine_allocate_host(0, size);
    memories->destination = engine_allocate_host(0, size);
    memories->expected = engine_allocate_host(0, size);
    memories->source_on_gpu = engine_allocate(0, size);
    memories->destination_on_gpu = engine_allocate(0, size);
}

static void memories_close(memories *memories) {
    engine_free(0, memories->destination_on_gpu);
    engine_free(0, memories->source_on_gpu);
    engine_free_host(0, memories->expected);
    engine_free_host(0, memories->destination);
    engine_free_host(0, memories->source);
}

/* Transfers from the GPU, to it and within it. */
static void transpose(const memories *memories, const drawn *drawn, uint32_t seed, uint32_t method,
                      uint64_t staging_size) {
    const shape *from = &drawn->from, *to = &drawn->to;
    const uint64_t source_size = size_of(from), size = size_of(to);
    CHECK(source_size <= MIB && size <= MIB);
    const uint64_t source = (uint64_t)(uintptr_t)memories->source;
    kv_fill(memories->source, source_size, seed);
    write_device(0, memories->source_on_gpu, memories->source, source_size);
    kv_fill(memories->expected, size, 1000);
    run(from, source, false, to, (uint64_t)(uintptr_t)memories->expected, false, &drawn->options);
    kv_job options = drawn->options;
    options.transfer.method = method;
    options.transfer.staging_size = staging_size;
    kv_fill(memories->destination, size, 1000);
    run(from, memories->source_on_gpu, true, to, (uint64_t)(uintptr_t)memories->destination, false, &options);
    CHECK_BYTES(memories->destination, memories->expected, size);
    for (int from_device = 0; from_device < (method == KVMEM_METHOD_CUDA_STAGED ? 1 : 2); from_device++) {
        kv_fill(memories->destination, size, 1000);
        write_device(0, memories->destination_on_gpu, memories->destination, size);
        run(from, from_device ? memories->source_on_gpu : source, from_device, to,
            memories->destination_on_gpu, true,
            &options);
        read_device(0, memories->destination, memories->destination_on_gpu, size);
        CHECK_BYTES(memories->destination, memories->expected, size);
    }
}

static void transpose_all(uint64_t first_seed, uint32_t method, uint64_t staging_size) {
    RETAIN_DEVICE(0);
    OPENED(memories, memories);
    for (uint64_t seed = first_seed; seed < first_seed + 150; seed++) {
        numbers numbers = {seed};
        drawn drawn;
        draw(&numbers, &drawn);
        transpose(&memories, &drawn, (uint32_t)seed, method, staging_size);
    }
}

TEST_CALL(by_the_kernel, transpose_all(1, KVMEM_METHOD_CUDA_KERNEL, 0))
TEST_CALL(staged, transpose_all(1000, KVMEM_METHOD_CUDA_STAGED, 0))
TEST_CALL(staged_in_small_chunks, transpose_all(2000, KVMEM_METHOD_CUDA_STAGED, 1000))

/* Several warps move a tile, and tiles end inside matrices. */
static void transpose_large(const memories *memories, const char *from, const char *to, uint64_t tokens,
                            uint64_t width) {
    const kvmem_layout_config config =
        OPTIONS(kvmem_layout_config, it.num_blocks = BLOCKS, it.num_layers = 1, it.outer_dim = 1,
                it.page_size = tokens,
                it.num_heads = 2, it.inner_dim = 2 * 80, it.dtype_width = width);
    static const kvmem_block_pair pairs[] = {{3, 0}, {0, 1}, {1, 2}, {2, 4}};
    drawn drawn = {.options = JOB(it.run.pairs = pairs, it.run.num_pairs = NUM(pairs))};
    const char *const orders[] = {from, to};
    shape *const shapes[] = {&drawn.from, &drawn.to};
    for (size_t i = 0; i < NUM(shapes); i++) {
        shapes[i]->config = config;
        strcpy(shapes[i]->order, orders[i]);
        shapes[i]->config.order = shapes[i]->order;
        GET(kvmem_layout_requirements, needs, kvmem_layout_get_requirements, &shapes[i]->config);
        shapes[i]->region_size = needs.region_size;
    }
    transpose(memories, &drawn, (uint32_t)(tokens + width), KVMEM_METHOD_CUDA_KERNEL, 0);
}

TEST(matrices_of_many_tiles) {
    static const char *const orders[] = {"BNHC", "BHCN", "HCBN", "BHNC"};
    RETAIN_DEVICE(0);
    OPENED(memories, memories);
    for (uint64_t width = 1; width <= 8; width *= 2)
        for (size_t i = 0; i < NUM(orders); i++) {
            const char *const to = orders[(i + 1) % NUM(orders)];
            transpose_large(&memories, orders[i], to, 64, width);
            transpose_large(&memories, orders[i], to, 130, width);
            transpose_large(&memories, orders[i], to, 1, width);
        }
}
