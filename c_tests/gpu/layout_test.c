// SPDX-License-Identifier: Apache-2.0
// Layouts in GPU and pinned memory: allocated or on regions, their addresses, invalid combinations.
#include "allocated.h"
#include "sides.h"
#include "caller_context.h"

static kvmem_layout_options options_for(const kvmem_layout_config *config, uint32_t source) {
    return OPTIONS(kvmem_layout_options, it.config = config, it.source = source);
}

/* Checks the address of every piece relative to the base of its region. */
static void check_addresses(const kvmem_layout *layout, const kvmem_layout_config *config) {
    const kvmem_layout_info strides = layout_info(layout);
    CHECK_EQ(strides.num_regions, kv_num_regions(config));
    for (uint64_t block = 0; block < config->num_blocks; block++) {
        for (uint64_t layer = 0; layer < config->num_layers; layer++) {
            for (uint64_t outer = 0; outer < config->outer_dim; outer++) {
                GET(kvmem_block, piece, kvmem_layout_get_block, layout, block, layer, outer);
                const uint64_t base = strides.bases[kv_region_of(config, layer)];
                CHECK_EQ(piece.address, base + kv_offset(config, block, layer, outer));
                CHECK_EQ(piece.size, kv_piece_size(config));
            }
        }
    }
}

/* Checks that the regions of an allocated layout are in order, and all except the first aligned to 512
   bytes. */
static void check_regions(const kvmem_layout *layout, const kvmem_layout_config *config, uint32_t tier,
                          int device) {
    uint64_t end = 0;
    for (size_t i = 0; i < kv_num_regions(config); i++) {
        OWN(kvmem_region, region, kvmem_layout_get_region, layout, i);
        const kvmem_region_info info = region_info(region);
        CHECK_EQ(info.tier, tier);
        CHECK_EQ(info.device, device);
        CHECK_EQ(info.size, kv_region_size(config));
        CHECK(i == 0 || info.address % 512 == 0);
        CHECK(info.address >= end);
        end = info.address + info.size;
    }
    REFUSE(KVMEM_STATUS_OUT_OF_RANGE, "", kvmem_layout_get_region, layout, kv_num_regions(config));
}

static void check_info(const kvmem_layout *layout, const kvmem_layout_config *config, uint32_t tier,
                       uint32_t memory_type, int device_id) {
    GET(kvmem_layout_info, info, kvmem_layout_get_info, layout);
    CHECK_EQ(info.tier, tier);
    CHECK_EQ(info.memory_type, memory_type);
    CHECK_EQ(info.device_id, device_id);
    CHECK_EQ(info.locality, KVMEM_LOCALITY_LOCAL);
    CHECK_EQ(info.num_regions, kv_num_regions(config));
    CHECK_EQ(info.num_blocks, config->num_blocks);
}

TEST_EACH_DEVICE(device_memory_is_allocated) {
    for (size_t kind = 0; kind < KV_NUM_KINDS; kind++) {
        const kvmem_layout_config config = kv_config(&kv_kinds[kind]);
        OWNED(kvmem_layout) layout = NULL;
        EXPECT_OK(build_on_device(device, &config, &layout));
        check_info(layout, &config, KVMEM_TIER_DEVICE, KVMEM_MEMORY_VRAM, device);
        check_addresses(layout, &config);
        check_regions(layout, &config, KVMEM_TIER_DEVICE, device);
    }
}

TEST_EACH_DEVICE(pinned_memory_is_allocated) {
    for (size_t kind = 0; kind < KV_NUM_KINDS; kind++) {
        const kvmem_layout_config config = kv_config(&kv_kinds[kind]);
        OWNED(kvmem_layout) layout = NULL;
        EXPECT_OK(build_pinned(device, &config, &layout));
        check_info(layout, &config, KVMEM_TIER_PINNED, KVMEM_MEMORY_DRAM, 0);
        check_addresses(layout, &config);
        check_regions(layout, &config, KVMEM_TIER_PINNED, device);
    }
}

static uint32_t tier_of(place place) {
    if (place_is_device(place)) return KVMEM_TIER_DEVICE;
    return place == PLACE_PINNED || place == PLACE_CHUNKED ? KVMEM_TIER_PINNED : KVMEM_TIER_SYSTEM;
}

/* Except elastic layouts, which have no regions of the caller. */
TEST(layouts_on_regions_of_every_place) {
    for (place place = 0; !place_is_elastic(place); place++) {
        for (size_t kind = 0; kind < KV_NUM_KINDS; kind++) {
            const kvmem_layout_config config = kv_config(&kv_kinds[kind]);
            OPENED(side, side, place, 0, &config, NULL, 1);
            check_addresses(side.model.layout, &config);
            const uint32_t memory_type = place_is_device(place) ? KVMEM_MEMORY_VRAM : KVMEM_MEMORY_DRAM;
            check_info(side.model.layout, &config, tier_of(place), memory_type, 0);
            side_check(&side); /* building a layout writes nothing */
        }
    }
}

TEST(a_layout_keeps_its_memory_alive) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    const place places[] = {PLACE_PINNED, PLACE_DEVICE};
    for (size_t i = 0; i < NUM(places); i++) {
        OPENED(side, side, places[i], 0, &config, NULL, 1);
        CALL(kvmem_region_destroy(side.model.regions[0]));
        CALL(kvmem_region_destroy(side.whole));
        side.model.regions[0] = NULL;
        side.whole = NULL;
        side_check(&side);
        side_refill(&side, 2);
        side_check(&side);
    }
}

/* Builds a layer-separate layout on views of one region of device memory. */
static void build_over_views(const uint64_t *offsets, kvmem_status status, const char *part) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    OWN(kvmem_region, region, kvmem_region_create_device, REF(OPTIONS(kvmem_device_options, it.size = MIB)));
    kvmem_region *views[3];
    for (size_t i = 0; i < NUM(views); i++)
        EXPECT_OK(kvmem_region_create_view(region, offsets[i], kv_region_size(&config), &views[i], ERR));
    kvmem_layout_options options = WITH(options_for(&config, KVMEM_LAYOUT_REGIONS), it.regions = views,
                                        it.count = NUM(views));
    if (status == KVMEM_STATUS_OK) {
        OWN(kvmem_layout, layout, kvmem_layout_build, &options);
    } else {
        REFUSE(status, part, kvmem_layout_build, &options);
    }
    for (size_t i = 0; i < NUM(views); i++) CALL(kvmem_region_destroy(views[i]));
}

TEST(regions_may_be_adjacent_and_must_not_overlap) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    const uint64_t size = kv_region_size(&config);
    const uint64_t adjacent[] = {size, 0, 2 * size};
    build_over_views(adjacent, KVMEM_STATUS_OK, "");
    const uint64_t overlapping[] = {0, 2 * size, 3 * size - 1};
    build_over_views(overlapping, KVMEM_STATUS_INVALID_ARGUMENT, "1 and 2 overlap");
    const uint64_t twice[] = {0, size, 0};
    build_over_views(twice, KVMEM_STATUS_INVALID_ARGUMENT, "0 and 2 overlap");
}

TEST(regions_that_are_too_small_are_rejected) {
    kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OPENED(side, side, PLACE_ADOPTED, 0, &config, NULL, 1);
    config.num_blocks++;
    kvmem_layout_options options = WITH(options_for(&config, KVMEM_LAYOUT_REGIONS),
                                        it.regions = side.model.regions, it.count = side.model.num_regions);
    REFUSE(KVMEM_STATUS_OUT_OF_RANGE, "2016 bytes, the layout needs 2304", kvmem_layout_build, &options);
}

/* Checks that a layout of three regions is rejected if the last is of another kind. */
static void mix(place first, place last, const char *first_name, const char *last_name) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    OPENED(side, two, first, 0, &config, NULL, 1);
    OPENED(side, one, last, 0, &config, NULL, 2);
    kvmem_region *mixed[] = {two.model.regions[0], two.model.regions[1], one.model.regions[2]};
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, first_name, kvmem_layout_build,
           REF(WITH(options_for(&config, KVMEM_LAYOUT_REGIONS), it.regions = mixed, it.count = NUM(mixed))));
    CHECK_HAS(test_last_message(), last_name);
}

TEST(regions_of_different_tiers_are_rejected) {
    mix(PLACE_DEVICE, PLACE_SYSTEM, "region 0 is device", "region 2 is system");
    mix(PLACE_DEVICE, PLACE_PINNED, "region 0 is device", "region 2 is pinned");
    mix(PLACE_PINNED, PLACE_DEVICE, "region 0 is pinned", "region 2 is device");
    mix(PLACE_SYSTEM, PLACE_ADOPTED, "region 0 is system", "region 2 is device");
}

TEST(wrong_options_are_rejected) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    kvmem_device_options device = OPTIONS(kvmem_device_options);
    kvmem_pinned_options pinned = OPTIONS(kvmem_pinned_options);
    kvmem_layout_options options = WITH(options_for(&config, KVMEM_LAYOUT_ALLOCATE), it.device = &device,
                                        it.pinned = &pinned);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "2 are given", kvmem_layout_build, &options);
    options.pinned = NULL;
    device.size = 4096;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "size of kvmem_device_options is 4096", kvmem_layout_build,
           &options);
    device.size = 0;
    device.device = driver_devices();
    REFUSE(KVMEM_STATUS_OUT_OF_RANGE, "no device", kvmem_layout_build, &options);
    options.device = NULL;
    options.pinned = &pinned;
    pinned.device = -1;
    REFUSE(KVMEM_STATUS_OUT_OF_RANGE, "no device -1", kvmem_layout_build, &options);
}

TEST(allocating_more_than_the_device_has_fails) {
    kvmem_layout_config config = WITH(kv_config(&kv_kinds[1]), it.num_blocks = UINT64_C(1) << 31,
                                      it.page_size = 1024, it.inner_dim = 1024);
    kvmem_device_options device = OPTIONS(kvmem_device_options);
    kvmem_layout_options options = WITH(options_for(&config, KVMEM_LAYOUT_ALLOCATE), it.device = &device);
    REFUSE(KVMEM_STATUS_OUT_OF_MEMORY, "free", kvmem_layout_build, &options);
}
