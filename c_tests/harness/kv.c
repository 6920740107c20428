// SPDX-License-Identifier: Apache-2.0
// The reference formula, patterned memory, and the model of a transfer.
#include "kv.h"

#include "harness.h"

#define GUARD 4096

const kv_kind kv_kinds[KV_NUM_KINDS] = {
    {"fully contiguous", KVMEM_ORDER_FULLY_CONTIGUOUS},
    {"layer separate, block first", KVMEM_ORDER_LAYER_SEPARATE},
    {"layer separate, block second", KVMEM_ORDER_LAYER_SEPARATE_OUTER_FIRST},
};

kvmem_layout_config kv_config(const kv_kind *kind) {
    return OPTIONS(kvmem_layout_config, it.num_blocks = 7, it.num_layers = 3, it.outer_dim = 2,
                   it.page_size = 4, it.inner_dim = 6, it.dtype_width = 2, it.order = kind->order);
}

kvmem_layout_config kv_large_config(const kv_kind *kind) {
    return WITH(kv_config(kind), it.num_blocks = 64, it.num_layers = 4, it.page_size = 16,
                it.inner_dim = 1024);
}

kv_sent_config kv_sent(const kvmem_layout_config *config) {
    kv_sent_config sent = {.config = WITH(*config, it.order = NULL)};
    CHECK(strlen(config->order) < sizeof(sent.order));
    strcpy(sent.order, config->order);
    return sent;
}

kvmem_layout_config kv_received(const kv_sent_config *sent) { return WITH(sent->config,
                                                                          it.order = sent->order); }

static bool is_contiguous(const kvmem_layout_config *config) {
    return strcmp(config->order, KVMEM_ORDER_FULLY_CONTIGUOUS) == 0;
}

bool kv_has_outer_first(const kvmem_layout_config *config) {
    return strcmp(config->order, KVMEM_ORDER_LAYER_SEPARATE_OUTER_FIRST) == 0;
}

static uint64_t round_up(uint64_t value, uint64_t multiple) {
    return multiple <= 1 ? value : (value + multiple - 1) / multiple * multiple;
}

uint64_t kv_piece_size(const kvmem_layout_config *config) {
    return config->page_size * config->inner_dim * config->dtype_width;
}

uint64_t kv_block_stride(const kvmem_layout_config *config) {
    const uint64_t piece = kv_piece_size(config);
    if (is_contiguous(config))
        return round_up(config->num_layers * config->outer_dim * piece, config->alignment);
    if (kv_has_outer_first(config)) return round_up(piece, config->alignment);
    return round_up(config->outer_dim * piece, config->alignment);
}

uint64_t kv_num_regions(const kvmem_layout_config *config) {
    return is_contiguous(config) ? 1 : config->num_layers;
}

uint64_t kv_region_size(const kvmem_layout_config *config) {
    const uint64_t blocks = config->num_blocks * kv_block_stride(config);
    return kv_has_outer_first(config) ? config->outer_dim * blocks : blocks;
}

uint64_t kv_region_of(const kvmem_layout_config *config, uint64_t layer) {
    return is_contiguous(config) ? 0 : layer;
}

uint64_t kv_offset(const kvmem_layout_config *config, uint64_t block, uint64_t layer, uint64_t outer) {
    const uint64_t piece = kv_piece_size(config);
    const uint64_t stride = kv_block_stride(config);
    if (is_contiguous(config))
        return block * stride + layer * config->outer_dim * piece + outer * piece;
    if (kv_has_outer_first(config))
        return outer * config->num_blocks * stride + block * stride;
    return block * stride + outer * piece;
}

void kv_fill(unsigned char *bytes, size_t size, uint32_t seed) {
    uint32_t state = seed * 2654435761u + 1;
    for (size_t i = 0; i < size; i++) {
        state = state * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(state >> 24);
    }
}

void kv_model_open(kv_side *side, const kvmem_layout_config *config, uint32_t seed) {
    *side = (kv_side){.config = *config, .num_regions = kv_num_regions(config)};
    CHECK(side->num_regions <= KV_MAX_REGIONS);
    const size_t step = round_up(GUARD, config->alignment);
    size_t end = step;
    for (size_t i = 0; i < side->num_regions; i++) {
        side->starts[i] = end;
        end = round_up(end + kv_region_size(config) + step, step);
    }
    side->size = end;
    side->memory = aligned_alloc(step, side->size);
    CHECK(side->memory != NULL);
    kv_fill(side->memory, side->size, seed);
    side->expected = test_allocate(side->size);
    memcpy(side->expected, side->memory, side->size);
}

static void adopt_regions(kv_side *side) {
    for (size_t i = 0; i < side->num_regions; i++)
        side->regions[i] = region_adopt(side->memory + side->starts[i], kv_region_size(&side->config));
}

void kv_side_build(kv_side *side, kvmem_agent *agent) {
    side->layout = regions_lay_out(&side->config, side->regions, side->num_regions, agent);
}

void kv_side_open(kv_side *side, const kvmem_layout_config *config, kvmem_agent *agent, uint32_t seed) {
    kv_model_open(side, config, seed);
    adopt_regions(side);
    kv_side_build(side, agent);
}

void kv_side_close(kv_side *side) {
    kvmem_layout_destroy(side->layout);
    for (size_t i = 0; i < side->num_regions; i++) kvmem_region_destroy(side->regions[i]);
    free(side->memory);
    free(side->expected);
    *side = (kv_side){0};
}

static size_t piece_at(const kv_side *side, uint64_t block, uint64_t layer, uint64_t outer) {
    return side->starts[kv_region_of(&side->config, layer)] + kv_offset(&side->config, block, layer, outer);
}

unsigned char *kv_side_piece(const kv_side *side, uint64_t block, uint64_t layer, uint64_t outer) {
    return side->memory + piece_at(side, block, layer, outer);
}

static void expect_pair_moved(kv_side *destination, const kv_side *source, const kv_move *move,
                              kv_outers outers, kvmem_block_pair pair) {
    const uint64_t piece = kv_piece_size(&source->config);
    for (uint64_t layer = 0; layer < move->num_layers; layer++) {
        for (uint64_t outer = 0; outer < outers.count; outer++) {
            const size_t from =
                piece_at(source, pair.source, move->source_layer + layer, outers.source + outer);
            const size_t to = piece_at(destination, pair.destination, move->destination_layer + layer,
                                       outers.destination + outer);
            memcpy(destination->expected + to, source->expected + from, piece);
        }
    }
}

void kv_expect_outers_moved(kv_side *destination, const kv_side *source, const kv_move *move,
                            kv_outers outers) {
    for (size_t i = 0; i < move->num_pairs; i++)
        expect_pair_moved(destination, source, move, outers, move->pairs[i]);
}

void kv_expect_moved(kv_side *destination, const kv_side *source, const kv_move *move) {
    kv_expect_outers_moved(destination, source, move, (kv_outers){0, 0, source->config.outer_dim});
}

void kv_side_check(const kv_side *side) { CHECK_BYTES(side->memory, side->expected, side->size); }

void kv_side_check_guards(const kv_side *side) {
    size_t from = 0;
    for (size_t i = 0; i <= side->num_regions; i++) {
        const size_t to = i < side->num_regions ? side->starts[i] : side->size;
        CHECK_BYTES(side->memory + from, side->expected + from, to - from);
        from = to + kv_region_size(&side->config);
    }
}

void kv_side_check_moved(kv_side *destination, const kv_side *source, const kv_move *move) {
    kv_expect_moved(destination, source, move);
    kv_side_check(destination);
}

kvmem_status kv_prepare(const kvmem_layout *source, const kvmem_layout *destination, const kv_job *job,
                        kvmem_transfer **transfer, kvmem_error **error) {
    kvmem_status status = kvmem_transfer_create(source, destination, &job->transfer, transfer, error);
    if (status != KVMEM_STATUS_OK) return status;
    status = kvmem_transfer_prepare(*transfer, &job->run, error);
    if (status != KVMEM_STATUS_OK) DESTROYED(kvmem_transfer, *transfer);
    return status;
}

kv_job kv_job_of(const kv_move *move) {
    return JOB(it.run.pairs = move->pairs, it.run.num_pairs = move->num_pairs,
                   it.transfer.source_layer = move->source_layer, it.transfer.destination_layer = move->destination_layer,
                   it.transfer.num_layers = move->num_layers);
}

kv_job kv_outers_job(const kv_move *move, kv_outers outers) {
    return WITH(kv_job_of(move), it.transfer.source_outer = outers.source,
                it.transfer.destination_outer = outers.destination, it.transfer.num_outers = outers.count);
}

kvmem_transfer *kv_transfer(const kvmem_layout *source, const kvmem_layout *destination,
                            const kv_move *move) {
    return MADE(kvmem_transfer, kv_prepare, source, destination, KV_JOB(move));
}

kvmem_transfer_info kv_run(const kvmem_layout *source, const kvmem_layout *destination, const kv_move *move) {
    return kv_run_by(source, destination, move, 0);
}

kvmem_transfer_info kv_run_by(const kvmem_layout *source, const kvmem_layout *destination,
                              const kv_move *move, uint32_t method) {
    kv_job options = WITH(kv_job_of(move), it.transfer.method = method);
    return kv_run_with(source, destination, &options);
}

kvmem_transfer_info kv_run_with(const kvmem_layout *source, const kvmem_layout *destination,
                                const kv_job *options) {
    OWN(kvmem_transfer, transfer, kv_prepare, source, destination, options);
    RUN(transfer);
    EXPECT_OK(kvmem_transfer_poll(transfer, ERR));
    GET(kvmem_transfer_info, info, kvmem_transfer_get_info, transfer);
    return info;
}

void kv_expect_mismatches(const kvmem_transfer *transfer, const uint64_t *expected, size_t count) {
    uint64_t found[64];
    memset(found, 0xEE, sizeof(found));
    GET(size_t, number, kvmem_transfer_get_mismatches, transfer, found, NUM(found));
    CHECK_EQ(number, count);
    for (size_t i = 0; i < count; i++) CHECK_EQ(found[i], expected[i]);
    CHECK_EQ(found[count], UINT64_C(0xEEEEEEEEEEEEEEEE));
    size_t all = 0;
    EXPECT_OK(kvmem_transfer_get_mismatches(transfer, NULL, 0, &all, ERR));
    CHECK_EQ(all, count);
    if (count < 2) return;
    found[1] = 99;
    EXPECT_OK(kvmem_transfer_get_mismatches(transfer, found, 1, &all, ERR));
    CHECK(all == count && found[0] == expected[0] && found[1] == 99);
}

void kv_cancel_and_run(kvmem_transfer *transfer) {
    kvmem_status status = KVMEM_STATUS_OK;
    while (status == KVMEM_STATUS_OK) {
        EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
        EXPECT_OK(kvmem_transfer_cancel(transfer, ERR));
        status = kvmem_transfer_wait(transfer, PATIENCE, ERR);
    }
    CHECK_EQ(status, KVMEM_STATUS_CANCELLED);
    RUN(transfer);
}

const char *kv_explained(const kvmem_transfer *transfer, kvmem_compared_method *used) {
    static _Thread_local char said[8192];
    OWNED(kvmem_blob) text = NULL;
    EXPECT_OK(kvmem_transfer_explain(transfer, &text, ERR));
    if (used != NULL) *used = transfer_used_method(transfer);
    CHECK(kvmem_blob_size(text) < sizeof(said));
    return strcpy(said, kvmem_blob_data(text));
}
