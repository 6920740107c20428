// SPDX-License-Identifier: Apache-2.0
// Shares of layouts in which each byte is changed and the checksum is recomputed. Each gives an error, or a
// layout whose blocks can be read.
#include "forged.h"
#include "holder.h"
#include "kept_context.h"
#include "kinds.h"
#include "opened.h"

KEEPING_HOLDER_ROLE

/* Together these have every form in which a share describes a layout's memory. */
static const struct {
    memory_kind memory;
    size_t kind;
    blocks_placement placement;
} layouts[] = {
#ifdef KVMEM_TEST_SHARE_GPU
    {MEMORY_PINNED, 0, BLOCKS_TOGETHER}, {MEMORY_DEVICE, 1, BLOCKS_APART},
    {MEMORY_MAPPED, 1, BLOCKS_APART},    {MEMORY_ELASTIC, 2, BLOCKS_TOGETHER},
    {MEMORY_FABRIC, 0, BLOCKS_TOGETHER},
#else
    {MEMORY_SYSTEM, 0, BLOCKS_TOGETHER}, {MEMORY_SYSTEM, 1, BLOCKS_APART},
    {MEMORY_PART, 1, BLOCKS_APART},      {MEMORY_DISK, 2, BLOCKS_TOGETHER},
#endif
};

/* Returns the region of the layout that contains all of these bytes, or NULL. */
static kvmem_region *region_around(const kvmem_layout *layout, uint64_t num_regions,
                                   const kvmem_block *piece) {
    for (uint64_t i = 0; i < num_regions; i++) {
        GET(kvmem_region *, region, kvmem_layout_get_region, layout, i);
        const kvmem_region_info info = region_info(region);
        const uint64_t offset = piece->address - info.address;
        if (piece->address >= info.address && offset <= info.size && piece->size <= info.size - offset)
            return region;
        CALL(kvmem_region_destroy(region));
    }
    return NULL;
}

/* Files are read in whole pages, so a piece that starts within a page is skipped. */
static void read_piece(const kvmem_layout *layout, uint64_t num_regions, uint64_t block, uint64_t layer,
                       uint64_t outer) {
    const kvmem_layout_info strides = layout_info(layout);
    kvmem_block piece;
    if (strides.piece_size > 0) {
        EXPECT_OK(kvmem_layout_get_block(layout, block, layer, outer, &piece, ERR));
    } else { /* the last of its rows */
        GET(kvmem_layout_info, info, kvmem_layout_get_info, layout);
        EXPECT_OK(kvmem_layout_get_row(layout, block, layer, outer, info.page_size - 1, info.num_heads - 1,
                                       &piece, ERR));
    }
    OWNED(kvmem_region) region = region_around(layout, num_regions, &piece);
    CHECK(region != NULL);
    if (piece.address % 4096 == 0 && piece.size % 4096 == 0) {
        CLEANUP(test_free) unsigned char *bytes = test_allocate(piece.size);
        memory_read(region, piece.address - region_info(region).address, bytes, piece.size);
    }
}

/* Reads the first and the last block of each layer: whatever the share claims, they must be in its memory. */
static void read_layout(const kvmem_layout *layout) {
    GET(kvmem_layout_info, info, kvmem_layout_get_info, layout);
    for (uint64_t layer = 0; layer < info.num_layers; layer++) {
        for (uint64_t outer = 0; outer < info.outer_dim; outer++) {
            read_piece(layout, info.num_regions, 0, layer, outer);
            read_piece(layout, info.num_regions, info.num_blocks - 1, layer, outer);
        }
    }
}

static kvmem_status open_and_read(const parcel *forged) {
    kvmem_share *share = NULL;
    OWNED(kvmem_layout) layout = NULL;
    kvmem_status status = parcel_read(forged, &share);
    THEN(status, kvmem_share_open_layout(share, NULL, &layout, ERR));
    CALL(kvmem_share_destroy(share));
    if (status == KVMEM_STATUS_OK) read_layout(layout);
    return status;
}

static void change_each_byte(const parcel *whole, const char *what) {
    static const unsigned char changes[] = {0x01, 0x20, 0x80, 0xFF};
    CLEANUP(parcel_close) parcel forged = parcel_copy(whole);
    for (size_t at = FORGED_HEADER; at < forged.bytes.size; at++) {
        if (forged_is_of_handle(&whole->bytes, at)) continue;
        for (size_t i = 0; i < NUM(changes); i++) {
            forged.bytes.data[at] ^= changes[i];
            forge_seal(&forged);
            const kvmem_status status = open_and_read(&forged);
            if (status == KVMEM_STATUS_PANIC || status == KVMEM_STATUS_INVALID_ARGUMENT)
                FAIL("%s at %zu: %s: %s", what, at, kvmem_status_name(status), test_last_message());
            forged.bytes.data[at] ^= changes[i];
        }
    }
}

TEST(a_changed_byte_gives_a_layout_or_an_error) {
    keep_context();
    for (size_t i = 0; i < NUM(layouts); i++) {
        if (layouts[i].memory >= END_KIND) {
            continue; /* this driver creates no fabric handles */
        }
        CLEANUP(holder_clear) peer owner = holder_shared();
        holder_build(&owner, layouts[i].memory, layouts[i].kind, layouts[i].placement, NULL, 1);
        CLEANUP(parcel_close) parcel parcel = holder_share(&owner, NULL);
        CHECK_EQ(open_and_read(&parcel), KVMEM_STATUS_OK); /* warm-up: creates per-process state */
        const size_t files = count_open_files();
        change_each_byte(&parcel, memory_names[layouts[i].memory]);
        CHECK_EQ(count_open_files(), files);
        CHECK_EQ(open_and_read(&parcel), KVMEM_STATUS_OK);
    }
}

#ifndef KVMEM_TEST_SHARE_GPU
/* Changes strides and letters of the order too. */
TEST(a_changed_byte_of_an_order_gives_a_layout_or_an_error) {
    static const char *const orders[] = {"L/BOHNC", "LO/BHNC", "L/BHNOC"};
    for (size_t i = 0; i < NUM(orders); i++) {
        const kvmem_layout_config config = WITH(blocks_config(&kv_kinds[0]), it.num_heads = 8,
                                                it.order = orders[i], it.block_stride = 12288);
        OWNED(kvmem_layout) layout = blocks_build(MEMORY_SYSTEM, &config, BLOCKS_TOGETHER, NULL);
        OWN(kvmem_share, share, kvmem_share_create_layout, layout, NULL);
        CLEANUP(parcel_close) parcel parcel = parcel_of(share);
        OWNED(kvmem_layout) opened = open_layout(&parcel, 0, NULL);
        GET(kvmem_layout_info, info, kvmem_layout_get_info, opened);
        CHECK_STR(info.order, orders[i]);
        CHECK_EQ(info.block_stride, 12288);
        change_each_byte(&parcel, orders[i]);
    }
}

/* This process already has the memory mapped, so the opened layout has the same addresses. */
TEST(an_opened_layout_has_the_rows_of_its_order) {
    const kvmem_layout_config config = WITH(blocks_config(&kv_kinds[0]), it.num_heads = 8,
                                            it.order = "LO/HCBN");
    OWNED(kvmem_layout) layout = blocks_build(MEMORY_SYSTEM, &config, BLOCKS_TOGETHER, NULL);
    OWN(kvmem_share, share, kvmem_share_create_layout, layout, NULL);
    CLEANUP(parcel_close) parcel parcel = parcel_of(share);
    OWNED(kvmem_layout) opened = open_layout(&parcel, 0, NULL);
    for (uint32_t i = 0; i < 7 * 16 * 8; i++) {
        const uint32_t block = i % 7, token = i / 7 % 16, head = i / 7 / 16;
        GET(kvmem_block, there, kvmem_layout_get_row, layout, block, 2, 1, token, head);
        GET(kvmem_block, here, kvmem_layout_get_row, opened, block, 2, 1, token, head);
        CHECK_BYTES(&here, &there, sizeof(here));
    }
}
#endif
