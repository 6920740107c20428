// SPDX-License-Identifier: Apache-2.0
// Adopted memory and views: never freed by the library, released once, when the last holder has gone.
#include "harness.h"
#include "regions.h"

#include <stdlib.h>
#include <string.h>

static unsigned char memory[64 * 1024];

static void count_release(void *user_data) {
    ++*(int *)user_data;
}

static kvmem_adopt_options adopt_options(int *releases) {
    kvmem_adopt_options options;
    memset(&options, 0xEE, sizeof(options)); /* init must overwrite every byte */
    kvmem_adopt_options_init(&options, sizeof(options));
    options.address = memory;
    options.size = sizeof(memory);
    if (releases != NULL) {
        options.release = count_release;
        options.user_data = releases;
    }
    return options;
}

static kvmem_region *adopt(int *releases) {
    const kvmem_adopt_options options = adopt_options(releases);
    kvmem_region *region = NULL;
    EXPECT_OK(kvmem_region_adopt_host(&options, &region, ERR));
    CHECK(region != NULL);
    return region;
}

static kvmem_region *view_of(const kvmem_region *parent, uint64_t offset, uint64_t size) {
    kvmem_region *view = NULL;
    EXPECT_OK(kvmem_region_create_view(parent, offset, size, &view, ERR));
    CHECK(view != NULL);
    return view;
}

static void adopted_memory_is_left_as_it_is(void) {
    memset(memory, 0x3C, sizeof(memory));
    kvmem_region *region = adopt(NULL);
    const kvmem_region_info info = region_info(region);
    CHECK_EQ(info.address, (uintptr_t)memory);
    CHECK_EQ(info.size, sizeof(memory));
    CHECK_EQ(info.tier, KVMEM_TIER_SYSTEM);
    CHECK_EQ(info.origin, KVMEM_ORIGIN_ADOPTED);
    CHECK_EQ(info.fd, -1);
    kvmem_region_destroy(region);
    CHECK_FILLED(memory, 0x3C, sizeof(memory));
}

static void release_is_called_once(void) {
    int releases = 0;
    kvmem_region *region = adopt(&releases);
    finish_releases();
    CHECK_EQ(releases, 0);
    kvmem_region_destroy(region);
    finish_releases();
    CHECK_EQ(releases, 1);
}

static void views_keep_adopted_memory(void) {
    int releases = 0;
    kvmem_region *region = adopt(&releases);
    kvmem_region *view = view_of(region, 4096, 8192);
    kvmem_region *inner = view_of(view, 100, 200);
    kvmem_region_destroy(region);
    kvmem_region_destroy(view);
    finish_releases();
    CHECK_EQ(releases, 0);
    CHECK_EQ(region_info(inner).address, (uintptr_t)memory + 4196);
    kvmem_region_destroy(inner);
    finish_releases();
    CHECK_EQ(releases, 1);
}

static void layouts_keep_adopted_memory(void) {
    int releases = 0;
    kvmem_region *region = adopt(&releases);
    kvmem_layout *layout = region_lay_out(region);
    kvmem_region_destroy(region);
    finish_releases();
    CHECK_EQ(releases, 0);
    kvmem_region *again = NULL;
    EXPECT_OK(kvmem_layout_get_region(layout, 0, &again, ERR));
    kvmem_layout_destroy(layout);
    finish_releases();
    CHECK_EQ(releases, 0);
    CHECK_EQ(region_info(again).address, (uintptr_t)memory);
    kvmem_region_destroy(again);
    finish_releases();
    CHECK_EQ(releases, 1);
}

static void a_failed_adoption_releases_nothing(void) {
    int releases = 0;
    kvmem_region *region = (kvmem_region *)memory;
    kvmem_adopt_options options = adopt_options(&releases);
    options.address = NULL;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "address", kvmem_region_adopt_host(&options, &region, ERR));
    CHECK(region == NULL);
    options = adopt_options(&releases);
    options.size = 0;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "0 bytes", kvmem_region_adopt_host(&options, &region, ERR));
    options.size = UINT64_MAX;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "18446744073709551615",
                   kvmem_region_adopt_host(&options, &region, ERR));
    finish_releases();
    CHECK_EQ(releases, 0);
}

static void a_view_says_what_it_is(void) {
    kvmem_region *region = adopt(NULL);
    kvmem_region *view = view_of(region, 1, sizeof(memory) - 1);
    const kvmem_region_info info = region_info(view);
    CHECK_EQ(info.origin, KVMEM_ORIGIN_VIEW);
    CHECK_EQ(info.tier, KVMEM_TIER_SYSTEM);
    CHECK_EQ(info.address, (uintptr_t)memory + 1);
    CHECK_EQ(info.size, sizeof(memory) - 1);
    kvmem_region *whole = view_of(region, 0, sizeof(memory));
    CHECK_EQ(region_info(whole).size, sizeof(memory));
    kvmem_region_destroy(whole);
    kvmem_region_destroy(view);
    kvmem_region_destroy(region);
}

static void a_view_ends_inside_its_parent(void) {
    static const struct {
        uint64_t offset;
        uint64_t size;
    } outside[] = {
        {0, sizeof(memory) + 1},
        {1, sizeof(memory)},
        {sizeof(memory), 1},
        {sizeof(memory) + 1, 1},
        {UINT64_MAX, 2},
        {2, UINT64_MAX},
        {UINT64_MAX, UINT64_MAX},
    };
    kvmem_region *region = adopt(NULL);
    for (size_t i = 0; i < NUM(outside); i++) {
        kvmem_region *view = (kvmem_region *)memory;
        EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_RANGE, "65536",
                       kvmem_region_create_view(region, outside[i].offset, outside[i].size, &view, ERR));
        CHECK(view == NULL);
    }
    kvmem_region *view = (kvmem_region *)memory;
    const kvmem_status invalid = KVMEM_STATUS_INVALID_ARGUMENT;
    EXPECT_MESSAGE(invalid, "empty", kvmem_region_create_view(region, 0, 0, &view, ERR));
    CHECK(view == NULL);
    kvmem_region *inner = view_of(region, 100, 50);
    EXPECT(KVMEM_STATUS_OUT_OF_RANGE, kvmem_region_create_view(inner, 0, 51, &view, ERR));
    kvmem_region_destroy(inner);
    kvmem_region_destroy(region);
}

static void a_view_of_a_file_begins_at_its_offset(void) {
    kvmem_disk_options options;
    kvmem_disk_options_init(&options, sizeof(options));
    options.size = MIB;
    kvmem_region *file = NULL;
    EXPECT_OK(kvmem_region_create_disk(&options, &file, ERR));
    kvmem_region *view = view_of(file, 8192, 4096);
    const kvmem_region_info info = region_info(view);
    CHECK_EQ(info.address, 8192);
    CHECK_EQ(info.fd, region_info(file).fd);
    CHECK_EQ(info.tier, KVMEM_TIER_DISK);
    kvmem_region *inner = view_of(view, 512, 512);
    CHECK_EQ(region_info(inner).address, 8704);
    kvmem_region_destroy(file);
    EXPECT_OK(kvmem_region_sync(inner, ERR));
    kvmem_region_destroy(inner);
    kvmem_region_destroy(view);
}

static const test_case cases[] = {
    CASE(adopted_memory_is_left_as_it_is),
    CASE(release_is_called_once),
    CASE(views_keep_adopted_memory),
    CASE(layouts_keep_adopted_memory),
    CASE(a_failed_adoption_releases_nothing),
    CASE(a_view_says_what_it_is),
    CASE(a_view_ends_inside_its_parent),
    CASE(a_view_of_a_file_begins_at_its_offset),
};
TEST_MAIN
