// SPDX-License-Identifier: Apache-2.0
// Every region of a layout starts at a multiple of its alignment, at every start address of the driver's
// memory.
#include "control.h"
#include "caller_context.h"

/* The options of each kind of memory. */
typedef struct memories {
    kvmem_system_options system;
    kvmem_disk_options disk;
    kvmem_pinned_options pinned;
    kvmem_device_options device;
    kvmem_elastic_options elastic;
} memories;

enum { SYSTEM, DISK, PINNED, DEVICE, ELASTIC, NUM_MEMORIES };

static kvmem_layout_options options_of(memories *memories, int memory, const kvmem_layout_config *config) {
    memories->system = (kvmem_system_options){.struct_size = sizeof(memories->system)};
    memories->disk = (kvmem_disk_options){.struct_size = sizeof(memories->disk)};
    memories->pinned = (kvmem_pinned_options){.struct_size = sizeof(memories->pinned)};
    memories->device = (kvmem_device_options){.struct_size = sizeof(memories->device)};
    memories->elastic = (kvmem_elastic_options){.struct_size = sizeof(memories->elastic)};
    return OPTIONS(kvmem_layout_options, it.config = config, it.source = KVMEM_LAYOUT_ALLOCATE,
                   it.system = memory == SYSTEM ? &memories->system : NULL,
                   it.disk = memory == DISK ? &memories->disk : NULL,
                   it.pinned = memory == PINNED ? &memories->pinned : NULL,
                   it.device = memory == DEVICE ? &memories->device : NULL,
                   it.elastic = memory == ELASTIC ? &memories->elastic : NULL);
}

static void check_starts(const kvmem_layout *layout, const kvmem_layout_config *config) {
    for (size_t i = 0; i < kv_num_regions(config); i++) {
        OWN(kvmem_region, region, kvmem_layout_get_region, layout, i);
        GET(kvmem_region_info, info, kvmem_region_get_info, region);
        CHECK_EQ(info.address % config->alignment, 0);
        CHECK(i == 0 || info.tier == KVMEM_TIER_ELASTIC || info.address % 512 == 0);
    }
    for (uint64_t block = 0; block < config->num_blocks; block++) {
        GET(kvmem_block, piece, kvmem_layout_get_block, layout, block, 0, 0);
        CHECK_EQ(piece.address % config->alignment, 0);
    }
}

/* Up to twice the granularity of elastic memory. */
static const uint64_t alignments[] = {1, 256, 512, 1024, 2048, 4096, 8192, 65536, 2 * MIB, 4 * MIB};

static void check_every_alignment(int memory) {
    for (size_t i = 0; i < NUM(alignments); i++) {
        for (size_t kind = 0; kind < KV_NUM_KINDS; kind++) {
            kvmem_layout_config config = WITH(kv_config(&kv_kinds[kind]), it.alignment = alignments[i]);
            memories memories;
            const kvmem_layout_options options = options_of(&memories, memory, &config);
            OWN(kvmem_layout, layout, kvmem_layout_build, &options);
            check_starts(layout, &config);
        }
    }
}

TEST(regions_of_every_kind_of_memory_are_aligned) {
    for (int memory = 0; memory < NUM_MEMORIES; memory++) check_every_alignment(memory);
}

/* As on a GPU that several programs use, where an address ending in 0x400 was observed. */
TEST(device_memory_may_start_inside_a_page) {
    static const size_t offsets[] = {256, 512, 1024, 1280, 3072, 3840};
    for (size_t i = 0; i < NUM(offsets); i++) {
        SIM(sim_set_allocation_offset(offsets[i]));
        check_every_alignment(DEVICE);
    }
    SIM(sim_reset());
}
