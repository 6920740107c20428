// SPDX-License-Identifier: Apache-2.0
#include "parts.h"

#include "harness.h"

#define MAX_PARTS 8

const part_shape parts_shapes[PARTS] = {{"data", "L/BONHC", 3, 2, 4, 2, 40, 1},
                                       {"indexer", "LBNC", 3, 1, 4, 0, 33, 1},
                                       {"scales", "BLOHNC", 3, 2, 4, 2, 1, 4}};
const part_shape parts_reordered[PARTS] = {{"scales", "L/BNHOC", 3, 2, 4, 2, 1, 4},
                                           {"data", "L/BHNOC", 3, 2, 4, 2, 40, 1},
                                           {"indexer", "L/BNC", 3, 1, 4, 0, 33, 1}};

kvmem_layout_config part_config(const part_shape *shape) {
    const uint64_t heads = shape->heads > 0 ? shape->heads : 1;
    return OPTIONS(kvmem_layout_config, it.num_blocks = PARTS_BLOCKS, it.num_layers = shape->layers,
                   it.outer_dim = shape->outer, it.page_size = shape->tokens,
                   it.inner_dim = heads * shape->elements, it.num_heads = shape->heads,
                   it.dtype_width = shape->width, it.order = shape->order);
}

kvmem_layout *parts_build(const part_shape *shapes, size_t count, const kvmem_layout_options *options) {
    kvmem_layout_part parts[MAX_PARTS];
    CHECK(count <= MAX_PARTS);
    for (size_t i = 0; i < count; i++) {
        const kvmem_layout_config config = part_config(&shapes[i]);
        kvmem_layout_options of_part = *options;
        of_part.config = &config;
        GET(kvmem_layout *, layout, kvmem_layout_build, &of_part);
        parts[i] = (kvmem_layout_part){shapes[i].name, layout};
    }
    GET(kvmem_layout *, combined, kvmem_layout_combine, parts, count);
    for (size_t i = 0; i < count; i++) CALL(kvmem_layout_destroy((kvmem_layout *)parts[i].layout));
    return combined;
}

kvmem_layout *parts_build_system(const part_shape *shapes, size_t count, kvmem_agent *agent) {
    const kvmem_system_options system = OPTIONS(kvmem_system_options);
    return parts_build(shapes, count,
                       REF(OPTIONS(kvmem_layout_options, it.source = KVMEM_LAYOUT_ALLOCATE,
                                   it.system = &system, it.agent = agent)));
}

static void each_region(const part_shape *shape, const kvmem_layout *layout, const kvmem_layout *other,
                        void (*with)(unsigned char *bytes, unsigned char *others, size_t size)) {
    const kvmem_layout_config config = part_config(shape);
    GET(kvmem_layout_requirements, needs, kvmem_layout_get_requirements, &config);
    OWN(kvmem_layout, part, kvmem_layout_get_part, layout, shape->name);
    OWN(kvmem_layout, other_part, kvmem_layout_get_part, other, shape->name);
    const kvmem_layout_info here = layout_info(part);
    const kvmem_layout_info there = layout_info(other_part);
    for (uint64_t i = 0; i < here.num_regions; i++)
        with((unsigned char *)(uintptr_t)here.bases[i], (unsigned char *)(uintptr_t)there.bases[i],
             needs.region_size);
}

static uint32_t next_seed;

static void fill(unsigned char *bytes, unsigned char *others, size_t size) {
    (void)others;
    kv_fill(bytes, size, next_seed++);
}

static void compare(unsigned char *bytes, unsigned char *others, size_t size) {
    CHECK_BYTES(bytes, others, size);
}

void parts_fill(const part_shape *shapes, size_t count, const kvmem_layout *layout, uint32_t seed) {
    next_seed = seed;
    for (size_t i = 0; i < count; i++) each_region(&shapes[i], layout, layout, fill);
}

void parts_check_same(const part_shape *shapes, size_t count, const kvmem_layout *got,
                      const kvmem_layout *expected) {
    for (size_t i = 0; i < count; i++) each_region(&shapes[i], got, expected, compare);
}

void parts_check_blocks(const kvmem_layout *one, const kvmem_layout *other, const kvmem_block_pair *pairs,
                        size_t num_pairs) {
    for (size_t i = 0; i < num_pairs; i++) {
        uint32_t here = 0, there = 1;
        EXPECT_OK(kvmem_layout_checksum(one, &pairs[i].source, 1, KVMEM_TIMEOUT_FOREVER, &here, ERR));
        EXPECT_OK(kvmem_layout_checksum(other, &pairs[i].destination, 1, KVMEM_TIMEOUT_FOREVER, &there, ERR));
        CHECK_EQ(there, here);
    }
}

void parts_run_apart(const part_shape *shapes, size_t count, const kvmem_layout *source,
                     const kvmem_layout *destination, const kv_job *options) {
    for (size_t i = 0; i < count; i++) {
        OWN(kvmem_layout, from, kvmem_layout_get_part, source, shapes[i].name);
        OWN(kvmem_layout, to, kvmem_layout_get_part, destination, shapes[i].name);
        kv_run_with(from, to, options);
    }
}
