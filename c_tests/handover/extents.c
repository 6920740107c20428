// SPDX-License-Identifier: Apache-2.0
// Each layer has a block whose bytes identify the layer.
#include "extents.h"

#include "driver.h"

#define FILES 6000
#define BLOCKS 4
#define LAYER (2 * MIB) /* one extent */
#define SAMPLE 512

void extents_allow_files(void) {
    struct rlimit limit;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur < FILES) {
        CHECK(limit.rlim_max >= FILES);
        limit.rlim_cur = FILES;
        CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    }
}

/* The regions are created by the caller: a layout that allocates elastic memory has only one. */
static kvmem_layout *build(void) {
    kvmem_layout_config config = {.struct_size = sizeof(config), .order = KVMEM_ORDER_LAYER_SEPARATE};
    config.num_blocks = BLOCKS;
    config.num_layers = EXTENTS_LAYERS;
    config.outer_dim = 2;
    config.page_size = 16;
    config.inner_dim = 128;
    config.dtype_width = 2;
    kvmem_region *layers[EXTENTS_LAYERS];
    for (size_t i = 0; i < EXTENTS_LAYERS; i++) layers[i] = region_create_elastic(LAYER, LAYER, LAYER);
    kvmem_layout *layout = regions_lay_out(&config, layers, EXTENTS_LAYERS, NULL);
    for (size_t i = 0; i < EXTENTS_LAYERS; i++) kvmem_region_destroy(layers[i]);
    return layout;
}

static kvmem_block piece_of(const kvmem_layout *layout, uint64_t layer) {
    GET(kvmem_block, piece, kvmem_layout_get_block, layout, layer % BLOCKS, layer, 0);
    CHECK(piece.size >= SAMPLE);
    return piece;
}

static kvmem_region *region_of(const kvmem_layout *layout, uint64_t layer) {
    return MADE(kvmem_region, kvmem_layout_get_region, layout, layer);
}

void extents_open(extents *extents) {
    keep_device();
    extents->layout = build();
    unsigned char sample[SAMPLE];
    for (uint64_t layer = 0; layer < EXTENTS_LAYERS; layer++) {
        memset(sample, (int)(layer % 251), sizeof(sample));
        write_device(0, piece_of(extents->layout, layer).address, sample, sizeof(sample));
    }
    EXPECT_OK(kvmem_share_create_layout(extents->layout, NULL, &extents->share, ERR));
    CHECK_EQ(share_info(extents->share).num_fds, EXTENTS_FDS);
}

void extents_close(extents *extents) {
    kvmem_share_destroy(extents->share);
    kvmem_layout_destroy(extents->layout);
}

static uint64_t importers_of(const kvmem_layout *layout, uint64_t layer) {
    OWNED(kvmem_region) region = region_of(layout, layer);
    return region_holders(region).importers;
}

uint64_t extents_importers(const extents *extents) {
    const uint64_t first = importers_of(extents->layout, 0);
    CHECK_EQ(importers_of(extents->layout, EXTENTS_LAYERS - 1), first);
    return first;
}

void extents_check_free(extents *extents) {
    OWNED(kvmem_region) first = region_of(extents->layout, 0);
    EXPECT(KVMEM_STATUS_BUSY, kvmem_region_decommit(first, 0, LAYER, ERR));
    DESTROYED(kvmem_share, extents->share);
    EXPECT_OK(kvmem_region_decommit(first, 0, LAYER, ERR));
}

kvmem_layout *extents_import(const kvmem_share *share) {
    keep_device();
    GET(kvmem_layout *, layout, kvmem_share_open_layout, share, NULL);
    unsigned char sample[SAMPLE];
    for (uint64_t layer = 0; layer < EXTENTS_LAYERS; layer++) {
        read_device(0, sample, piece_of(layout, layer).address, sizeof(sample));
        CHECK_FILLED(sample, (unsigned char)(layer % 251), sizeof(sample));
    }
    return layout;
}

kvmem_status extents_check_owner(const kvmem_layout *layout) {
    OWNED(kvmem_region) region = region_of(layout, 0);
    return kvmem_region_check_owner(region, ERR);
}
