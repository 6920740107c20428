// SPDX-License-Identifier: Apache-2.0
// Transfers with GPU memory that cannot be created: overlaps, blocks that do not exist, layouts without a
// method between them.
#include "gpu_flight.h"
#include "caller_context.h"

static void refuse(const kvmem_layout *source, const kvmem_layout *destination, const kvmem_block_pair *pairs,
                   size_t count, kvmem_status status, const char *part) {
    const kv_move move = {pairs, count, 0, 0, 3};
    const kv_job options = kv_job_of(&move);
    REFUSE(status, part, kv_prepare, source, destination, &options);
}

TEST(blocks_that_are_read_and_written_are_rejected) {
    static const kvmem_block_pair onto_itself[] = {{2, 2}};
    static const kvmem_block_pair chain[] = {{0, 1}, {1, 2}};
    static const kvmem_block_pair swap[] = {{0, 5}, {5, 0}};
    for (size_t kind = 0; kind < KV_NUM_KINDS; kind++) {
        const kvmem_layout_config config = kv_config(&kv_kinds[kind]);
        const place places[] = {PLACE_DEVICE, PLACE_ADOPTED, PLACE_SPANNED, PLACE_ELASTIC};
        for (size_t i = 0; i < NUM(places); i++) {
            OPENED(side, side, places[i], 0, &config, NULL, 1);
            const kvmem_layout *layout = side.model.layout;
            refuse(layout, layout, onto_itself, 1, KVMEM_STATUS_INVALID_ARGUMENT, "overlap");
            refuse(layout, layout, chain, 2, KVMEM_STATUS_INVALID_ARGUMENT, "overlap");
            refuse(layout, layout, swap, 2, KVMEM_STATUS_INVALID_ARGUMENT, "overlap");
            side_check(&side);
        }
    }
}

/* Builds a second layout on a side's first region, from the offset on. */
static kvmem_layout *second_layout(side *side, uint64_t offset, kvmem_layout_config *config) {
    *config = side->model.config;
    config->num_blocks = 3;
    OWN(kvmem_region, view, kvmem_region_create_view, side->model.regions[0], offset, kv_region_size(config));
    return regions_lay_out(config, &view, 1, NULL);
}

/* Blocks have 288 bytes; the other layout starts 100 bytes after the start of the third. */
TEST(overlaps_of_two_layouts_are_detected) {
    static const kvmem_block_pair overlapping[] = {{2, 0}};
    static const kvmem_block_pair apart[] = {{1, 0}};
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OPENED(side, side, PLACE_DEVICE, 0, &config, NULL, 1);
    kvmem_layout_config small;
    kvmem_layout *other = second_layout(&side, 2 * 288 + 100, &small);
    refuse(side.model.layout, other, overlapping, 1, KVMEM_STATUS_INVALID_ARGUMENT, "overlap");
    const kv_move move = {apart, 1, 0, 0, 3};
    kv_run(side.model.layout, other, &move);
    CALL(kvmem_layout_destroy(other));
    unsigned char *expected = side.model.expected + side.model.starts[0];
    memcpy(expected + 2 * 288 + 100, expected + 288, 288);
    side_check(&side);
}

TEST(errors_contain_the_ids_of_invalid_blocks) {
    static const kvmem_block_pair source_out[] = {{0, 0}, {7, 1}};
    static const kvmem_block_pair destination_out[] = {{0, 0}, {1, 4294967295u}};
    static const kvmem_block_pair twice[] = {{0, 3}, {1, 5}, {2, 3}};
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE, .source = &config);
    const kvmem_layout *here = flight.source.model.layout;
    const kvmem_layout *there = flight.destination.model.layout;
    refuse(here, there, source_out, 2, KVMEM_STATUS_OUT_OF_RANGE, "source");
    refuse(there, here, destination_out, 2, KVMEM_STATUS_OUT_OF_RANGE, "4294967295");
    refuse(here, there, twice, 3, KVMEM_STATUS_INVALID_ARGUMENT, "3");
    side_check(&flight.source);
    side_check(&flight.destination);
}

TEST(errors_contain_the_field_in_which_blocks_differ) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    const kvmem_layout_config wider = WITH(kv_config(&kv_kinds[0]), it.inner_dim = 7);
    OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_PINNED, .source = &config,
           .destination = &wider);
    flight_refuse(&flight, KVMEM_STATUS_INVALID_ARGUMENT, "inner_dim", it.transfer.method = 0);
}

TEST(notifications_need_a_peer) {
    OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_PINNED);
    flight_refuse(&flight, KVMEM_STATUS_INVALID_ARGUMENT, "notification", it.run.notification = "done",
                  it.run.notification_size = 4);
}
