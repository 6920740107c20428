// SPDX-License-Identifier: Apache-2.0
// Builds layouts, and finds each piece in its region by the layout's own addresses.
#include "blocks.h"

kvmem_layout_config blocks_config(const kv_kind *kind) {
    kvmem_layout_config config = WITH(kv_config(kind), it.page_size = 16);
    config.inner_dim = 128; /* 4 KiB */
    return config;
}

static kvmem_layout *build_together(memory_kind memory, const kvmem_layout_config *config,
                                    kvmem_agent *agent) {
    kvmem_system_options system = {.struct_size = sizeof(system), .flags = KVMEM_SYSTEM_SHAREABLE};
    kvmem_disk_options disk = {.struct_size = sizeof(disk)};
    kvmem_pinned_options pinned = {.struct_size = sizeof(pinned), .flags = KVMEM_PINNED_SHAREABLE};
    kvmem_device_options device = {.struct_size = sizeof(device)};
    kvmem_elastic_options elastic = {.struct_size = sizeof(elastic)};
    elastic.flags = memory == MEMORY_FABRIC ? KVMEM_ELASTIC_FABRIC : 0;
    const bool is_elastic = memory_tier(memory) == KVMEM_TIER_ELASTIC;
    kvmem_layout_config own = *config;
    const uint64_t least = is_elastic ? MEMORY_EXTENT / 4 : 1;
    own.alignment = config->alignment > least ? config->alignment : least;
    GET(kvmem_layout *, layout, kvmem_layout_build,
        REF(OPTIONS(kvmem_layout_options, it.config = &own, it.agent = agent,
                    it.source = KVMEM_LAYOUT_ALLOCATE, it.system = memory == MEMORY_SYSTEM ? &system : NULL,
                    it.disk = memory == MEMORY_DISK ? &disk : NULL,
                    it.pinned = memory == MEMORY_PINNED ? &pinned : NULL,
                    it.device = memory == MEMORY_DEVICE ? &device : NULL,
                    it.elastic = is_elastic ? &elastic : NULL)));
    if (is_elastic) EXPECT_OK(kvmem_layout_resize(layout, config->num_blocks, ERR));
    return layout;
}

/* Each region is larger than necessary, and all sizes differ. */
static kvmem_layout *build_apart(memory_kind memory, const kvmem_layout_config *config, kvmem_agent *agent) {
    kvmem_region *regions[KV_MAX_REGIONS];
    const uint64_t count = kv_num_regions(config);
    for (uint64_t i = 0; i < count; i++)
        regions[i] = memory_create(memory, kv_region_size(config) + (i + 1) * 4096, NULL);
    kvmem_layout *layout = regions_lay_out(config, regions, count, agent);
    for (uint64_t i = 0; i < count; i++) kvmem_region_destroy(regions[i]);
    return layout;
}

kvmem_layout *blocks_build(memory_kind memory, const kvmem_layout_config *config, blocks_placement placement,
                           kvmem_agent *agent) {
    return placement == BLOCKS_TOGETHER ? build_together(memory, config, agent)
                                  : build_apart(memory, config, agent);
}

typedef void (*visit)(const kvmem_region *region, uint64_t offset, const unsigned char *expected,
                      uint64_t size);

#define TAIL UINT64_C(4096)

/* Bytes after a region's last block must not change. If the region is larger than its blocks, they contain
   the model's guard band. */
static void visit_tails(const kvmem_layout *layout, const kv_side *model, visit visit) {
    for (uint64_t i = 0; i < kv_num_regions(&model->config); i++) {
        OWN(kvmem_region, region, kvmem_layout_get_region, layout, i);
        const kvmem_region_info info = region_info(region);
        const uint64_t blocks = kv_region_size(&model->config);
        const kvmem_layout_info strides = layout_info(layout);
        const bool is_padded = strides.block_stride != kv_block_stride(&model->config);
        if (!is_padded && info.size >= blocks + TAIL)
            visit(region, blocks, model->expected + model->starts[i] + blocks, TAIL);
    }
}

static void visit_pieces(const kvmem_layout *layout, const kv_side *model, visit visit) {
    const kvmem_layout_config *config = &model->config;
    for (uint64_t layer = 0; layer < config->num_layers; layer++) {
        OWN(kvmem_region, region, kvmem_layout_get_region, layout, kv_region_of(config, layer));
        const kvmem_region_info info = region_info(region);
        for (uint64_t block = 0; block < config->num_blocks; block++) {
            for (uint64_t outer = 0; outer < config->outer_dim; outer++) {
                GET(kvmem_block, piece, kvmem_layout_get_block, layout, block, layer, outer);
                CHECK_EQ(piece.size, kv_piece_size(config));
                const uint64_t offset = piece.address - info.address;
                CHECK(piece.address >= info.address && offset + piece.size <= info.size);
                const size_t start = model->starts[kv_region_of(config, layer)];
                const size_t at = start + kv_offset(config, block, layer, outer);
                visit(region, offset, model->expected + at, piece.size);
            }
        }
    }
}

static void write_piece(const kvmem_region *region, uint64_t offset, const unsigned char *bytes,
                        uint64_t size) {
    memory_write(region, offset, bytes, size);
}

static void check_piece(const kvmem_region *region, uint64_t offset, const unsigned char *expected,
                        uint64_t size) {
    unsigned char *bytes = test_allocate(size);
    memory_read(region, offset, bytes, size);
    CHECK_BYTES(bytes, expected, size);
    free(bytes);
}

void blocks_write(const kvmem_layout *layout, const kv_side *model) {
    visit_pieces(layout, model, write_piece);
    visit_tails(layout, model, write_piece);
}

void blocks_check(const kvmem_layout *layout, const kv_side *model) {
    visit_pieces(layout, model, check_piece);
    visit_tails(layout, model, check_piece);
}
