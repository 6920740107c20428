// SPDX-License-Identifier: Apache-2.0
// Regions of objects of an S3-compatible server, and layouts of them: what is possible, what is refused, and
// how long they are registered.
#include "object_sides.h"

REQUIRES(object_store_lacks)

static void refuse_layout(const kvmem_layout_config *config, uint64_t object_size, const char *part) {
    OWNED(kvmem_region) region = name_objects("refused/", object_size, 128);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, part, kvmem_layout_build,
           REF(OPTIONS(kvmem_layout_options, it.config = config, it.source = KVMEM_LAYOUT_REGIONS,
                       it.regions = &region, it.count = 1)));
}

TEST(layouts_that_objects_cannot_hold_are_refused) {
    const kvmem_layout_config config = block_config();
    const uint64_t block = kv_block_stride(&config);
    refuse_layout(&config, 2 * block,
                  "axis B (block) has a stride of 288 bytes, and the objects have 576 bytes");
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
    REFUSE(KVMEM_STATUS_OUT_OF_RANGE,
           "region 0 of 1 has 6 objects of 288 bytes, the layout needs 7; create it with that count",
           kvmem_layout_build,
           REF(OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_REGIONS,
                       it.regions = &few,
                       it.count = 1)));
    const kvmem_layout_config layers = WITH(config, it.order = "L/OBNC");
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "; for one region of objects use an order without '/'",
           kvmem_layout_build,
           REF(OPTIONS(kvmem_layout_options, it.config = &layers, it.source = KVMEM_LAYOUT_REGIONS,
                       it.regions = &few,
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
    EXPECT_MESSAGE(KVMEM_STATUS_NIXL,
                   "neither the parameter bucket nor AWS_DEFAULT_BUCKET of the environment is set",
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

/* Objects have no addresses that another process could use. */
TEST(objects_are_not_shared_or_exported) {
    OWNED(kvmem_agent) agent = store_agent("storing");
    OWNED(kvmem_layout) objects = lay_out("alone/", agent);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "tier object", kvmem_layout_export, objects);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "object storage cannot be shared", kvmem_share_create_layout, objects,
           NULL);
    SCRATCH(folder);
    EXPECT_OK(kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR)); /* to have metadata for peers */
    OWN(kvmem_directory, directory, kvmem_directory_create,
        REF(OPTIONS(kvmem_directory_options, it.folder = folder.path)));
    const kvmem_named_layout named = {.name = "cache", .layout = objects};
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "tier object",
                   kvmem_directory_publish(directory, agent, &named, 1, PATIENCE, ERR));
    REFUSE(KVMEM_STATUS_NOT_FOUND, "storing", kvmem_directory_look_up, directory, "storing", PATIENCE);
    OWNED(kvmem_region) region = name_objects("alone/", 100, 3);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "object storage cannot be shared", kvmem_share_create_region, region,
           NULL);
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
    REFUSE(KVMEM_STATUS_NIXL, "create a backend that accepts OBJECT memory first", kvmem_region_register,
           region, agent);
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
    OWN(kvmem_query, query, kvmem_agent_query, agent, ARRAY(descriptors), NULL, KVMEM_TIMEOUT_FOREVER);
    static const bool written[] = {true, false, false, true, true, true, true};
    for (size_t i = 0; i < NUM(written); i++) {
        const kvmem_query_result result = query->items[i];
        CHECK_EQ(result.exists, written[i]);
    }
}
