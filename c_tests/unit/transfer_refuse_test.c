// SPDX-License-Identifier: Apache-2.0
// Transfers that must not be created: ids, layers and geometry that do not fit, and moves that overlap.
#include "harness.h"

static const kvmem_block_pair one_pair[] = {{0, 0}};

static kvmem_transfer_options options_for(const kvmem_block_pair *pairs, size_t count) {
    kvmem_transfer_options options;
    memset(&options, 0xEE, sizeof(options)); /* init must overwrite every byte */
    kvmem_transfer_options_init(&options, sizeof(options));
    options.pairs = pairs;
    options.num_pairs = count;
    return options;
}

/* Refused at creation, with nothing moved. */
static void refuse(const kv_side *source, const kv_side *destination, const kvmem_transfer_options *options,
                   kvmem_status status, const char *part) {
    REFUSE(status, part, kvmem_transfer_create, source->layout, destination->layout, options);
    kv_side_check(source);
    kv_side_check(destination);
}

static void open_sides(kv_side *source, kv_side *destination) {
    kv_side_open(source, REF(kv_config(&kv_kinds[0])), NULL, 1);
    kv_side_open(destination, REF(kv_config(&kv_kinds[1])), NULL, 2);
}

static void close_sides(kv_side *source, kv_side *destination) {
    kv_side_close(source);
    kv_side_close(destination);
}

TEST(ids_out_of_range_are_named) {
    static const kvmem_block_pair source_out[] = {{0, 0}, {7, 1}};
    static const kvmem_block_pair destination_out[] = {{0, 0}, {1, 4294967295u}};
    kv_side source;
    kv_side destination;
    open_sides(&source, &destination);
    kvmem_transfer_options options = options_for(source_out, 2);
    refuse(&source, &destination, &options, KVMEM_STATUS_OUT_OF_RANGE, "7");
    CHECK_HAS(test_last_message(), "source");
    options = options_for(destination_out, 2);
    refuse(&source, &destination, &options, KVMEM_STATUS_OUT_OF_RANGE, "4294967295");
    CHECK_HAS(test_last_message(), "destination");
    close_sides(&source, &destination);
}

TEST(a_destination_twice_is_named) {
    static const kvmem_block_pair twice[] = {{0, 3}, {1, 5}, {2, 3}};
    kv_side source;
    kv_side destination;
    open_sides(&source, &destination);
    refuse(&source, &destination, REF(options_for(twice, 3)), KVMEM_STATUS_INVALID_ARGUMENT, "3");
    CHECK_HAS(test_last_message(), "destination");
    close_sides(&source, &destination);
}

TEST(no_pairs_is_refused) {
    kv_side source;
    kv_side destination;
    open_sides(&source, &destination);
    kvmem_transfer_options options = options_for(one_pair, 0);
    refuse(&source, &destination, &options, KVMEM_STATUS_INVALID_ARGUMENT, "block pairs is empty");
    options = options_for(NULL, 1);
    refuse(&source, &destination, &options, KVMEM_STATUS_INVALID_ARGUMENT, "pairs");
    close_sides(&source, &destination);
}

TEST(layers_out_of_range_are_refused) {
    static const struct {
        uint64_t source, destination, count;
    } outside[] = {
        {0, 0, 4}, {1, 0, 3},          {0, 1, 3},          {3, 0, 1},
        {0, 3, 1}, {UINT64_MAX, 0, 2}, {0, UINT64_MAX, 2}, {0, 0, UINT64_MAX},
    };
    kv_side source;
    kv_side destination;
    open_sides(&source, &destination);
    for (size_t i = 0; i < NUM(outside); i++) {
        kvmem_transfer_options options = WITH(options_for(one_pair, 1), it.source_layer = outside[i].source,
                                              it.destination_layer = outside[i].destination,
                                              it.num_layers = outside[i].count);
        refuse(&source, &destination, &options, KVMEM_STATUS_OUT_OF_RANGE, "layer");
    }
    close_sides(&source, &destination);
}

TEST(all_layers_means_from_the_first) {
    kv_side source;
    kv_side destination;
    open_sides(&source, &destination);
    kvmem_transfer_options options = WITH(options_for(one_pair, 1), it.source_layer = 1);
    refuse(&source, &destination, &options, KVMEM_STATUS_INVALID_ARGUMENT, "layer");
    options = options_for(one_pair, 1);
    options.destination_layer = 1;
    refuse(&source, &destination, &options, KVMEM_STATUS_INVALID_ARGUMENT, "layer");
    close_sides(&source, &destination);
}

TEST(all_layers_needs_as_many_on_both_sides) {
    kv_side source;
    kv_side destination;
    kv_side_open(&source, REF(kv_config(&kv_kinds[0])), NULL, 1);
    kv_side_open(&destination, REF(WITH(kv_config(&kv_kinds[0]), it.num_layers = 5)), NULL, 2);
    refuse(&source, &destination, REF(options_for(one_pair, 1)), KVMEM_STATUS_INVALID_ARGUMENT, "layers");
    CHECK_HAS(test_last_message(), "3");
    CHECK_HAS(test_last_message(), "5");
    close_sides(&source, &destination);
}

/* Each field of the geometry that must agree, even where the bytes of a piece are as many. */
TEST(geometry_is_compared_field_by_field) {
    static const struct {
        const char *named;
        uint64_t outer, page, inner, width;
    } different[] = {
        {"outer_dim", 1, 4, 6, 2},  {"page_size", 2, 5, 6, 2}, {"inner_dim", 2, 4, 7, 2},
        {"dtype_width", 2, 4, 6, 4}, {"page_size", 2, 8, 3, 2}, {"inner_dim", 2, 4, 12, 1},
    };
    const kvmem_layout_config from = kv_config(&kv_kinds[0]);
    for (size_t i = 0; i < NUM(different); i++) {
        kvmem_layout_config to = from;
        to.outer_dim = different[i].outer;
        to.page_size = different[i].page;
        to.inner_dim = different[i].inner;
        to.dtype_width = different[i].width;
        kv_side source;
        kv_side destination;
        kv_side_open(&source, &from, NULL, 1);
        kv_side_open(&destination, &to, NULL, 2);
        const kvmem_transfer_options options = options_for(one_pair, 1);
        refuse(&source, &destination, &options, KVMEM_STATUS_INVALID_ARGUMENT, different[i].named);
        refuse(&destination, &source, &options, KVMEM_STATUS_INVALID_ARGUMENT, different[i].named);
        close_sides(&source, &destination);
    }
}

TEST(heads_that_both_sides_state_must_agree) {
    kvmem_layout_config from = kv_config(&kv_kinds[0]);
    kvmem_layout_config to = from;
    from.num_heads = 2;
    to.num_heads = 3;
    kv_side source;
    kv_side destination;
    kv_side_open(&source, &from, NULL, 1);
    kv_side_open(&destination, &to, NULL, 2);
    refuse(&source, &destination, REF(options_for(one_pair, 1)), KVMEM_STATUS_INVALID_ARGUMENT, "num_heads");
    close_sides(&source, &destination);
}

TEST(a_block_read_and_written_at_once_is_refused) {
    static const kvmem_block_pair onto_itself[] = {{2, 2}};
    static const kvmem_block_pair chain[] = {{0, 1}, {1, 2}};
    static const kvmem_block_pair swap[] = {{0, 1}, {1, 0}};
    static const struct {
        const kvmem_block_pair *pairs;
        size_t count;
    } overlapping[] = {{onto_itself, 1}, {chain, 2}, {swap, 2}};
    OPENED(kv_side, side, REF(kv_config(&kv_kinds[0])), NULL, 1);
    for (size_t i = 0; i < NUM(overlapping); i++) {
        const kvmem_transfer_options options = options_for(overlapping[i].pairs, overlapping[i].count);
        refuse(&side, &side, &options, KVMEM_STATUS_INVALID_ARGUMENT, "overlap");
    }
}

/* Two layouts over the same bytes, one block apart: the overlap shows in addresses, not in ids. */
TEST(layouts_that_share_memory_are_compared_by_address) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OPENED(kv_side, side, &config, NULL, 1);
    kvmem_layout_config small = config;
    small.num_blocks = 6;
    OWN(kvmem_region, shifted, kvmem_region_create_view, side.regions[0], kv_block_stride(&config),
        kv_region_size(&small));
    kv_side shifted_side = {.config = small, .layout = regions_lay_out(&small, &shifted, 1, NULL)};
    static const kvmem_block_pair same_bytes[] = {{3, 2}};
    const kvmem_transfer_options options = options_for(same_bytes, 1);
    refuse(&side, &shifted_side, &options, KVMEM_STATUS_INVALID_ARGUMENT, "overlap");
    kvmem_layout_destroy(shifted_side.layout);
}

TEST(a_notification_needs_a_remote_side) {
    kv_side source;
    kv_side destination;
    open_sides(&source, &destination);
    kvmem_transfer_options options = WITH(options_for(one_pair, 1), it.notification = "done",
                                          it.notification_size = 4);
    refuse(&source, &destination, &options, KVMEM_STATUS_INVALID_ARGUMENT, "notification");
    close_sides(&source, &destination);
}
