// SPDX-License-Identifier: Apache-2.0
// The addresses of blocks: each is compared with the formula, for single queries, strides and allocated
// regions.
#include "harness.h"

/* Geometries that differ in every field, with odd sizes and alignments among them. */
static const struct {
    uint64_t blocks, layers, outer, page, inner, width, alignment;
} shapes[] = {
    {1, 1, 1, 1, 1, 1, 0},      {7, 3, 2, 4, 6, 2, 0},      {5, 1, 2, 16, 8, 2, 1},
    {4, 8, 1, 3, 5, 1, 64},     {9, 2, 2, 4, 6, 2, 64},     {3, 4, 2, 5, 7, 4, 512},
    {6, 16, 2, 16, 32, 2, 256}, {2, 3, 2, 64, 128, 8, 512}, {3, 2, 1, 1, 100, 8, 4096},
};

static kvmem_layout_config shape_config(size_t shape, const kv_kind *kind) {
    return WITH(kv_config(kind), it.num_blocks = shapes[shape].blocks, it.num_layers = shapes[shape].layers,
                it.outer_dim = shapes[shape].outer, it.page_size = shapes[shape].page,
                it.inner_dim = shapes[shape].inner, it.dtype_width = shapes[shape].width,
                it.alignment = shapes[shape].alignment);
}

static kvmem_layout_info strides_of(const kvmem_layout *layout) {
    const kvmem_layout_info strides = layout_info(layout);
    return strides;
}

/* The header's formula for engines that compute addresses themselves. */
static uint64_t address_by_strides(const kvmem_layout_info *strides, uint64_t block, uint64_t layer,
                                   uint64_t outer) {
    return strides->bases[strides->num_regions > 1 ? layer : 0] + block * strides->block_stride +
           layer * strides->layer_stride + outer * strides->outer_stride;
}

static void check_piece(const kvmem_layout *layout, const kvmem_layout_config *config,
                        const uint64_t *regions, uint64_t block, uint64_t layer, uint64_t outer) {
    const uint64_t offset = kv_offset(config, block, layer, outer);
    const uint64_t address = regions[kv_region_of(config, layer)] + offset;
    const kvmem_layout_info strides = strides_of(layout);
    GET(kvmem_block, piece, kvmem_layout_get_block, layout, block, layer, outer);
    CHECK_EQ(piece.address, address);
    CHECK_EQ(piece.size, kv_piece_size(config));
    CHECK_EQ(address_by_strides(&strides, block, layer, outer), address);
    CHECK_EQ(strides.piece_size, kv_piece_size(config));
    CHECK(offset + piece.size <= kv_region_size(config));
}

static void check_pieces(const kvmem_layout *layout, const kvmem_layout_config *config,
                         const uint64_t *regions) {
    for (uint64_t block = 0; block < config->num_blocks; block++) {
        for (uint64_t layer = 0; layer < config->num_layers; layer++) {
            for (uint64_t outer = 0; outer < config->outer_dim; outer++)
                check_piece(layout, config, regions, block, layer, outer);
        }
    }
}

/* A layer-separate layout with one layer has one base, so the stride of layers is unused. */
static void check_bases(const kvmem_layout *layout, const kvmem_layout_config *config) {
    const kvmem_layout_info strides = strides_of(layout);
    CHECK_EQ(strides.num_regions, kv_num_regions(config));
    CHECK_EQ(strides.block_stride, kv_block_stride(config));
    if (strides.num_regions > 1) CHECK_EQ(strides.layer_stride, 0);
}

TEST(addresses_follow_the_formula) {
    for (size_t kind = 0; kind < KV_NUM_KINDS; kind++) {
        for (size_t shape = 0; shape < NUM(shapes); shape++) {
            const kvmem_layout_config config = shape_config(shape, &kv_kinds[kind]);
            OPENED(kv_side, side, &config, NULL, 1);
            uint64_t regions[KV_MAX_REGIONS];
            for (size_t i = 0; i < side.num_regions; i++)
                regions[i] = (uintptr_t)(side.memory + side.starts[i]);
            check_pieces(side.layout, &config, regions);
            check_bases(side.layout, &config);
            kv_side_check(&side); /* building writes no byte */
        }
    }
}

TEST(every_block_starts_at_a_multiple_of_the_alignment) {
    for (size_t kind = 0; kind < KV_NUM_KINDS; kind++) {
        for (size_t shape = 0; shape < NUM(shapes); shape++) {
            const kvmem_layout_config config = shape_config(shape, &kv_kinds[kind]);
            CHECK_EQ(kv_block_stride(&config) % (config.alignment ? config.alignment : 1), 0);
            OPENED(kv_side, side, &config, NULL, 1);
            for (uint64_t block = 0; block < config.num_blocks; block++) {
                GET(kvmem_block, piece, kvmem_layout_get_block, side.layout, block, 0, 0);
                CHECK_EQ(piece.address % (config.alignment ? config.alignment : 1), 0);
            }
        }
    }
}

TEST(requirements_are_those_of_a_build) {
    for (size_t kind = 0; kind < KV_NUM_KINDS; kind++) {
        for (size_t shape = 0; shape < NUM(shapes); shape++) {
            const kvmem_layout_config config = shape_config(shape, &kv_kinds[kind]);
            const uint64_t count = kv_num_regions(&config);
            const uint64_t step = config.alignment > 512 ? config.alignment : 512;
            GET(kvmem_layout_requirements, needs, kvmem_layout_get_requirements, &config);
            CHECK_EQ(needs.num_regions, count);
            CHECK_EQ(needs.region_size, kv_region_size(&config));
            CHECK_EQ(needs.total_size, count * kv_region_size(&config));
            CHECK(needs.allocation_size >= needs.total_size);
            CHECK(needs.allocation_size <= needs.total_size + (step - 1) * count);
        }
    }
}

static kvmem_region_info nth_region_info(const kvmem_layout *layout, size_t index) {
    OWN(kvmem_region, region, kvmem_layout_get_region, layout, index);
    return region_info(region);
}

/* One allocation contains all regions, each at the next multiple of 512 or of a larger alignment. */
TEST(allocated_regions_follow_each_other) {
    for (size_t kind = 0; kind < KV_NUM_KINDS; kind++) {
        for (size_t shape = 0; shape < NUM(shapes); shape++) {
            const kvmem_layout_config config = shape_config(shape, &kv_kinds[kind]);
            const uint64_t step = config.alignment > 512 ? config.alignment : 512;
            OWNED(kvmem_layout) layout = layout_allocate_system(&config);
            uint64_t regions[KV_MAX_REGIONS];
            for (size_t i = 0; i < kv_num_regions(&config); i++) {
                const kvmem_region_info info = nth_region_info(layout, i);
                regions[i] = info.address;
                CHECK_EQ(info.size, kv_region_size(&config));
                CHECK_EQ(info.address % step, 0);
                if (i > 0) {
                    const uint64_t end = regions[i - 1] + info.size;
                    CHECK_EQ(info.address, (end + step - 1) / step * step);
                }
            }
            check_pieces(layout, &config, regions);
        }
    }
}

TEST(alignment_beyond_a_page_holds_for_allocated_memory) {
    for (size_t kind = 0; kind < KV_NUM_KINDS; kind++) {
        kvmem_layout_config config = WITH(kv_config(&kv_kinds[kind]), it.alignment = 2 * MIB);
        OWNED(kvmem_layout) layout = layout_allocate_system(&config);
        for (uint64_t layer = 0; layer < config.num_layers; layer++) {
            const bool starts_block = kv_num_regions(&config) > 1 || layer == 0;
            GET(kvmem_block, piece, kvmem_layout_get_block, layout, 6, layer, 0);
            CHECK_EQ(piece.address % (2 * MIB), starts_block ? 0 : layer * 2 * kv_piece_size(&config));
            memset((void *)(uintptr_t)piece.address, 1, piece.size);
        }
    }
}

TEST(allocated_memory_is_zeroed) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    OWNED(kvmem_layout) layout = layout_allocate_system(&config);
    for (size_t i = 0; i < config.num_layers; i++) {
        const kvmem_region_info info = nth_region_info(layout, i);
        CHECK_FILLED((void *)(uintptr_t)info.address, 0, info.size);
    }
}

/* On disk an address is a file offset. */
TEST(disk_layouts_return_file_offsets) {
    for (size_t kind = 0; kind < KV_NUM_KINDS; kind++) {
        const kvmem_layout_config config = kv_config(&kv_kinds[kind]);
        kvmem_disk_options disk = OPTIONS(kvmem_disk_options);
        kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = &config,
                                               it.source = KVMEM_LAYOUT_ALLOCATE, it.disk = &disk);
        OWN(kvmem_layout, layout, kvmem_layout_build, &options);
        uint64_t regions[KV_MAX_REGIONS];
        for (size_t i = 0; i < kv_num_regions(&config); i++) {
            regions[i] = nth_region_info(layout, i).address;
            CHECK_EQ(regions[i], i * ((kv_region_size(&config) + 511) / 512 * 512));
        }
        check_pieces(layout, &config, regions);
        GET(kvmem_layout_info, info, kvmem_layout_get_info, layout);
        CHECK_EQ(info.tier, KVMEM_TIER_DISK);
        CHECK_EQ(info.memory_type, KVMEM_MEMORY_FILE);
        CHECK_EQ(info.device_id, nth_region_info(layout, 0).fd);
    }
}

TEST(info_repeats_the_configuration) {
    kvmem_layout_config config = WITH(kv_config(&kv_kinds[2]), it.alignment = 64, it.num_heads = 3);
    OWNED(kvmem_layout) layout = layout_allocate_system(&config);
    GET(kvmem_layout_info, info, kvmem_layout_get_info, layout);
    CHECK_EQ(info.num_blocks, 7);
    CHECK_EQ(info.num_layers, 3);
    CHECK_EQ(info.outer_dim, 2);
    CHECK_EQ(info.page_size, 4);
    CHECK_EQ(info.inner_dim, 6);
    CHECK_EQ(info.dtype_width, 2);
    CHECK_EQ(info.alignment, 64);
    CHECK_EQ(info.num_heads, 3);
    CHECK_EQ(info.num_regions, 3);
    CHECK_STR(info.order, KVMEM_ORDER_LAYER_SEPARATE_OUTER_FIRST);
    CHECK_EQ(info.tier, KVMEM_TIER_SYSTEM);
    CHECK_EQ(info.memory_type, KVMEM_MEMORY_DRAM);
    CHECK_EQ(info.device_id, 0);
    CHECK_EQ(info.locality, KVMEM_LOCALITY_LOCAL);
    CHECK_EQ(info.num_parts, 0);
}

TEST(indices_are_checked_one_by_one) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OWNED(kvmem_layout) layout = layout_allocate_system(&config);
    kvmem_block piece = {77, 77};
    const kvmem_status outside = KVMEM_STATUS_OUT_OF_RANGE;
    EXPECT_MESSAGE(outside, "block 7", kvmem_layout_get_block(layout, 7, 0, 0, &piece, ERR));
    EXPECT_MESSAGE(outside, "layer 3", kvmem_layout_get_block(layout, 0, 3, 0, &piece, ERR));
    EXPECT_MESSAGE(outside, "outer", kvmem_layout_get_block(layout, 0, 0, 2, &piece, ERR));
    EXPECT(outside, kvmem_layout_get_block(layout, UINT32_MAX, 0, 0, &piece, ERR));
    CHECK_EQ(piece.address, 77);
    REFUSE(KVMEM_STATUS_OUT_OF_RANGE, "", kvmem_layout_get_region, layout, 1);
}
