// SPDX-License-Identifier: Apache-2.0
// Transfers that must not be created: invalid ids, layers and geometry, and moves that overlap.
#include "harness.h"

static const kvmem_block_pair one_pair[] = {{0, 0}};

/* Pairs with all layers, and these assignments. */
#define TRANSFER(...)                                                                                \
    WITH(options_for(TEST_FIRST(__VA_ARGS__, ), NUM((TEST_FIRST(__VA_ARGS__, )))),                       \
         TEST_REST(__VA_ARGS__, (void)0))

static kv_job options_for(const kvmem_block_pair *pairs, size_t count) {
    return JOB(it.run.pairs = pairs, it.run.num_pairs = count);
}

/* Creation fails, and nothing is moved. */
static void refuse(const kv_side *source, const kv_side *destination, kv_job options,
                   kvmem_status status, const char *part) {
    REFUSE(status, part, kv_prepare, source->layout, destination->layout, &options);
    kv_side_check(source);
    kv_side_check(destination);
}

/* The same between layouts of two configurations. */
static void refuse_between(kvmem_layout_config from, kvmem_layout_config to, kv_job options,
                           kvmem_status status, const char *part) {
    KV_SIDES(source, destination, from, to);
    refuse(&source, &destination, options, status, part);
}

/* The same between the layouts of most cases. */
static void refuse_usual(kv_job options, kvmem_status status, const char *part) {
    refuse_between(kv_config(&kv_kinds[0]), kv_config(&kv_kinds[1]), options, status, part);
}

TEST(ids_out_of_range_fail) {
    static const kvmem_block_pair source_out[] = {{0, 0}, {7, 1}};
    static const kvmem_block_pair destination_out[] = {{0, 0}, {1, 4294967295u}};
    refuse_usual(TRANSFER(source_out), KVMEM_STATUS_OUT_OF_RANGE, "7");
    CHECK_HAS(test_last_message(), "source");
    refuse_usual(TRANSFER(destination_out), KVMEM_STATUS_OUT_OF_RANGE, "4294967295");
    CHECK_HAS(test_last_message(), "destination");
}

TEST(a_destination_given_twice_fails) {
    static const kvmem_block_pair twice[] = {{0, 3}, {1, 5}, {2, 3}};
    refuse_usual(TRANSFER(twice), KVMEM_STATUS_INVALID_ARGUMENT, "3");
    CHECK_HAS(test_last_message(), "destination");
}

TEST(an_empty_list_of_pairs_fails) {
    refuse_usual(options_for(one_pair, 0), KVMEM_STATUS_INVALID_ARGUMENT, "block pairs is empty");
    refuse_usual(options_for(NULL, 1), KVMEM_STATUS_INVALID_ARGUMENT, "pairs");
}

TEST(layers_out_of_range_fail) {
    static const struct {
        uint64_t source, destination, count;
    } outside[] = {
        {0, 0, 4}, {1, 0, 3},          {0, 1, 3},          {3, 0, 1},
        {0, 3, 1}, {UINT64_MAX, 0, 2}, {0, UINT64_MAX, 2}, {0, 0, UINT64_MAX},
    };
    for (size_t i = 0; i < NUM(outside); i++)
        refuse_usual(TRANSFER(one_pair, it.transfer.source_layer = outside[i].source,
                              it.transfer.destination_layer = outside[i].destination, it.transfer.num_layers = outside[i].count),
                     KVMEM_STATUS_OUT_OF_RANGE, "layer");
}

TEST(all_layers_means_from_the_first) {
    refuse_usual(TRANSFER(one_pair, it.transfer.source_layer = 1), KVMEM_STATUS_INVALID_ARGUMENT, "layer");
    refuse_usual(TRANSFER(one_pair, it.transfer.destination_layer = 1), KVMEM_STATUS_INVALID_ARGUMENT,
                 "layer");
}

TEST(all_layers_needs_equal_numbers_on_both_sides) {
    refuse_between(kv_config(&kv_kinds[0]), WITH(kv_config(&kv_kinds[0]), it.num_layers = 5),
                   TRANSFER(one_pair),
                   KVMEM_STATUS_INVALID_ARGUMENT, "layers");
    CHECK_HAS(test_last_message(), "3");
    CHECK_HAS(test_last_message(), "5");
}

/* Each field of the geometry must match, even if the size of a piece is equal. */
TEST(geometry_is_compared_field_by_field) {
    static const struct {
        const char *named;
        uint64_t outer, page, inner, width;
    } different[] = {
        {"outer_dim", 1, 4, 6, 2},  {"page_size", 2, 5, 6, 2}, {"inner_dim", 2, 4, 7, 2},
        {"dtype_width", 2, 4, 6, 4}, {"inner_dim", 2, 8, 3, 2}, {"inner_dim", 2, 4, 12, 1},
    };
    kvmem_layout_config from = kv_config(&kv_kinds[0]);
    for (size_t i = 0; i < NUM(different); i++) {
        const kvmem_layout_config to = WITH(from, it.outer_dim = different[i].outer,
                                            it.page_size = different[i].page,
                                            it.inner_dim = different[i].inner,
                                            it.dtype_width = different[i].width);
        refuse_between(from, to, TRANSFER(one_pair), KVMEM_STATUS_INVALID_ARGUMENT, different[i].named);
        refuse_between(to, from, TRANSFER(one_pair), KVMEM_STATUS_INVALID_ARGUMENT, different[i].named);
    }
}

/* Also in one of the parts. */
TEST(identities_must_agree) {
    const kvmem_layout_config none = kv_config(&kv_kinds[0]);
    const kvmem_layout_config model = WITH(none, it.identity = "llama", it.identity_size = 5);
    const kvmem_layout_config other = WITH(none, it.identity = "qwen", it.identity_size = 4);
    const kvmem_status invalid = KVMEM_STATUS_INVALID_ARGUMENT;
    refuse_between(model, other, TRANSFER(one_pair), invalid,
                   "identity is 'llama' in the source layout and 'qwen' in the destination");
    refuse_between(none, other, TRANSFER(one_pair), invalid, "identity is none in the source layout");
    refuse_between(model, none, TRANSFER(one_pair), invalid, "and none in the destination");
    KV_SIDES(source, destination, model, model);
    const kv_job job = TRANSFER(one_pair);
    kv_run_with(source.layout, destination.layout, &job);
    KV_SIDES(scales, other_scales, model, other);
    OWN(kvmem_layout, from, kvmem_layout_combine,
        ((const kvmem_layout_part[]){{"data", source.layout}, {"scales", scales.layout}}), 2);
    OWN(kvmem_layout, to, kvmem_layout_combine,
        ((const kvmem_layout_part[]){{"data", destination.layout}, {"scales", other_scales.layout}}), 2);
    REFUSE(invalid, "part 'scales'", kv_prepare, from, to, &job);
}

TEST(heads_that_both_sides_state_must_agree) {
    refuse_between(WITH(kv_config(&kv_kinds[0]), it.num_heads = 2),
                   WITH(kv_config(&kv_kinds[0]), it.num_heads = 3),
                   TRANSFER(one_pair), KVMEM_STATUS_INVALID_ARGUMENT, "num_heads");
    CHECK_HAS(test_last_message(),
              "the number of elements per head is 3 in the source layout and 2 in the destination");
}

TEST(a_block_that_is_read_and_written_fails) {
    static const kvmem_block_pair onto_itself[] = {{2, 2}}, chain[] = {{0, 1}, {1, 2}}, swap[] = {{0, 1},
                                                                                                  {1, 0}};
    OPENED(kv_side, side, REF(kv_config(&kv_kinds[0])), NULL, 1);
    refuse(&side, &side, TRANSFER(onto_itself), KVMEM_STATUS_INVALID_ARGUMENT,
           "block 2 is both a source and a destination: source and destination overlap");
    refuse(&side, &side, TRANSFER(chain), KVMEM_STATUS_INVALID_ARGUMENT, "block 1 is both");
    refuse(&side, &side, TRANSFER(swap), KVMEM_STATUS_INVALID_ARGUMENT, "overlap");
}

/* Two layouts over the same bytes, shifted by a block: the overlap is in addresses, not in ids. */
TEST(layouts_that_share_memory_are_compared_by_address) {
    static const kvmem_block_pair same_bytes[] = {{3, 2}};
    kvmem_layout_config config = kv_config(&kv_kinds[0]), small = WITH(config, it.num_blocks = 6);
    OPENED(kv_side, side, &config, NULL, 1);
    OWN(kvmem_region, shifted, kvmem_region_create_view, side.regions[0], kv_block_stride(&config),
        kv_region_size(&small));
    kv_side shifted_side = {.config = small, .layout = regions_lay_out(&small, &shifted, 1, NULL)};
    refuse(&side, &shifted_side, TRANSFER(same_bytes), KVMEM_STATUS_INVALID_ARGUMENT, "overlap");
    kvmem_layout_destroy(shifted_side.layout);
}

TEST(a_path_that_is_not_possible_fails_with_the_tiers) {
    refuse_usual(TRANSFER(one_pair, it.transfer.method = KVMEM_METHOD_NIXL), KVMEM_STATUS_UNSUPPORTED,
                 "method NIXL is not possible from tier system to tier system; possible: memcpy");
}

TEST(a_notification_needs_a_remote_side) {
    refuse_usual(TRANSFER(one_pair, it.run.notification = "done", it.run.notification_size = 4),
                 KVMEM_STATUS_INVALID_ARGUMENT, "notification");
}
