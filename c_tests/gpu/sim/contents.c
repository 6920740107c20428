// SPDX-License-Identifier: Apache-2.0
// All bytes of a piece have the same value, which depends on its position.
#include "contents.h"

#include "control.h"

/* So few that each piece of both sides has a unique value. */
#define MAX_PIECES 120
#define DESTINATION 128

typedef struct place {
    uint64_t block, layer, outer;
} place;

typedef struct layout_side {
    const kvmem_layout *layout;
    kvmem_layout_info info;
    unsigned first_value;
} layout_side;

typedef void visit(const contents *contents, const layout_side *side, place place);

static layout_side side_of(const kvmem_layout *layout, unsigned first_value) {
    layout_side side = {.layout = layout, .first_value = first_value};
    CHECK_EQ(kvmem_layout_get_info(layout, &side.info, NULL), KVMEM_STATUS_OK);
    return side;
}

static layout_side source_of(const contents *contents) { return side_of(contents->source, 1); }

static layout_side destination_of(const contents *contents) {
    const bool is_another = contents->destination != contents->source;
    return side_of(contents->destination, is_another ? DESTINATION : 1);
}

static unsigned char value_at(const layout_side *side, place place) {
    const uint64_t layers = place.block * side->info.num_layers + place.layer;
    const uint64_t piece = layers * side->info.outer_dim + place.outer;
    CHECK(piece < MAX_PIECES);
    return (unsigned char)(side->first_value + piece);
}

static void each_piece(const contents *contents, const layout_side *side, visit visit) {
    for (uint64_t block = 0; block < contents->num_blocks; block++) {
        for (uint64_t layer = 0; layer < side->info.num_layers; layer++) {
            for (uint64_t outer = 0; outer < side->info.outer_dim; outer++)
                visit(contents, side, (place){block, layer, outer});
        }
    }
}

static kvmem_block span_of(const layout_side *side, place place) {
    kvmem_block span = {0};
    CHECK_EQ(kvmem_layout_get_block(side->layout, place.block, place.layer, place.outer, &span, NULL),
             KVMEM_STATUS_OK);
    return span;
}

static void fill_piece(const contents *contents, const layout_side *side, place place) {
    (void)contents;
    const kvmem_block span = span_of(side, place);
    unsigned char *bytes = test_allocate(span.size);
    memset(bytes, value_at(side, place), span.size);
    if (side->info.tier == KVMEM_TIER_DISK) {
        CHECK_EQ(pwrite((int)side->info.device_id, bytes, span.size, (off_t)span.address), span.size);
    } else {
        SIM(sim_copy_bytes(span.address, (uintptr_t)bytes, span.size));
    }
    free(bytes);
}

static void check_piece(const layout_side *side, place place, unsigned char value) {
    const kvmem_block span = span_of(side, place);
    unsigned char *bytes = test_allocate(span.size);
    if (side->info.tier == KVMEM_TIER_DISK) {
        CHECK_EQ(pread((int)side->info.device_id, bytes, span.size, (off_t)span.address), span.size);
    } else {
        SIM(sim_copy_bytes((uintptr_t)bytes, span.address, span.size));
    }
    CHECK_FILLED(bytes, value, span.size);
    free(bytes);
}

/* Returns the value of a piece of the destination after the move. */
static unsigned char value_moved_to(const contents *contents, const layout_side *side, place to) {
    const kv_move *move = contents->move;
    const bool is_of_layer =
        to.layer >= move->destination_layer && to.layer < move->destination_layer + move->num_layers;
    for (size_t i = 0; i < move->num_pairs && is_of_layer; i++) {
        if (move->pairs[i].destination == to.block) {
            const layout_side source = source_of(contents);
            const uint64_t layer = to.layer - move->destination_layer + move->source_layer;
            return value_at(&source, (place){move->pairs[i].source, layer, to.outer});
        }
    }
    return value_at(side, to);
}

static void check_destination(const contents *contents, const layout_side *side, place place) {
    check_piece(side, place, value_moved_to(contents, side, place));
}

static void check_source(const contents *contents, const layout_side *side, place place) {
    (void)contents;
    check_piece(side, place, value_at(side, place));
}

void contents_fill(const contents *contents) {
    const layout_side source = source_of(contents);
    const layout_side destination = destination_of(contents);
    each_piece(contents, &source, fill_piece);
    each_piece(contents, &destination, fill_piece);
}

void contents_check_moved(const contents *contents) {
    const layout_side source = source_of(contents);
    const layout_side destination = destination_of(contents);
    each_piece(contents, &destination, check_destination);
    if (contents->source != contents->destination) each_piece(contents, &source, check_source);
}

uint32_t contents_checksum(const kvmem_layout *layout, uint64_t block) {
    const layout_side side = side_of(layout, 1);
    const size_t size = side.info.page_size * side.info.inner_dim * side.info.dtype_width;
    uint32_t checksum = 0;
    for (uint64_t layer = 0; layer < side.info.num_layers; layer++) {
        for (uint64_t outer = 0; outer < side.info.outer_dim; outer++) {
            unsigned char *bytes = test_allocate(size);
            memset(bytes, value_at(&side, (place){block, layer, outer}), size);
            checksum = crc_append(checksum, bytes, size);
            free(bytes);
        }
    }
    return checksum;
}
