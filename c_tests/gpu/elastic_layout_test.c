// SPDX-License-Identifier: Apache-2.0
// Layouts on elastic memory: built for the maximum number of blocks, with memory for the blocks in use.
#include "elastic_side.h"
#include "caller_context.h"

#define BLOCKS 64

/* Pieces of 32 KiB, so that a few blocks fill an extent. */
static kvmem_layout_config config_of(const kv_kind *kind) {
    return WITH(kv_config(kind), it.num_blocks = BLOCKS, it.num_layers = 2, it.outer_dim = 2,
                it.page_size = 16, it.inner_dim = 1024, it.dtype_width = 2, it.alignment = 0,
                it.num_heads = 0);
}

static size_t pairs_between(kvmem_block_pair *pairs, uint32_t first, uint32_t last, uint32_t step) {
    size_t count = 0;
    for (uint32_t block = first; block < last; block += step)
        pairs[count++] = (kvmem_block_pair){.source = block, .destination = last - 1 - (block - first)};
    return count;
}

TEST(resizing_keeps_the_contents_of_blocks) {
    for (size_t i = 0; i < KV_NUM_KINDS; i++) {
        const kvmem_layout_config config = config_of(&kv_kinds[i]);
        kv_side host, back;
        kv_side_open(&host, &config, NULL, 1);
        kv_side_open(&back, &config, NULL, 2);
        OWNED(kvmem_layout) layout = elastic_layout(&config, 0, NULL);
        CHECK_EQ(elastic_layout_memory(layout).num_committed, 0);
        EXPECT_OK(kvmem_layout_resize(layout, 16, ERR));
        const uint64_t of_a_few = elastic_layout_memory(layout).num_committed;
        CHECK(of_a_few > 0);

        kvmem_block_pair there[BLOCKS], home[BLOCKS];
        const size_t count = pairs_between(there, 0, 16, 1);
        for (size_t k = 0; k < count; k++)
            home[k] = (kvmem_block_pair){.source = there[k].destination, .destination = there[k].source};
        const kv_move out = {there, count, 0, 0, 2}, in = {home, count, 0, 0, 2};
        CHECK_EQ(kv_run(host.layout, layout, &out).method, KVMEM_METHOD_CUDA_COPY);
        EXPECT_OK(kvmem_layout_resize(layout, BLOCKS, ERR)); /* the first blocks are unchanged */
        /* With outer slots first an extent contains a plane of all blocks. */
        const uint64_t of_all = elastic_layout_memory(layout).num_committed;
        CHECK(of_all > of_a_few || kv_has_outer_first(&config));
        EXPECT_OK(kvmem_layout_resize(layout, 16, ERR));
        CHECK_EQ(elastic_layout_memory(layout).num_committed, of_a_few);
        kv_run(layout, back.layout, &in);
        for (size_t k = 0; k < count; k++) {
            const kvmem_block_pair pair = {home[k].destination, home[k].destination};
            const kv_move one = {&pair, 1, 0, 0, 2};
            kv_expect_moved(&back, &host, &one);
        }
        kv_side_check(&back);
        kv_side_close(&host);
        kv_side_close(&back);
    }
}

/* The addresses of a layout. */
typedef struct plan {
    kvmem_layout_info strides;
    uint64_t bases[4];
    kvmem_block blocks[BLOCKS];
} plan;

static plan plan_of(const kvmem_layout *layout) {
    plan plan = {0};
    EXPECT_OK(kvmem_layout_get_info(layout, &plan.strides, ERR));
    CHECK(plan.strides.num_regions <= NUM(plan.bases));
    memcpy(plan.bases, plan.strides.bases, plan.strides.num_regions * sizeof(plan.bases[0]));
    for (uint64_t block = 0; block < BLOCKS; block++)
        EXPECT_OK(kvmem_layout_get_block(layout, block, 1, 1, &plan.blocks[block], ERR));
    return plan;
}

static void check_plan(const kvmem_layout *layout, const plan *expected) {
    const plan found = plan_of(layout);
    CHECK_EQ(found.strides.num_regions, expected->strides.num_regions);
    CHECK_EQ(found.strides.block_stride, expected->strides.block_stride);
    CHECK_EQ(found.strides.layer_stride, expected->strides.layer_stride);
    CHECK_EQ(found.strides.outer_stride, expected->strides.outer_stride);
    for (uint64_t base = 0; base < found.strides.num_regions; base++)
        CHECK_EQ(found.bases[base], expected->bases[base]);
    for (uint64_t block = 0; block < BLOCKS; block++) {
        CHECK_EQ(found.blocks[block].address, expected->blocks[block].address);
        CHECK_EQ(found.blocks[block].size, expected->blocks[block].size);
    }
}

TEST(resizing_does_not_change_addresses_and_strides) {
    static const uint64_t sizes[] = {16, BLOCKS, 3, 0, BLOCKS};
    for (size_t i = 0; i < KV_NUM_KINDS; i++) {
        const kvmem_layout_config config = config_of(&kv_kinds[i]);
        OWNED(kvmem_layout) layout = elastic_layout(&config, 0, NULL);
        const plan plan = plan_of(layout);
        for (size_t k = 0; k < NUM(sizes); k++) {
            EXPECT_OK(kvmem_layout_resize(layout, sizes[k], ERR));
            check_plan(layout, &plan);
        }
    }
}

#define EXTENT (2 * MIB)

/* The caller commits the memory. */
TEST(layouts_on_elastic_regions_of_the_caller) {
    for (size_t i = 0; i < KV_NUM_KINDS; i++) {
        const kvmem_layout_config config = config_of(&kv_kinds[i]);
        const uint64_t size = kv_num_regions(&config) * kv_region_size(&config);
        OWNED(kvmem_region) region = region_create_elastic(EXTENT + size, EXTENT, 0);
        elastic_parts parts;
        elastic_parts_open(&parts, &config, region, EXTENT);
        OWN(kvmem_layout, layout, kvmem_layout_build, &parts.options);
        elastic_parts_close(&parts);
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "by its region", kvmem_layout_resize(layout, BLOCKS, ERR));

        kv_side host, back;
        kv_side_open(&host, &config, NULL, 1);
        kv_side_open(&back, &config, NULL, 2);
        kvmem_block_pair pairs[BLOCKS];
        const kv_move all = {pairs, pairs_between(pairs, 0, BLOCKS, 1), 0, 0, 2};
        const kv_job options = kv_job_of(&all);
        GET(kvmem_transfer *, transfer, kv_prepare, host.layout, layout, &options);
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "not committed",
                       kvmem_transfer_submit(transfer, NULL, ERR));
        EXPECT_OK(kvmem_region_commit(region, EXTENT, size, ERR));
        RUN(transfer);
        kv_run(layout, back.layout, &all); /* reversed twice, so each block has its first contents */
        for (uint32_t block = 0; block < BLOCKS; block++) {
            const kvmem_block_pair same = {block, block};
            const kv_move one = {&same, 1, 0, 0, 2};
            kv_expect_moved(&back, &host, &one);
        }
        kv_side_check(&back);
        CALL(kvmem_transfer_destroy(transfer));
        EXPECT_OK(kvmem_region_decommit(region, EXTENT, EXTENT, ERR));
        kv_side_close(&host);
        kv_side_close(&back);
    }
}

static void refuse_parts(const kvmem_layout_config *config, uint64_t offset, const char *numbers) {
    OWNED(kvmem_region) region = region_create_elastic(64 * MIB, EXTENT, 0);
    OPENED(elastic_parts, parts, config, region, offset);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, numbers, kvmem_layout_build, &parts.options);
}

TEST(regions_in_which_blocks_cross_extents_are_rejected) {
    kvmem_layout_config config = config_of(&kv_kinds[0]);
    refuse_parts(&config, MIB,
                 "blocks with a stride of 131072 bytes, from offset 1048576 of the elastic region, cross "
                               "the ends of its extents of 2097152 bytes");
    config.inner_dim = 1536;
    refuse_parts(&config, 0, "blocks with a stride of 196608 bytes, from offset 0");
}

TEST(no_block_crosses_an_extent) {
    for (size_t i = 0; i < KV_NUM_KINDS; i++) {
        kvmem_layout_config config = config_of(&kv_kinds[i]);
        config.inner_dim = 577; /* blocks of an odd size are padded */
        OWNED(kvmem_layout) layout = elastic_layout(&config, 0, NULL);
        const uint64_t extent = elastic_layout_memory(layout).memory_page_size;
        const kvmem_layout_info strides = layout_info(layout);
        CHECK_EQ(extent % strides.block_stride, 0);
        for (uint64_t block = 0; block < BLOCKS; block++) {
            kvmem_block first, last;
            EXPECT_OK(kvmem_layout_get_block(layout, block, 1, 0, &first, ERR));
            EXPECT_OK(kvmem_layout_get_block(layout, block, 1, 1, &last, ERR));
            const uint64_t base = strides.bases[strides.num_regions > 1];
            CHECK_EQ((first.address - base) / extent, (first.address - base + first.size - 1) / extent);
            CHECK_EQ((last.address - base) / extent, (last.address - base + last.size - 1) / extent);
        }
    }
}

TEST(moving_blocks_without_memory_fails) {
    const kvmem_layout_config config = config_of(&kv_kinds[0]);
    OPENED(kv_side, host, &config, NULL, 3);
    kvmem_layout *layout = elastic_layout(&config, 0, NULL);
    const kvmem_block_pair pair = {BLOCKS - 1, BLOCKS - 1};
    const kv_move move = {&pair, 1, 0, 0, 2};
    const kv_job options = kv_job_of(&move);
    GET(kvmem_transfer *, transfer, kv_prepare, host.layout, layout, &options);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "not committed", kvmem_transfer_submit(transfer, NULL, ERR));
    EXPECT_OK(kvmem_layout_resize(layout, BLOCKS, ERR));
    EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR)); /* succeeds with memory */
    EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
    EXPECT_OK(kvmem_layout_resize(layout, 0, ERR));
    CHECK_EQ(elastic_layout_memory(layout).num_committed, 0);
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_submit(transfer, NULL, ERR));
    kvmem_transfer_destroy(transfer);
    CALL(kvmem_layout_destroy(layout));
    kv_side_check(&host);
}

TEST(invalid_calls_of_elastic_layouts_fail) {
    const kvmem_layout_config config = config_of(&kv_kinds[1]);
    kvmem_layout *layout = elastic_layout(&config, 0, NULL);
    kvmem_blob *descriptor = NULL;
    EXPECT(KVMEM_STATUS_OUT_OF_RANGE, kvmem_layout_resize(layout, BLOCKS + 1, ERR));
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_layout_export(layout, &descriptor, ERR)); /* no agent */
    CALL(kvmem_layout_destroy(layout));

    OPENED(kv_side, host, &config, NULL, 4);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "not elastic", kvmem_layout_resize(host.layout, 1, ERR));
}

static void check_row(const kvmem_block *row, uint32_t value) {
    unsigned char written[256], read[256];
    CHECK(row->size <= sizeof(written));
    memset(written, (int)(value % 255 + 1), row->size);
    CU_ON(0, cuMemcpyHtoD_v2(row->address, written, row->size));
    CU_ON(0, cuMemcpyDtoH_v2(read, row->address, row->size));
    CHECK_BYTES(read, written, row->size);
}

/* In every order, the rows of the blocks in use have memory. */
TEST(layouts_of_all_orders_are_resized_by_blocks) {
    RETAIN_DEVICE(0); /* otherwise each access to a row creates and destroys the context */
    static const char *const orders[] = {"BLOHNC", "LBONHC", "LO/BNHC", "L/BHNOC", "OBHNLC"};
    for (size_t i = 0; i < NUM(orders); i++) {
        const kvmem_layout_config config = WITH(config_of(&kv_kinds[0]), it.num_heads = 8,
                                                it.order = orders[i]);
        OWNED(kvmem_layout) layout = elastic_layout(&config, 0, NULL);
        EXPECT_OK(kvmem_layout_resize(layout, BLOCKS, ERR));
        const uint64_t of_all = elastic_layout_memory(layout).num_committed;
        const uint32_t sizes[] = {1, 5, BLOCKS};
        for (size_t k = 0; k < NUM(sizes); k++) {
            EXPECT_OK(kvmem_layout_resize(layout, sizes[k], ERR));
            /* If an axis precedes the blocks, an extent contains a plane of all blocks. */
            CHECK(sizes[k] == BLOCKS || i > 0 || elastic_layout_memory(layout).num_committed < of_all);
            for (uint32_t row = 0; row < 2 * 2 * 16 * 8; row += 5) {
                const uint32_t head = row % 8, token = row / 8 % 16, outer = row / 128 % 2, layer = row / 256;
                GET(kvmem_block, first, kvmem_layout_get_row, layout, 0, layer, outer, token, head);
                GET(kvmem_block, last, kvmem_layout_get_row, layout, sizes[k] - 1, layer, outer, token, head);
                check_row(&first, row);
                check_row(&last, row + 1);
            }
        }
    }
}
