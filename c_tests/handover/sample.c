// SPDX-License-Identifier: Apache-2.0
// Creates filled memory and its share, and checks them.
#include "sample.h"

#define MARK 0xA5u
#define MANY_PARTS 30000
#define MORE_THAN_A_SOCKET_HOLDS (UINT64_C(1) << 19)

static unsigned char content(uint64_t place) {
    return (unsigned char)((place * UINT64_C(2654435761)) >> 24 & 0x7f);
}

static kvmem_region *shareable(uint64_t size) {
    return MADE(kvmem_region, kvmem_region_create_system,
                REF(OPTIONS(kvmem_system_options, it.flags = KVMEM_SYSTEM_SHAREABLE, it.size = size)));
}

static void make(sample *sample, kvmem_region *region, uint64_t flags) {
    sample->region = region;
    sample->bytes = (unsigned char *)(uintptr_t)region_info(region).address;
    for (uint64_t i = 0; i < SAMPLE_SIZE; i++) sample->bytes[i] = content(i);
    const kvmem_share_options options = OPTIONS(kvmem_share_options, it.flags = flags);
    EXPECT_OK(kvmem_share_create_region(region, &options, &sample->share, ERR));
}

void sample_open(sample *sample) { make(sample, shareable(SAMPLE_SIZE), 0); }

void sample_open_in_file(sample *sample) {
    const int fd = memfd_create("engine", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK_EQ(ftruncate(fd, 3 * SAMPLE_SIZE), 0);
    GET(kvmem_region *, region, kvmem_region_adopt_memfd,
        REF(OPTIONS(kvmem_adopt_memfd_options, it.fd = fd, it.offset = SAMPLE_SIZE, it.size = SAMPLE_SIZE)));
    CHECK_EQ(close(fd), 0);
    make(sample, region, 0);
}

void sample_make_read_only(sample *sample) { make(sample, shareable(SAMPLE_SIZE), KVMEM_SHARE_READ_ONLY); }

void sample_close(sample *sample) {
    kvmem_share_destroy(sample->share);
    kvmem_region_destroy(sample->region);
}

kvmem_region *sample_import(const kvmem_share *share) {
    GET(kvmem_region *, region, kvmem_share_open_region, share, NULL);
    sample_check(region);
    return region;
}

void sample_check(const kvmem_region *region) {
    const kvmem_region_info info = region_info(region);
    CHECK_EQ(info.size, SAMPLE_SIZE);
    const unsigned char *bytes = (const unsigned char *)(uintptr_t)info.address;
    /* The first byte is the mark. */
    for (uint64_t i = 1; i < SAMPLE_SIZE; i++) CHECK_EQ(bytes[i], content(i));
}

static _Atomic unsigned char *sample_mark_of(const kvmem_region *region) {
    return (_Atomic unsigned char *)(uintptr_t)region_info(region).address;
}

void sample_mark(const kvmem_region *region) { atomic_store(sample_mark_of(region), MARK); }

void sample_await_mark(sample *sample) {
    while (atomic_load(sample_mark_of(sample->region)) != MARK) sched_yield();
    atomic_store(sample_mark_of(sample->region), content(0));
}

static kvmem_layout_config layers(uint64_t count) {
    return OPTIONS(kvmem_layout_config, it.order = KVMEM_ORDER_LAYER_SEPARATE, it.num_blocks = 2,
                   it.num_layers = count, it.outer_dim = 2, it.page_size = 4, it.inner_dim = 64,
                   it.dtype_width = 2);
}

/* Shares a layout over these regions, and destroys their handles. */
static void lay_out(large_share *sample, const kvmem_layout_config *config, kvmem_region **regions) {
    sample->layout = regions_lay_out(config, regions, config->num_layers, NULL);
    for (uint64_t i = 0; i < config->num_layers; i++) kvmem_region_destroy(regions[i]);
    free(regions);
    EXPECT_OK(kvmem_share_create_layout(sample->layout, NULL, &sample->share, ERR));
    sample->num_fds = share_info(sample->share).num_fds;
    sample->size = share_info(sample->share).size;
}

static uint64_t layer_size(const kvmem_layout_config *config) {
    GET(kvmem_layout_requirements, needed, kvmem_layout_get_requirements, config);
    CHECK_EQ(needed.num_regions, config->num_layers);
    return needed.region_size;
}

void large_share_open(large_share *sample, uint64_t regions) {
    const kvmem_layout_config config = layers(regions);
    const uint64_t size = layer_size(&config);
    kvmem_region **made = test_allocate(regions * sizeof(*made));
    for (uint64_t i = 0; i < regions; i++) made[i] = shareable(size);
    lay_out(sample, &config, made);
}

void large_share_open_parts(large_share *sample) {
    const kvmem_layout_config config = layers(MANY_PARTS);
    const uint64_t size = layer_size(&config);
    kvmem_region *whole = shareable(MANY_PARTS * size);
    kvmem_region **parts = test_allocate(MANY_PARTS * sizeof(*parts));
    for (uint64_t i = 0; i < MANY_PARTS; i++)
        EXPECT_OK(kvmem_region_create_view(whole, i * size, size, &parts[i], ERR));
    lay_out(sample, &config, parts);
    kvmem_region_destroy(whole);
    CHECK(sample->size > MORE_THAN_A_SOCKET_HOLDS);
}

void large_share_close(large_share *sample) {
    kvmem_share_destroy(sample->share);
    kvmem_layout_destroy(sample->layout);
}
