// SPDX-License-Identifier: Apache-2.0
// In the model, blocks are a few pages apart, to keep it small. On the GPU four blocks fill an extent.
#include "elastic_side.h"

#include "caller_context.h"

#define LAYOUT_ALIGNMENT (MIB / 2)

kvmem_layout *elastic_layout(const kvmem_layout_config *config, int device, kvmem_agent *agent) {
    kvmem_elastic_options elastic = OPTIONS(kvmem_elastic_options, it.device = device);
    kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = config, it.agent = agent,
                                           it.source = KVMEM_LAYOUT_ALLOCATE, it.elastic = &elastic);
    return MADE(kvmem_layout, kvmem_layout_build, &options);
}

void elastic_parts_open(elastic_parts *parts, const kvmem_layout_config *config, kvmem_region *region,
                        uint64_t offset) {
    *parts = (elastic_parts){0};
    parts->options = (kvmem_layout_options){.struct_size = sizeof(parts->options)};
    parts->options.config = config;
    parts->options.source = KVMEM_LAYOUT_REGIONS;
    parts->options.regions = parts->views;
    parts->options.count = kv_num_regions(config);
    CHECK(parts->options.count <= NUM(parts->views));
    const uint64_t size = kv_region_size(config);
    for (size_t i = 0; i < parts->options.count; i++)
        EXPECT_OK(kvmem_region_create_view(region, offset + i * size, size, &parts->views[i], ERR));
}

void elastic_parts_close(elastic_parts *parts) {
    for (size_t i = 0; i < parts->options.count; i++) CALL(kvmem_region_destroy(parts->views[i]));
}

kvmem_region_info elastic_layout_memory(const kvmem_layout *layout) {
    OWN(kvmem_region, region, kvmem_layout_get_region, layout, 0);
    return region_info(region);
}

void elastic_side_open(side *side, const kvmem_layout_config *config, kvmem_agent *agent, uint32_t seed) {
    const bool partly = side->place == PLACE_ELASTIC_PARTLY;
    kvmem_layout_config own = *config;
    own.num_blocks *= partly ? 2 : 1;
    own.alignment = ELASTIC_MODEL_ALIGNMENT;
    kv_model_open(&side->model, &own, seed);
    own.alignment = LAYOUT_ALIGNMENT;
    side->model.layout = elastic_layout(&own, side->device, agent);
    side->blocks_in_use = config->num_blocks;
    EXPECT_OK(kvmem_layout_resize(side->model.layout, side->blocks_in_use, ERR));
    const kvmem_region_info info = elastic_layout_memory(side->model.layout);
    CHECK_EQ(info.num_committed < info.num_extents, partly);
    elastic_side_write(side);
}

/* A contiguous range of one block, in the model and on the GPU. */
typedef struct slot {
    size_t at;
    uint64_t address;
    size_t size;
} slot;

typedef void (*visit)(const side *side, const slot *slot);

static void visit_slots(const side *side, visit visit) {
    const kvmem_layout_config *config = &side->model.config;
    const uint64_t planes = kv_has_outer_first(config) ? config->outer_dim : 1;
    const kvmem_layout_info strides = layout_info(side->model.layout);
    for (uint64_t region = 0; region < strides.num_regions; region++) {
        for (uint64_t plane = 0; plane < planes; plane++) {
            for (uint64_t block = 0; block < side->blocks_in_use; block++) {
                const slot slot = {
                    .at = side->model.starts[region] + kv_offset(config, block, region, plane),
                    .address =
                        strides.bases[region] + plane * strides.outer_stride + block * strides.block_stride,
                    .size = kv_block_stride(config),
                };
                visit(side, &slot);
            }
        }
    }
}

static void write_slot(const side *side, const slot *slot) {
    write_device(side->device, slot->address, side->model.expected + slot->at, slot->size);
}

static void read_slot(const side *side, const slot *slot) {
    read_device(side->device, side->model.memory + slot->at, slot->address, slot->size);
}

void elastic_side_write(const side *side) { visit_slots(side, write_slot); }

void elastic_side_read(side *side) { visit_slots(side, read_slot); }
