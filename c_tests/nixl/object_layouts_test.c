// SPDX-License-Identifier: Apache-2.0
// Layouts in objects of an S3-compatible server: what transfers write and read of them, what is refused, and what happens if
// an object is missing or short, or the store refuses or does not respond.
#include "harness.h"
#include "object_store.h"

REQUIRES(object_store_lacks)

static const kvmem_block_pair out_pairs[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}, {4, 4}};
static const kv_move out = {out_pairs, NUM(out_pairs), 0, 0, 3};
static const kvmem_block_pair back_pairs[] = {{5, 1}, {0, 0}, {4, 6}};
static const kv_move back = {back_pairs, NUM(back_pairs), 0, 0, 3};
static const kv_move part_back = {back_pairs, NUM(back_pairs), 1, 0, 2};

static kvmem_agent *store_agent(const char *name) {
    object_store_start();
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    GET(kvmem_agent *, agent, kvmem_agent_create, name, NULL);
    object_store_create_backend(agent);
    return agent;
}

static kvmem_region *name_objects(const char *prefix, uint64_t object_size, uint64_t count) {
    return MADE(kvmem_region, kvmem_region_create_object,
                REF(OPTIONS(kvmem_object_options, it.key_prefix = prefix, it.object_size = object_size,
                            it.count = count)));
}

static kvmem_layout_config block_config(void) { return kv_config(&kv_kinds[0]); }

/* A layout with one object per block, or per part of a block of that size. */
static kvmem_layout *lay_out_parts(const char *prefix, uint64_t object_size, kvmem_agent *agent) {
    const kvmem_layout_config config = block_config();
    OWNED(kvmem_region) region = name_objects(prefix, object_size, kv_region_size(&config) / object_size);
    return regions_lay_out(&config, &region, 1, agent);
}

static kvmem_layout *lay_out(const char *prefix, kvmem_agent *agent) {
    const kvmem_layout_config config = block_config();
    return lay_out_parts(prefix, kv_block_stride(&config), agent);
}

/* What the objects must hold, computed without them. */
typedef struct model {
    kv_side side;
} model;

static void model_open(model *model) { kv_model_open(&model->side, REF(block_config()), 9); }
static void model_close(model *model) { kv_side_close(&model->side); }

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
    CHECK_HAS(python_send(&object_store, "list"), TEXT("padded/0000000006:%u", (unsigned)kv_block_stride(&config)));
    kv_run(objects, destination.layout, &back);
    kv_side_check_moved(&destination, &stored.side, &back);
}

static void refuse_layout(const kvmem_layout_config *config, uint64_t object_size, const char *part) {
    OWNED(kvmem_region) region = name_objects("refused/", object_size, 128);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, part, kvmem_layout_build,
           REF(OPTIONS(kvmem_layout_options, it.config = config, it.source = KVMEM_LAYOUT_REGIONS,
                       it.regions = &region, it.count = 1)));
}

TEST(layouts_that_objects_cannot_hold_are_refused) {
    const kvmem_layout_config config = block_config();
    const uint64_t block = kv_block_stride(&config);
    refuse_layout(&config, 2 * block, "axis B (block) has a stride of 288 bytes, and the objects have 576 bytes");
    refuse_layout(&config, 2 * block, "create the region with objects of 288 bytes");
    refuse_layout(&config, block - 1, "axis B (block)");
    refuse_layout(&config, 24, "48 contiguous bytes");
    OWNED(kvmem_region) region = name_objects("refused/", block, 64);
    OWN(kvmem_region, view, kvmem_region_create_view, region, block / 2, 10 * block);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "within an object", kvmem_layout_build,
           REF(OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_REGIONS,
                       it.regions = &view, it.count = 1)));
    const kvmem_layout_config layers = WITH(kv_config(&kv_kinds[1]), it.num_layers = 2);
    OWNED(kvmem_region) same = name_objects("refused/", 2 * kv_piece_size(&layers), 7);
    OWNED(kvmem_region) again = name_objects("refused/", 2 * kv_piece_size(&layers), 7);
    kvmem_region *both[] = {same, again};
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "overlap", kvmem_layout_build,
           REF(OPTIONS(kvmem_layout_options, it.config = &layers, it.source = KVMEM_LAYOUT_REGIONS,
                       it.regions = both, it.count = 2)));
    /* Objects 10 to 16, and 4 to 17, which have different addresses. */
    const uint64_t piece = kv_piece_size(&layers);
    OWNED(kvmem_region) pairs = name_objects("refused/", 2 * piece, 100);
    OWNED(kvmem_region) singles = name_objects("refused/", piece, 100);
    OWN(kvmem_region, first, kvmem_region_create_view, pairs, 20 * piece, 14 * piece);
    OWN(kvmem_region, second, kvmem_region_create_view, singles, 4 * piece, 14 * piece);
    kvmem_region *views[] = {first, second};
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "give each its own prefix", kvmem_layout_build,
           REF(OPTIONS(kvmem_layout_options, it.config = &layers, it.source = KVMEM_LAYOUT_REGIONS,
                       it.regions = views, it.count = 2)));
}

TEST(regions_of_too_few_objects_or_regions_are_refused_with_the_number) {
    const kvmem_layout_config config = block_config();
    OWNED(kvmem_region) few = name_objects("refused/", kv_block_stride(&config), config.num_blocks - 1);
    REFUSE(KVMEM_STATUS_OUT_OF_RANGE, "region 0 of 1 has 6 objects of 288 bytes, the layout needs 7; create it with that count",
           kvmem_layout_build,
           REF(OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_REGIONS, it.regions = &few,
                       it.count = 1)));
    const kvmem_layout_config layers = WITH(config, it.order = "L/OBNC");
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "; for one region of objects use an order without '/'",
           kvmem_layout_build,
           REF(OPTIONS(kvmem_layout_options, it.config = &layers, it.source = KVMEM_LAYOUT_REGIONS, it.regions = &few,
                       it.count = 1)));
    CHECK_HAS(test_last_message(), "such as BLONHC");
}

/* The plugin reports it to stderr only. */
TEST(a_backend_without_a_bucket_says_so) {
    object_store_start();
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    OWN(kvmem_agent, agent, kvmem_agent_create, "storing", NULL);
    const kvmem_parameter keys[] = {{"access_key", "key"}, {"secret_key", "secret"}};
    CHECK_EQ(unsetenv("AWS_DEFAULT_BUCKET"), 0);
    EXPECT_MESSAGE(KVMEM_STATUS_NIXL, "neither the parameter bucket nor AWS_DEFAULT_BUCKET of the environment is set",
                   kvmem_agent_create_backend(agent, "OBJ", keys, NUM(keys), ERR));
    CHECK_EQ(setenv("AWS_DEFAULT_BUCKET", "blocks", 1), 0);
    EXPECT_OK(kvmem_agent_create_backend(agent, "OBJ", keys, NUM(keys), ERR));
}

/* Most machines refuse at once. This limit is for those with terabytes of memory. */
static struct rlimit scarce_address_space_begin(void) {
    struct rlimit usual;
    CHECK_EQ(getrlimit(RLIMIT_AS, &usual), 0);
    CHECK_EQ(setrlimit(RLIMIT_AS, &(struct rlimit){UINT64_C(64) << 30, usual.rlim_max}), 0);
    return usual;
}

static void scarce_address_space_end(const struct rlimit *usual) { CHECK_EQ(setrlimit(RLIMIT_AS, usual), 0); }

/* A process that allocates more than there is would be killed. */
TEST(more_objects_than_memory_can_describe_are_refused) {
    CLEANUP(scarce_address_space_end) const struct rlimit usual = scarce_address_space_begin();
    OWNED(kvmem_region) region = name_objects("many/", 1, INT32_MAX);
    size_t count;
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_MEMORY, "list 2147483647 objects",
                   kvmem_region_get_descriptors(region, NULL, 0, &count, ERR));
    OWNED(kvmem_agent) agent = store_agent("storing");
    REFUSE(KVMEM_STATUS_OUT_OF_MEMORY, "list 2147483647 objects", kvmem_region_register, region, agent);
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
    refuse(host.layout, objects, WITH(usual, it.transfer.num_outers = 1), KVMEM_STATUS_UNSUPPORTED, "only whole objects");
    refuse(host.layout, objects, WITH(usual, it.transfer.flags = KVMEM_TRANSFER_BY_LAYER), KVMEM_STATUS_UNSUPPORTED,
           "KVMEM_TRANSFER_BY_LAYER");
    refuse(separate.layout, objects, WITH(usual, it.transfer.method = KVMEM_METHOD_NIXL), KVMEM_STATUS_UNSUPPORTED,
           "the bytes of an object are not contiguous in the other layout; request NIXL, staged");
    refuse(separate.layout, objects, WITH(usual, it.transfer.staging_size = 8 * 4096 - 1), KVMEM_STATUS_INVALID_ARGUMENT,
           "staging_size");
    refuse(host.layout, objects, WITH(usual, it.transfer.method = KVMEM_METHOD_NIXL_SERVED), KVMEM_STATUS_UNSUPPORTED,
           "possible: NIXL; NIXL, staged");
    refuse(host.layout, objects, WITH(usual, it.transfer.flags = KVMEM_TRANSFER_ZERO_COPY), KVMEM_STATUS_UNSUPPORTED,
           "KVMEM_TRANSFER_ZERO_COPY");
    OWNED(kvmem_layout) others = lay_out("others/", agent);
    refuse(objects, others, usual, KVMEM_STATUS_UNSUPPORTED, "move the blocks through a host layout");
    OWNED(kvmem_layout) unknown = lay_out("unknown/", NULL);
    refuse(host.layout, unknown, usual, KVMEM_STATUS_INVALID_STATE, "the object layout has no agent");
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "the object layout has no agent",
                   kvmem_layout_checksum(unknown, &out_pairs[0].destination, 1, KVMEM_TIMEOUT_FOREVER, &(uint32_t){0}, ERR));
    CHECK_HAS(test_last_message(), "build it with an agent that has a POSIX backend for files, an OBJ backend for objects");
    OPENED(kv_side, unregistered, REF(block_config()), NULL, 1);
    refuse(unregistered.layout, objects, usual, KVMEM_STATUS_INVALID_STATE, "the system layout has no agent");
}

/* Objects have no addresses that another process could use. */
TEST(objects_are_not_shared_or_exported) {
    OWNED(kvmem_agent) agent = store_agent("storing");
    OWNED(kvmem_layout) objects = lay_out("alone/", agent);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "tier object", kvmem_layout_export, objects);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "object storage cannot be shared", kvmem_share_create_layout, objects, NULL);
    OWNED(kvmem_region) region = name_objects("alone/", 100, 3);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "object storage cannot be shared", kvmem_share_create_region, region, NULL);
    EXPECT(KVMEM_STATUS_UNSUPPORTED,
           kvmem_region_get_residency(region, REF((kvmem_region_residency){0}), ERR));
    EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_region_commit(region, 0, 100, ERR)); /* not elastic */
    REFUSE(KVMEM_STATUS_NOT_FOUND, "", kvmem_region_get_path, region);
    EXPECT_OK(kvmem_region_sync(region, ERR));
    const kvmem_region_info info = region_info(region);
    CHECK_EQ(info.tier, KVMEM_TIER_OBJECT);
    CHECK_EQ(info.address, 0);
    CHECK_EQ(info.size, 300);
    CHECK_EQ(info.memory_page_size, 100);
    CHECK_EQ(info.fd, -1);
    CHECK_EQ(info.device, -1);
    CHECK_EQ(info.origin, KVMEM_ORIGIN_ALLOCATED);
    GET(kvmem_block, block, kvmem_layout_get_block, objects, 2, 0, 0);
    CHECK_EQ((uintptr_t)block.address, 2 * 288); /* an offset */
}

TEST(an_agent_without_a_backend_for_objects_says_so) {
    object_store_start();
    OWNED(kvmem_agent) agent = agent_open("plain");
    OWNED(kvmem_region) region = name_objects("a", 100, 3);
    REFUSE(KVMEM_STATUS_NIXL, "create a backend that accepts OBJECT memory first", kvmem_region_register, region, agent);
    OWN(kvmem_region, view, kvmem_region_create_view, region, 0, 100);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "register the region", kvmem_region_register, view, agent);
}

TEST(objects_are_deregistered_when_nothing_uses_them) {
    OWNED(kvmem_agent) agent = store_agent("storing");
    const kvmem_layout_config config = block_config();
    OWNED(kvmem_region) region = name_objects("registered/", kv_block_stride(&config), config.num_blocks);
    OWN(kvmem_registration, registration, kvmem_region_register, region, agent);
    CHECK_EQ(registration_info(registration).memory_type, KVMEM_MEMORY_OBJECT);
    CHECK_EQ(region_info(region).registration_count, 1);
    REFUSE(KVMEM_STATUS_ALREADY_EXISTS, "registered", kvmem_region_register, region, agent);
    GET(kvmem_layout *, objects, kvmem_layout_build,
        REF(OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_REGISTRATIONS,
                    it.registrations = &registration, it.count = 1)));
    EXPECT(KVMEM_STATUS_BUSY, kvmem_registration_deregister(registration, ERR));
    kvmem_layout_destroy(objects);
    EXPECT_OK(kvmem_registration_deregister(registration, ERR));
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_registration_deregister(registration, ERR));
    CHECK_EQ(region_info(region).registration_count, 0);
    /* Again, and then used. */
    objects = regions_lay_out(&config, &region, 1, agent);
    OPENED(kv_side, host, &config, agent, 1);
    kv_run(host.layout, objects, &out);
    kvmem_layout_destroy(objects);
}

/* The objects of a region are descriptors with keys. */
TEST(the_store_is_asked_for_the_objects_of_a_region) {
    OWNED(kvmem_agent) agent = store_agent("storing");
    OWNED(kvmem_layout) objects = lay_out("asked/", agent);
    OPENED(kv_side, host, REF(block_config()), agent, 1);
    kv_run(host.layout, objects, &out);
    OWN(kvmem_region, region, kvmem_layout_get_region, objects, 0);
    size_t count;
    EXPECT_OK(kvmem_region_get_descriptors(region, NULL, 0, &count, ERR));
    CHECK_EQ(count, 7);
    kvmem_nixl_descriptor descriptors[7];
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_RANGE, "capacity is 6, and the region has 7 descriptors",
                   kvmem_region_get_descriptors(region, descriptors, 6, &count, ERR));
    EXPECT_OK(kvmem_region_get_descriptors(region, ARRAY(descriptors), &count, ERR));
    CHECK_EQ(count, 7);
    OWN(kvmem_query, query, kvmem_agent_query, agent, ARRAY(descriptors), NULL);
    static const bool written[] = {true, false, false, true, true, true, true};
    for (size_t i = 0; i < NUM(written); i++) {
        GET(kvmem_query_result, result, kvmem_query_get, query, i);
        CHECK_EQ(result.exists, written[i]);
    }
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
        kv_job options = WITH(kv_job_of(&out), it.transfer.flags = KVMEM_TRANSFER_VERIFY);
        kv_run_with(host.layout, objects, &options);
        uint32_t expected[NUM(out_pairs)], found[NUM(out_pairs)], from[NUM(out_pairs)], to[NUM(out_pairs)];
        for (size_t i = 0; i < NUM(out_pairs); i++) from[i] = out_pairs[i].source, to[i] = out_pairs[i].destination;
        EXPECT_OK(kvmem_layout_checksum(host.layout, from, NUM(from), KVMEM_TIMEOUT_FOREVER, expected, ERR));
        EXPECT_OK(kvmem_layout_checksum(objects, to, NUM(to), KVMEM_TIMEOUT_FOREVER, found, ERR));
        CHECK_BYTES(found, expected, sizeof(expected));
    }
}

/* The last layers of each block, over views, have the checksums with which a transfer of these layers is verified. */
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

/* A failed read leaves nothing in use: the transfer runs again, and the memory is freed. */
TEST(an_object_that_is_missing_is_named) {
    OWNED(kvmem_agent) agent = store_agent("storing");
    OWNED(kvmem_layout) objects = lay_out("missing/", agent);
    OPENED(model, stored);
    OPENED(kv_side, source, REF(block_config()), agent, 1);
    EACH_KV_KIND(kind) {
        kv_run(source.layout, objects, &out);
        kv_expect_moved(&stored.side, &source, &out);
        OPENED(kv_side, destination, REF(kv_config(kind)), agent, 2);
        python_send(&object_store, "drop missing/0000000004");
        OWNED(kvmem_transfer) transfer = kv_transfer(objects, destination.layout, &back);
        for (int i = 0; i < 20; i++) {
            RUN_ENDS(KVMEM_STATUS_NOT_FOUND, "read object 'missing/0000000004'", transfer);
            CHECK_HAS(test_last_message(), "the store has no such object");
        }
        kv_run(source.layout, objects, &out);
        RUN(transfer);
        kv_side_check_moved(&destination, &stored.side, &back);
    }
}

/* NIXL does not report how much of an object it has read. The checksum of the block does. */
TEST(a_short_object_fails_a_checksum) {
    OWNED(kvmem_agent) agent = store_agent("storing");
    OWNED(kvmem_layout) objects = lay_out("short/", agent);
    OPENED(kv_side, source, REF(block_config()), agent, 1);
    OPENED(kv_side, destination, REF(block_config()), agent, 2);
    kv_run(source.layout, objects, &out);
    GET(uint32_t, checksum, kvmem_layout_checksum, source.layout, &out_pairs[4].source, 1, KVMEM_TIMEOUT_FOREVER);
    python_send(&object_store, "cut short/0000000004");
    const kv_move one = KV_MOVE(3, {4, 4});
    OWN(kvmem_transfer, transfer, kv_prepare, objects, destination.layout,
        KV_JOB(&one, it.run.checksums = &checksum));
    RUN_ENDS(KVMEM_STATUS_CORRUPT, "corrupt", transfer);
}

TEST(a_store_that_refuses_says_so) {
    OWNED(kvmem_agent) agent = store_agent("storing");
    OWNED(kvmem_layout) objects = lay_out("refusing/", agent);
    OPENED(kv_side, host, REF(block_config()), agent, 1);
    OWNED(kvmem_transfer) write = kv_transfer(host.layout, objects, &out);
    OWNED(kvmem_transfer) read = kv_transfer(objects, host.layout, &back);
    RUN(write);
    python_send(&object_store, "deny");
    RUN_ENDS(KVMEM_STATUS_NIXL, "write object 'refusing/", write);
    CHECK_HAS(test_last_message(), "refuses the access key");
    RUN_ENDS(KVMEM_STATUS_NIXL, "read object 'refusing/", read);
    python_send(&object_store, "allow");
    RUN(write);
    RUN(read);
}

TEST(a_bucket_that_does_not_exist_is_an_error) {
    object_store_start();
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    OWN(kvmem_agent, agent, kvmem_agent_create, "storing", NULL);
    object_store_create_backend_for(agent, "no-such-bucket", NULL);
    OWNED(kvmem_layout) objects = lay_out("a", agent);
    OPENED(kv_side, host, REF(block_config()), agent, 1);
    OWNED(kvmem_transfer) write = kv_transfer(host.layout, objects, &out);
    RUN_ENDS(KVMEM_STATUS_NIXL, "check that the bucket exists", write);
    OWNED(kvmem_transfer) read = kv_transfer(objects, host.layout, &back);
    RUN_ENDS(KVMEM_STATUS_NOT_FOUND, "or no such bucket", read);
}

/* The server is stopped: what a transfer in flight needs stays until it ends, whatever is destroyed. */
TEST(a_transfer_in_flight_holds_what_it_needs) {
    const kvmem_layout_config config = block_config();
    OWNED(kvmem_agent) agent = store_agent("storing");
    OWN(kvmem_queue, queue, kvmem_queue_create);
    unsigned char *memory = test_allocate(kv_region_size(&config));
    kv_fill(memory, kv_region_size(&config), 3);
    OWNED(kvmem_layout) objects = lay_out("flight/", agent);
    kvmem_region *adopted = region_adopt_noting_release(memory, kv_region_size(&config));
    kvmem_layout *host = regions_lay_out(&config, &adopted, 1, agent);
    kvmem_region_destroy(adopted);
    const int before = releases_count();
    GET(kvmem_transfer *, write, kv_prepare, host, objects, KV_JOB(&out, it.transfer.queue = queue));
    const peer stopped = {object_store.pid, -1};
    peer_freeze(&stopped);
    EXPECT_OK(kvmem_transfer_submit(write, NULL, ERR));
    kvmem_transfer_destroy(write);
    kvmem_layout_destroy(host);
    CHECK_EQ(releases_count(), before);
    peer_thaw(&stopped);
    CHECK_EQ(next_completion(queue).status, KVMEM_STATUS_OK);
    await_releases(before + 1);
    OPENED(kv_side, destination, &config, agent, 2);
    kv_run(objects, destination.layout, &back);
    CHECK_BYTES(kv_side_piece(&destination, 1, 0, 0), memory, 288); /* block 0, by way of object 5 */
    free(memory);
}

TEST(a_run_with_a_limit_ends_while_the_store_is_silent) {
    OWNED(kvmem_agent) agent = store_agent("storing");
    OWNED(kvmem_layout) objects = lay_out("silent/", agent);
    OPENED(kv_side, host, REF(block_config()), agent, 1);
    OWN(kvmem_transfer, write, kv_prepare, host.layout, objects,
        KV_JOB(&out, it.run.timeout_ns = MILLISECONDS(50)));
    const peer stopped = {object_store.pid, -1};
    peer_freeze(&stopped);
    RUN_ENDS(KVMEM_STATUS_TIMED_OUT, "50 ms", write);
    CHECK_HAS(test_last_message(), "NIXL with object 'silent/0000000000' and others of the OBJ backend");
    CHECK_HAS(test_last_message(), "(bucket 'blocks', endpoint_override 'http://127.0.0.1:");
    peer_thaw(&stopped);
    CHECK_EQ(submit_when_free(write), KVMEM_STATUS_OK);
    while (kvmem_transfer_poll(write, ERR) == KVMEM_STATUS_IN_PROGRESS) sched_yield();
}

TEST(checksums_with_a_limit_end_while_the_store_is_silent) {
    OWNED(kvmem_agent) agent = store_agent("storing");
    OWNED(kvmem_layout) objects = lay_out("unsummed/", agent);
    OPENED(kv_side, host, REF(block_config()), agent, 1);
    kv_run(host.layout, objects, &out);
    const uint32_t block = out_pairs[1].destination;
    GET(uint32_t, expected, kvmem_layout_checksum, objects, &block, 1, KVMEM_TIMEOUT_FOREVER);
    uint32_t found = 5;
    EXPECT_OK(kvmem_layout_checksum(objects, &block, 1, PATIENCE, &found, ERR));
    CHECK_EQ(found, expected);
    const peer stopped = {object_store.pid, -1};
    peer_freeze(&stopped);
    EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, TEXT("object 'unsummed/%010u'", block),
                   kvmem_layout_checksum(objects, &block, 1, MILLISECONDS(50), &found, ERR));
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_layout_checksum(objects, &block, 1, 0, &found, ERR));
    CHECK_EQ(found, expected);
    peer_thaw(&stopped);
    EXPECT_OK(kvmem_layout_checksum(objects, &block, 1, PATIENCE, &found, ERR));
}

/* The plugin repeats the request for 25 seconds, so the store is not asked as well. Cases after this one have another, empty
   store. */
TEST(a_store_that_is_gone_is_not_asked_for_the_object) {
    OWNED(kvmem_agent) agent = store_agent("storing");
    OWNED(kvmem_layout) objects = lay_out("gone/", agent);
    OPENED(kv_side, host, REF(block_config()), agent, 1);
    const kv_move one = KV_MOVE(3, {4, 4});
    OWNED(kvmem_transfer) write = kv_transfer(host.layout, objects, &one);
    RUN(write);
    object_store_kill();
    EXPECT_OK(kvmem_transfer_submit(write, NULL, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_NIXL, "write object 'gone/0000000004' of the OBJ backend (bucket 'blocks'",
                   kvmem_transfer_wait(write, KVMEM_TIMEOUT_FOREVER, ERR)); /* the process has a deadline */
    CHECK_HAS(test_last_message(), "the store probably does not respond, and was not asked for the object");
    object_store_restart();
    RUN(write);
}
