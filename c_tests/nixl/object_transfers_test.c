// SPDX-License-Identifier: Apache-2.0
// Transfers to and from objects of an S3-compatible server: what they write and read, checksums, and what is
// refused.
#include "object_sides.h"

REQUIRES(object_store_lacks)

static bool is_contiguous(const kv_kind *kind) { return kind == &kv_kinds[0]; }

TEST(blocks_of_every_kind_become_objects_and_come_back_in_another_order) {
    OWNED(kvmem_agent) agent = store_agent("storing");
    EACH_TWO_KV_KINDS(from, to) {
        OWNED(kvmem_layout) objects = lay_out("kinds/", agent);
        OPENED(model, stored);
        OPENED(kv_side, source, REF(kv_config(from)), agent, 1);
        OPENED(kv_side, destination, REF(kv_config(to)), agent, 2);
        kvmem_transfer_info info = kv_run(source.layout, objects, &out);
        CHECK_EQ(info.method, is_contiguous(from) ? KVMEM_METHOD_NIXL : KVMEM_METHOD_NIXL_STAGED);
        CHECK_EQ(info.num_requests, NUM(out_pairs));
        kv_expect_moved(&stored.side, &source, &out);
        kv_side_check(&source);
        info = kv_run(objects, destination.layout, &back);
        CHECK_EQ(info.method, is_contiguous(to) ? KVMEM_METHOD_NIXL : KVMEM_METHOD_NIXL_STAGED);
        CHECK_EQ(info.num_requests, NUM(back_pairs));
        kv_side_check_moved(&destination, &stored.side, &back);
    }
    const kvmem_layout_config config = block_config();
    const unsigned size = (unsigned)kv_block_stride(&config);
    CHECK_STR(python_send(&object_store, "list"),
              TEXT("kinds/0000000000:%u kinds/0000000003:%u kinds/0000000004:%u kinds/0000000005:%u kinds/0000000006:%u",
                   size, size, size, size, size));
}

/* Layers and outer slots of objects are read by themselves, directly or through staging memory. */
TEST(parts_of_objects_are_read) {
    OWNED(kvmem_agent) agent = store_agent("storing");
    OWNED(kvmem_layout) objects = lay_out("parts/", agent);
    OPENED(model, stored);
    OPENED(kv_side, source, REF(block_config()), agent, 1);
    kv_run(source.layout, objects, &out);
    kv_expect_moved(&stored.side, &source, &out);
    static const uint32_t methods[] = {0, KVMEM_METHOD_NIXL, KVMEM_METHOD_NIXL_STAGED};
    for (size_t i = 0; i < NUM(methods); i++) {
        EACH_KV_KIND(to) {
            OPENED(kv_side, destination, REF(kv_config(to)), agent, 2);
            const kvmem_transfer_info info = kv_run_by(objects, destination.layout, &part_back, methods[i]);
            CHECK(methods[i] == 0 || info.method == methods[i]);
            kv_side_check_moved(&destination, &stored.side, &part_back);
            const kv_outers values = {1, 0, 1};
            kv_job options = WITH(kv_outers_job(&back, values), it.transfer.method = methods[i]);
            kv_run_with(objects, destination.layout, &options);
            kv_expect_outers_moved(&destination, &stored.side, &back, values);
            kv_side_check(&destination);
        }
    }
}

/* With an object for each layer of a block, layers can be written by themselves, and one after the other. */
TEST(objects_of_a_layer_are_written_by_layer) {
    const kvmem_layout_config config = block_config();
    OWNED(kvmem_agent) agent = store_agent("storing");
    OWNED(kvmem_layout) objects = lay_out_parts("layers/", 2 * kv_piece_size(&config), agent);
    OPENED(model, stored);
    OPENED(kv_side, source, &config, agent, 1);
    OPENED(kv_side, destination, &config, agent, 2);
    kv_job options = WITH(kv_job_of(&out), it.transfer.flags = KVMEM_TRANSFER_BY_LAYER);
    CHECK_EQ(kv_run_with(source.layout, objects, &options).method, KVMEM_METHOD_NIXL);
    kv_expect_moved(&stored.side, &source, &out);
    static const kvmem_block_pair one[] = {{2, 3}};
    const kv_move last_layer = {one, 1, 0, 2, 1};
    CHECK_EQ(kv_run(source.layout, objects, &last_layer).num_requests, 1);
    kv_expect_moved(&stored.side, &source, &last_layer);
    static const kvmem_block_pair all[] = {{0, 0}, {3, 1}, {4, 2}, {5, 3}, {6, 4}};
    const kv_move all_back = {all, NUM(all), 0, 0, 3};
    kv_run(objects, destination.layout, &all_back);
    kv_side_check_moved(&destination, &stored.side, &all_back);
}

/* The bytes behind the block of an object that is larger are not stored. */
TEST(an_object_that_is_larger_than_its_block_has_only_the_block) {
    const kvmem_layout_config config = block_config();
    const kvmem_layout_config padded = WITH(config, it.alignment = 256);
    const uint64_t stride = kv_block_stride(&padded);
    CHECK(stride > kv_block_stride(&config));
    OWNED(kvmem_agent) agent = store_agent("storing");
    OWNED(kvmem_region) region = name_objects("padded/", stride, padded.num_blocks);
    OWNED(kvmem_layout) objects = regions_lay_out(&padded, &region, 1, agent);
    OPENED(model, stored);
    OPENED(kv_side, source, &config, agent, 1);
    OPENED(kv_side, destination, &config, agent, 2);
    kv_run(source.layout, objects, &out);
    kv_expect_moved(&stored.side, &source, &out);
    CHECK_HAS(python_send(&object_store, "list"), TEXT("padded/0000000006:%u",
                                                       (unsigned)kv_block_stride(&config)));
    kv_run(objects, destination.layout, &back);
    kv_side_check_moved(&destination, &stored.side, &back);
}

static void refuse(const kvmem_layout *source, const kvmem_layout *destination, kv_job options,
                   kvmem_status status, const char *part) {
    REFUSE(status, part, kv_prepare, source, destination, &options);
}

TEST(transfers_that_objects_cannot_take_are_refused) {
    OWNED(kvmem_agent) agent = store_agent("storing");
    OWNED(kvmem_layout) objects = lay_out("refused/", agent);
    OPENED(kv_side, host, REF(block_config()), agent, 1);
    OPENED(kv_side, separate, REF(kv_config(&kv_kinds[1])), agent, 1);
    const kv_job usual = kv_job_of(&out);
    refuse(host.layout, objects, WITH(usual, it.transfer.num_layers = 2), KVMEM_STATUS_UNSUPPORTED,
           "'refused/0000000000': 192 of its 288 bytes");
    refuse(host.layout, objects, WITH(usual, it.transfer.num_outers = 1), KVMEM_STATUS_UNSUPPORTED,
           "only whole objects");
    refuse(host.layout, objects, WITH(usual, it.transfer.flags = KVMEM_TRANSFER_BY_LAYER),
           KVMEM_STATUS_UNSUPPORTED,
           "KVMEM_TRANSFER_BY_LAYER");
    refuse(separate.layout, objects, WITH(usual, it.transfer.method = KVMEM_METHOD_NIXL),
           KVMEM_STATUS_UNSUPPORTED,
           "the bytes of an object are not contiguous in the other layout; request NIXL, staged");
    refuse(separate.layout, objects, WITH(usual, it.transfer.staging_size = 8 * 4096 - 1),
           KVMEM_STATUS_INVALID_ARGUMENT,
           "staging_size");
    refuse(host.layout, objects, WITH(usual, it.transfer.method = KVMEM_METHOD_NIXL_SERVED),
           KVMEM_STATUS_UNSUPPORTED,
           "possible: NIXL; NIXL, staged");
    refuse(host.layout, objects, WITH(usual, it.transfer.flags = KVMEM_TRANSFER_ZERO_COPY),
           KVMEM_STATUS_UNSUPPORTED,
           "KVMEM_TRANSFER_ZERO_COPY");
    OWNED(kvmem_layout) others = lay_out("others/", agent);
    refuse(objects, others, usual, KVMEM_STATUS_UNSUPPORTED, "move the blocks through a host layout");
    OWNED(kvmem_layout) unknown = lay_out("unknown/", NULL);
    refuse(host.layout, unknown, usual, KVMEM_STATUS_INVALID_STATE, "the object layout has no agent");
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "the object layout has no agent",
                   kvmem_layout_checksum(unknown, &out_pairs[0].destination, 1, KVMEM_TIMEOUT_FOREVER, &(uint32_t){0}, ERR));
    CHECK_HAS(test_last_message(),
              "build it with an agent that has a POSIX backend for files, an OBJ backend for objects");
    OPENED(kv_side, unregistered, REF(block_config()), NULL, 1);
    refuse(unregistered.layout, objects, usual, KVMEM_STATUS_INVALID_STATE, "the system layout has no agent");
}

TEST(two_agents_use_the_same_objects) {
    OWNED(kvmem_agent) writer = store_agent("writer");
    OWNED(kvmem_agent) reader = store_agent("reader");
    OWNED(kvmem_layout) written = lay_out("common/", writer);
    OWNED(kvmem_layout) read = lay_out("common/", reader);
    OPENED(model, stored);
    OPENED(kv_side, source, REF(block_config()), writer, 1);
    OPENED(kv_side, destination, REF(kv_config(&kv_kinds[2])), reader, 2);
    kv_run(source.layout, written, &out);
    kv_expect_moved(&stored.side, &source, &out);
    kv_run(read, destination.layout, &back);
    kv_side_check_moved(&destination, &stored.side, &back);
    refuse(read, source.layout, kv_job_of(&back), KVMEM_STATUS_INVALID_ARGUMENT, "one agent must know both");
}

TEST(checksums_of_objects_are_those_of_their_blocks) {
    OWNED(kvmem_agent) agent = store_agent("storing");
    OWNED(kvmem_layout) objects = lay_out("sums/", agent);
    EACH_KV_KIND(kind) {
        OPENED(kv_side, host, REF(kv_config(kind)), agent, 1);
        kv_job options = WITH(kv_job_of(&out), it.run.flags = KVMEM_SUBMIT_VERIFY);
        kv_run_with(host.layout, objects, &options);
        uint32_t expected[NUM(out_pairs)], found[NUM(out_pairs)], from[NUM(out_pairs)], to[NUM(out_pairs)];
        for (size_t i = 0; i < NUM(out_pairs); i++)
            from[i] = out_pairs[i].source, to[i] = out_pairs[i].destination;
        EXPECT_OK(kvmem_layout_checksum(host.layout, from, NUM(from), KVMEM_TIMEOUT_FOREVER, expected, ERR));
        EXPECT_OK(kvmem_layout_checksum(objects, to, NUM(to), KVMEM_TIMEOUT_FOREVER, found, ERR));
        CHECK_BYTES(found, expected, sizeof(expected));
    }
}

/* The last layers of each block, over views, have the checksums with which a transfer of these layers is
   verified. */
TEST(checksums_of_a_range_of_layers_are_those_of_a_layout_of_the_range) {
    const kvmem_layout_config config = block_config();
    const uint64_t layer = 2 * kv_piece_size(&config), first = 1;
    OWNED(kvmem_agent) agent = store_agent("storing");
    OWNED(kvmem_region) region = name_objects("range/", layer, kv_region_size(&config) / layer);
    OWNED(kvmem_layout) objects = regions_lay_out(&config, &region, 1, agent);
    OPENED(kv_side, host, &config, agent, 1);
    OPENED(kv_side, destination, &config, agent, 2);
    kv_run(host.layout, objects, &out);
    const kvmem_layout_config last =
        WITH(config, it.order = "BLONC", it.num_layers = config.num_layers - first,
             it.block_stride = kv_block_stride(&config));
    const uint64_t offset = first * layer;
    OWN(kvmem_region, of_last, kvmem_region_create_view, region, offset, kv_region_size(&config) - offset);
    OWNED(kvmem_layout) range = regions_lay_out(&last, &of_last, 1, agent);
    uint32_t checksums[NUM(back_pairs)], blocks[NUM(back_pairs)];
    for (size_t i = 0; i < NUM(back_pairs); i++) blocks[i] = back_pairs[i].source;
    EXPECT_OK(kvmem_layout_checksum(range, blocks, NUM(blocks), KVMEM_TIMEOUT_FOREVER, checksums, ERR));
    OWN(kvmem_transfer, read, kv_prepare, objects, destination.layout,
        KV_JOB(&part_back, it.run.checksums = checksums));
    RUN(read);
    checksums[1] ^= 1;
    OWN(kvmem_transfer, wrong, kv_prepare, objects, destination.layout,
        KV_JOB(&part_back, it.run.checksums = checksums));
    RUN_ENDS(KVMEM_STATUS_CORRUPT, "corrupt", wrong);
}
