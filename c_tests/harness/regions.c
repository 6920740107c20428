// SPDX-License-Identifier: Apache-2.0
// Adoption, info, a layout, and the count of releases under a lock.
#include "regions.h"

#include "harness.h"

#include <time.h>

static pthread_mutex_t release_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t release_happened = PTHREAD_COND_INITIALIZER;
static int releases;

static kvmem_region *create_system(const kvmem_system_options *options) {
    return MADE(kvmem_region, kvmem_region_create_system, options);
}

kvmem_region *region_create_system(uint64_t size, uint64_t flags) {
    kvmem_system_options options = OPTIONS(kvmem_system_options, it.size = size, it.flags = flags);
    return create_system(&options);
}

kvmem_region *region_create_with_fallback(void) {
    kvmem_system_options options = OPTIONS(kvmem_system_options, it.size = (ready_huge_pages() + 1) * 2 * MIB,
                                           it.huge_page_size = 2 * MIB);
    kvmem_region *region = create_system(&options);
    CHECK(region_info(region).flags & KVMEM_REGION_HUGE_PAGE_FALLBACK);
    return region;
}

kvmem_region *region_create_disk(const kvmem_disk_options *options) {
    return MADE(kvmem_region, kvmem_region_create_disk, options);
}

kvmem_region *region_create_temporary_file(uint64_t size) {
    kvmem_disk_options options = OPTIONS(kvmem_disk_options, it.size = size);
    return region_create_disk(&options);
}

kvmem_layout *layout_allocate_system(const kvmem_layout_config *config) {
    kvmem_system_options system = OPTIONS(kvmem_system_options);
    kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = config,
                                           it.source = KVMEM_LAYOUT_ALLOCATE, it.system = &system);
    return MADE(kvmem_layout, kvmem_layout_build, &options);
}

static kvmem_region *adopt(void *address, uint64_t size, kvmem_release_callback release) {
    kvmem_adopt_options options = OPTIONS(kvmem_adopt_options, it.address = address, it.size = size,
                                          it.release = release);
    return MADE(kvmem_region, kvmem_region_adopt_host, &options);
}

kvmem_region *region_adopt(void *address, uint64_t size) { return adopt(address, size, NULL); }

kvmem_region *region_adopt_noting_release(void *address, uint64_t size) {
    return adopt(address, size, note_release);
}

kvmem_region *region_create_elastic(uint64_t size, uint64_t extent_size, uint64_t committed) {
    GET(kvmem_region *, region, kvmem_region_create_elastic,
        REF(OPTIONS(kvmem_elastic_options, it.size = size, it.extent_size = extent_size)));
    if (committed != 0) EXPECT_OK(kvmem_region_commit(region, 0, committed, ERR));
    return region;
}

kvmem_region *region_create_on_gpu(uint64_t size) {
    return MADE(kvmem_region, kvmem_region_create_device, REF(OPTIONS(kvmem_device_options, it.size = size)));
}

kvmem_region *region_adopt_on_gpu(uint64_t address, uint64_t size, kvmem_release_callback release) {
    kvmem_adopt_options options = OPTIONS(kvmem_adopt_options, it.address = (void *)(uintptr_t)address,
                                          it.size = size, it.release = release);
    return MADE(kvmem_region, kvmem_region_adopt_device, &options, 0);
}

kvmem_layout *regions_lay_out(const kvmem_layout_config *config, kvmem_region *const *regions, size_t count,
                              kvmem_agent *agent) {
    return MADE(kvmem_layout, kvmem_layout_build,
                REF(OPTIONS(kvmem_layout_options, it.config = config, it.agent = agent,
                            it.source = KVMEM_LAYOUT_REGIONS, it.regions = regions, it.count = count)));
}

kvmem_layout *region_lay_out(kvmem_region *region) {
    kvmem_layout_config config = OPTIONS(kvmem_layout_config, it.num_blocks = 1, it.num_layers = 1,
                                         it.outer_dim = 1, it.page_size = 1, it.inner_dim = 1,
                                         it.dtype_width = 1, it.order = KVMEM_ORDER_FULLY_CONTIGUOUS);
    return regions_lay_out(&config, &region, 1, NULL);
}

void count_release(void *count) { __atomic_add_fetch((int *)count, 1, __ATOMIC_RELEASE); }

/* A thread of the library frees memory whose last importer has ended, after the call that finds that. */
void expect_releases(const int *count, int expected) {
    const time_t end = time(NULL) + 20;
    do {
        finish_releases();
    } while (__atomic_load_n(count, __ATOMIC_ACQUIRE) < expected && time(NULL) < end);
    CHECK_EQ(__atomic_load_n(count, __ATOMIC_ACQUIRE), expected);
}

void note_release(void *user_data) {
    (void)user_data;
    pthread_mutex_lock(&release_lock);
    releases++;
    pthread_cond_broadcast(&release_happened);
    pthread_mutex_unlock(&release_lock);
}

static void set_flag(void *user_data) {
    pthread_mutex_lock(&release_lock);
    *(bool *)user_data = true;
    pthread_cond_broadcast(&release_happened);
    pthread_mutex_unlock(&release_lock);
}

void finish_releases(void) {
    static unsigned char byte;
    bool is_last_done = false;
    kvmem_adopt_options options = OPTIONS(kvmem_adopt_options, it.address = &byte, it.size = 1,
                                          it.release = set_flag, it.user_data = &is_last_done);
    GET(kvmem_region *, last, kvmem_region_adopt_host, &options);
    kvmem_region_destroy(last);
    pthread_mutex_lock(&release_lock);
    while (!is_last_done) pthread_cond_wait(&release_happened, &release_lock);
    pthread_mutex_unlock(&release_lock);
}

int releases_count(void) {
    finish_releases();
    pthread_mutex_lock(&release_lock);
    const int count = releases;
    pthread_mutex_unlock(&release_lock);
    return count;
}

void await_releases(int count) {
    pthread_mutex_lock(&release_lock);
    while (releases < count) pthread_cond_wait(&release_happened, &release_lock);
    pthread_mutex_unlock(&release_lock);
}
