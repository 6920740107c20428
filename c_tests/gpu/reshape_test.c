// SPDX-License-Identifier: Apache-2.0
// Transfers between layouts of different orders with GPU memory on either side, by each method. The results
// are compared with the same transfer between host layouts, which unit.transfer_reshape compares with a copy
// element by element.
#include "allocated.h"
#include "engine.h"
#include "regions.h"
#include "caller_context.h"

#include <sys/mman.h>
#include <unistd.h>

#define BLOCKS 9

typedef struct shape {
    const char *order;
    uint64_t tokens, heads;
} shape;

static kvmem_layout_config config_of(const shape *shape) {
    return OPTIONS(kvmem_layout_config, it.num_blocks = BLOCKS, it.num_layers = 3, it.outer_dim = 2,
                   it.page_size =
                       shape->tokens, it.num_heads = shape->heads, it.inner_dim = shape->heads * 24,
                   it.dtype_width = 2, it.order = shape->order);
}

/* Builds a layout in memory of the GPU or in page-locked memory. */
static kvmem_layout *build(const shape *shape, bool on_device) {
    const kvmem_layout_config config = config_of(shape);
    kvmem_layout *layout = NULL;
    EXPECT_OK(on_device ? build_on_device(0, &config, &layout) : build_pinned(0, &config, &layout));
    return layout;
}

static uint64_t region_size(const shape *shape) {
    const kvmem_layout_config config = config_of(shape);
    GET(kvmem_layout_requirements, needs, kvmem_layout_get_requirements, &config);
    return needs.region_size;
}

static void fill(const kvmem_layout *layout, const shape *shape, uint32_t seed) {
    const kvmem_layout_info strides = layout_info(layout);
    for (uint64_t i = 0; i < strides.num_regions; i++)
        kv_fill((unsigned char *)(uintptr_t)strides.bases[i], region_size(shape), seed + (uint32_t)i);
}

static void expect_same(const kvmem_layout *found, const kvmem_layout *expected, const shape *shape) {
    const kvmem_layout_info here = layout_info(found);
    const kvmem_layout_info there = layout_info(expected);
    for (uint64_t i = 0; i < here.num_regions; i++)
        CHECK_BYTES((const unsigned char *)(uintptr_t)here.bases[i],
                    (const unsigned char *)(uintptr_t)there.bases[i], region_size(shape));
}

static void run(const kvmem_layout *from, const kvmem_layout *to, const kv_job *options) {
    OWN(kvmem_transfer, transfer, kv_prepare, from, to, options);
    RUN(transfer);
    GET(kvmem_transfer_info, info, kvmem_transfer_get_info, transfer);
    CHECK(options->transfer.method == 0 || info.method == options->transfer.method);
}

/* Copies all blocks of a layout to another one of the same order. */
static void copy_all(const kvmem_layout *from, const kvmem_layout *to) {
    kvmem_block_pair pairs[BLOCKS];
    for (uint32_t i = 0; i < BLOCKS; i++) pairs[i] = (kvmem_block_pair){i, i};
    run(from, to, REF(JOB(it.run.pairs = pairs, it.run.num_pairs = BLOCKS)));
}

/* Transfers to memory of the GPU, within it and back, with the same options. */
static void reshape(const shape *from, const shape *to, const kv_job *options) {
    OWNED(kvmem_layout) source = build(from, false);
    OWNED(kvmem_layout) source_on_device = build(from, true);
    OWNED(kvmem_layout) expected = build(to, false);
    OWNED(kvmem_layout) found = build(to, false);
    OWNED(kvmem_layout) on_device = build(to, true);
    fill(source, from, 1);
    copy_all(source, source_on_device);
    fill(expected, to, 100);
    fill(found, to, 100);
    kv_job on_host = *options;
    on_host.transfer.method = 0;
    run(source, expected, &on_host);
    run(source_on_device, found, options);
    expect_same(found, expected, to);
    const kvmem_layout *const sources[] = {source, source_on_device};
    const bool needs_host = options->transfer.method == KVMEM_METHOD_CUDA_STAGED;
    for (size_t i = 0; i < (needs_host ? 1 : NUM(sources)); i++) {
        fill(found, to, 100);
        copy_all(found, on_device);
        run(sources[i], on_device, options);
        fill(found, to, 7);
        copy_all(on_device, found);
        expect_same(found, expected, to);
    }
}

static const uint32_t source_ids[] = {6, 1, 3, 4, 0}, destination_ids[] = {2, 5, 0, 7, 6, 1, 3, 4};

/* Some tokens and heads, or all heads, between some orders. */
static void reshape_all(uint32_t method, uint64_t staging_size) {
    static const char *const orders[] =
        {"L/OBNHC", "L/OBHNC", "BLONHC", "LO/BHNC", "L/BNHOC", "OBNLHC", "L/OHCBN"};
    RETAIN_DEVICE(0);
    for (size_t i = 0; i < NUM(orders) * NUM(orders); i += 4) {
        if (method == KVMEM_METHOD_CUDA_2D && i / NUM(orders) == i % NUM(orders)) {
            continue; /* scattered blocks of one order have no constant stride */
        }
        const shape from = {orders[i / NUM(orders)], 8, 4}, to = {orders[i % NUM(orders)], 4, 2};
        const shape same = {orders[i % NUM(orders)], 8, 4};
        kvmem_block_table tables[] =
            {{source_ids, NUM(source_ids), 0, 1}, {destination_ids, NUM(destination_ids), 0, 1}};
        kv_job options = JOB(it.run.source_table = &tables[0],
                                                 it.run.destination_table = &tables[1], it.run.num_tokens = 24,
                                                 it.transfer.method = method, it.transfer.staging_size = staging_size);
        reshape(&from, &same, &options);
        options.transfer.source_head = 1;
        options.transfer.num_heads = 2;
        reshape(&from, &to, &options);
        tables[0].first_token = tables[1].first_token = 3; /* partial blocks first and last */
        reshape(&from, &to, &options);
        if (method != KVMEM_METHOD_CUDA_2D) { /* tokens with a step have no constant stride */
            tables[0].token_step = 3;
            options.run.num_tokens = 11;
            reshape(&from, &to, &options);
        }
    }
}

TEST_CALL(on_the_selected_path, reshape_all(0, 0))
TEST_CALL(on_the_kernel_path, reshape_all(KVMEM_METHOD_CUDA_KERNEL, 0))
TEST_CALL(on_the_copy_path, reshape_all(KVMEM_METHOD_CUDA_COPY, 0))
TEST_CALL(on_the_2d_path, reshape_all(KVMEM_METHOD_CUDA_2D, 0))
TEST_CALL(staged_in_one_chunk, reshape_all(KVMEM_METHOD_CUDA_STAGED, 0))
TEST_CALL(staged_in_chunks_of_some_blocks, reshape_all(KVMEM_METHOD_CUDA_STAGED, 4000))
TEST_CALL(staged_in_chunks_smaller_than_a_row, reshape_all(KVMEM_METHOD_CUDA_STAGED, 70))

/* Some heads of some tokens, with one and with both sides in memory of the GPU. */
TEST(tokens_and_heads_are_verified) {
    static const shape from = {"BLONHC", 8, 4}, same = {"L/BHNOC", 8, 4}, to = {"L/OBHNC", 4, 2};
    RETAIN_DEVICE(0);
    const kvmem_block_table tables[] =
        {{source_ids, NUM(source_ids), 3, 2}, {destination_ids, NUM(destination_ids), 1, 1}};
    kv_job options =
        JOB(it.run.source_table = &tables[0], it.run.destination_table = &tables[1],
                it.run.num_tokens = 11, it.run.flags = KVMEM_SUBMIT_VERIFY);
    reshape(&from, &same, &options);
    options.transfer.source_head = 1;
    options.transfer.num_heads = 2;
    options.transfer.source_layer = options.transfer.destination_layer = 1;
    options.transfer.num_layers = 2;
    reshape(&from, &to, &options);
    static const kvmem_block_pair pairs[] = {{1, 2}, {7, 0}};
    reshape(&from, &same, REF(JOB(it.run.pairs = pairs, it.run.num_pairs = NUM(pairs),
                                      it.transfer.destination_head = 1, it.transfer.num_heads = 3,
                                      it.run.flags = KVMEM_SUBMIT_VERIFY)));
}

/* Two pages of memory, which are one page once double_page_join was called: a layout of one page twice is
   rejected. */
typedef struct double_page {
    unsigned char *address;
    kvmem_region *region;
} double_page;

#define PAGE 4096

static void double_page_open(double_page *page) {
    page->address = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page->address != MAP_FAILED);
    page->region = region_adopt(page->address, 2 * PAGE);
}

static void double_page_join(const double_page *page) {
    const int file = memfd_create("page", 0);
    CHECK(file >= 0 && ftruncate(file, PAGE) == 0);
    for (size_t i = 0; i < 2; i++)
        CHECK(mmap(page->address + i * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) !=
              MAP_FAILED);
    close(file);
}

static void double_page_close(double_page *page) {
    kvmem_region_destroy(page->region);
    munmap(page->address, 2 * PAGE);
}

/* In the double page, the second block overwrites the first. */
TEST(tokens_that_are_overwritten_before_the_end_are_detected) {
    const kvmem_layout_config config =
        OPTIONS(kvmem_layout_config, it.num_blocks = 2, it.num_layers = 1, it.outer_dim = 1, it.page_size = 8,
                it.num_heads = 4, it.inner_dim = 256, it.dtype_width = 2, it.order = "BNHC");
    static const uint32_t ids[] = {0, 1};
    RETAIN_DEVICE(0);
    OPENED(double_page, page);
    OWN(kvmem_layout, destination, kvmem_layout_build,
        REF(OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_REGIONS,
                    it.regions = &page.region, it.count = 1)));
    double_page_join(&page);
    kvmem_layout *built[2];
    EXPECT_OK(build_pinned(0, &config, &built[0]));
    EXPECT_OK(build_on_device(0, &config, &built[1]));
    OWNED(kvmem_layout) filled = built[0];
    OWNED(kvmem_layout) source = built[1];
    const kvmem_layout_info strides = layout_info(filled);
    kv_fill((unsigned char *)(uintptr_t)strides.bases[0], 2 * PAGE, 1);
    static const kvmem_block_pair pairs[] = {{0, 0}, {1, 1}};
    run(filled, source, REF(JOB(it.run.pairs = pairs, it.run.num_pairs = NUM(pairs))));
    const kvmem_block_table table = {ids, NUM(ids), 0, 1};
    OWN(kvmem_transfer, transfer, kv_prepare, source, destination,
        REF(JOB(it.run.source_table = &table, it.run.destination_table = &table,
                    it.run.num_tokens = 16, it.transfer.num_heads = 4, it.run.flags = KVMEM_SUBMIT_VERIFY)));
    RUN_ENDS(KVMEM_STATUS_CORRUPT, "of 16 moved tokens are corrupt: the first is token", transfer);
}

/* A block has more rows than one launch supports: 16 tokens, 4 heads and 24 elements that are not
   contiguous. */
TEST(a_block_of_many_rows_is_staged_by_several_launches) {
    static const shape from = {"L/OBNHC", 16, 4}, to = {"L/OHCBN", 16, 4};
    RETAIN_DEVICE(0);
    static const kvmem_block_pair pairs[] = {{1, 2}, {2, 3}, {7, 0}};
    reshape(&from, &to, REF(JOB(it.run.pairs = pairs, it.run.num_pairs = NUM(pairs),
                                    it.transfer.method = KVMEM_METHOD_CUDA_STAGED)));
    reshape(&to, &from, REF(JOB(it.run.pairs = pairs, it.run.num_pairs = NUM(pairs),
                                    it.transfer.method = KVMEM_METHOD_CUDA_STAGED)));
}

TEST(staged_by_layer) {
    static const shape from = {"BLONHC", 8, 4}, to = {"L/BHNOC", 8, 4};
    RETAIN_DEVICE(0);
    static const kvmem_block_pair pairs[] = {{1, 2}, {2, 3}, {7, 0}, {0, 8}};
    reshape(&from, &to, REF(JOB(it.run.pairs = pairs, it.run.num_pairs = NUM(pairs),
                                    it.transfer.method = KVMEM_METHOD_CUDA_STAGED, it.transfer.flags = KVMEM_TRANSFER_BY_LAYER)));
}

/* As many scattered blocks as the parameters of a launch have space for, if each layer has one address. */
#define FEW 238

static kvmem_layout_config config_of_two_layers(const char *order) {
    return OPTIONS(kvmem_layout_config, it.num_blocks = 2 * FEW, it.num_layers = 2, it.outer_dim = 1,
                   it.page_size = 4, it.num_heads = 8, it.inner_dim = 8 * 128, it.dtype_width = 2,
                   it.order = order);
}

/* In memory of the GPU. One of the layers starts at an address to which only words of two bytes are aligned,
   so that its launch has the addresses of more spans. */
static kvmem_layout *build_shifted(const kvmem_layout_config *config, uint32_t shifted) {
    GET(kvmem_layout_requirements, needs, kvmem_layout_get_requirements, config);
    OWNED(kvmem_region) memory = region_create_on_gpu(2 * (needs.region_size + 256));
    kvmem_region *layers[2];
    for (uint32_t i = 0; i < NUM(layers); i++)
        EXPECT_OK(kvmem_region_create_view(memory, i * (needs.region_size + 256) + (i == shifted ? 2 : 0),
                                           needs.region_size, &layers[i], ERR));
    kvmem_layout *layout = regions_lay_out(config, layers, NUM(layers), NULL);
    for (uint32_t i = 0; i < NUM(layers); i++) kvmem_region_destroy(layers[i]);
    return layout;
}

static void reshape_by_layer(uint32_t shifted) {
    RETAIN_DEVICE(0);
    const kvmem_layout_config config = config_of_two_layers("L/OBNHC");
    const kvmem_layout_config other = config_of_two_layers("L/OBHNC");
    kvmem_layout *pinned[2];
    for (size_t i = 0; i < NUM(pinned); i++) EXPECT_OK(build_pinned(0, &config, &pinned[i]));
    OWNED(kvmem_layout) source = pinned[0];
    OWNED(kvmem_layout) found = pinned[1];
    OWNED(kvmem_layout) on_device = build_shifted(&other, shifted);
    kvmem_block_pair pairs[FEW];
    for (uint32_t i = 0; i < FEW; i++) pairs[i] = (kvmem_block_pair){2 * i, 2 * i};
    const kvmem_layout_info strides = layout_info(source);
    GET(kvmem_layout_requirements, needs, kvmem_layout_get_requirements, &config);
    for (uint64_t i = 0; i < strides.num_regions; i++)
        kv_fill((unsigned char *)(uintptr_t)strides.bases[i], needs.region_size, 1 + (uint32_t)i);
    kv_job options =
        JOB(it.run.pairs = pairs, it.run.num_pairs = FEW,
                it.transfer.method = KVMEM_METHOD_CUDA_KERNEL, it.transfer.flags = KVMEM_TRANSFER_BY_LAYER);
    run(source, on_device, &options);
    options.transfer.method = KVMEM_METHOD_CUDA_COPY;
    options.transfer.flags = 0;
    run(on_device, found, &options);
    for (uint64_t i = 0; i < 2 * FEW; i++) {
        GET(kvmem_block, expected, kvmem_layout_get_block, source, pairs[i / 2].source, i % 2, 0);
        GET(kvmem_block, piece, kvmem_layout_get_block, found, pairs[i / 2].destination, i % 2, 0);
        CHECK_BYTES((const unsigned char *)(uintptr_t)piece.address,
                    (const unsigned char *)(uintptr_t)expected.address, expected.size);
    }
}

TEST_CALL(by_layer_if_the_first_layer_has_another_alignment, reshape_by_layer(0))
TEST_CALL(by_layer_if_the_last_layer_has_another_alignment, reshape_by_layer(1))
