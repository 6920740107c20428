// SPDX-License-Identifier: Apache-2.0
// Adopted memory and views: the library never frees the memory, and calls the release callback once, when the
// last region, view and layout over it was destroyed.
#include "harness.h"

static unsigned char memory[64 * 1024];

static kvmem_adopt_options adopt_options(int *releases) {
    return OPTIONS(kvmem_adopt_options, it.address = memory, it.size = sizeof(memory),
                   it.release = releases != NULL ? count_release : NULL, it.user_data = releases);
}

static kvmem_region *adopt(int *releases) {
    return MADE(kvmem_region, kvmem_region_adopt_host, REF(adopt_options(releases)));
}

static kvmem_region *view_of(const kvmem_region *parent, uint64_t offset, uint64_t size) {
    return MADE(kvmem_region, kvmem_region_create_view, parent, offset, size);
}

TEST(adopted_memory_is_unchanged) {
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

TEST(release_is_called_once) {
    int releases = 0;
    kvmem_region *region = adopt(&releases);
    expect_releases(&releases, 0);
    kvmem_region_destroy(region);
    expect_releases(&releases, 1);
}

TEST(views_keep_adopted_memory) {
    int releases = 0;
    kvmem_region *region = adopt(&releases);
    kvmem_region *view = view_of(region, 4096, 8192);
    kvmem_region *inner = view_of(view, 100, 200);
    kvmem_region_destroy(region);
    kvmem_region_destroy(view);
    expect_releases(&releases, 0);
    CHECK_EQ(region_info(inner).address, (uintptr_t)memory + 4196);
    kvmem_region_destroy(inner);
    expect_releases(&releases, 1);
}

TEST(layouts_keep_adopted_memory) {
    int releases = 0;
    kvmem_region *region = adopt(&releases);
    kvmem_layout *layout = region_lay_out(region);
    kvmem_region_destroy(region);
    expect_releases(&releases, 0);
    GET(kvmem_region *, again, kvmem_layout_get_region, layout, 0);
    kvmem_layout_destroy(layout);
    expect_releases(&releases, 0);
    CHECK_EQ(region_info(again).address, (uintptr_t)memory);
    kvmem_region_destroy(again);
    expect_releases(&releases, 1);
}

TEST(a_failed_adoption_releases_nothing) {
    int releases = 0;
    kvmem_adopt_options options = WITH(adopt_options(&releases), it.address = NULL);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "address", kvmem_region_adopt_host, &options);
    options = adopt_options(&releases);
    options.size = 0;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "0 bytes", kvmem_region_adopt_host, &options);
    options.size = UINT64_MAX;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "18446744073709551615", kvmem_region_adopt_host, &options);
    options = WITH(adopt_options(&releases), it.flags = KVMEM_ADOPT_KEEP_SEALS);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "kvmem_region_adopt_memfd", kvmem_region_adopt_host, &options);
    expect_releases(&releases, 0);
}

/* Four pages: writable, PROT_READ, PROT_NONE, and one that is not mapped. */
typedef struct pages {
    unsigned char *start;
    size_t size; /* of one page */
} pages;

static void pages_open(pages *pages) {
    const size_t size = (size_t)sysconf(_SC_PAGESIZE);
    /* Where the kernel places no mapping that another call makes: the last page stays unmapped. */
    void *const low = (void *)((uintptr_t)256 * MIB);
    unsigned char *start = mmap(low, 4 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(start != MAP_FAILED);
    memset(start, 0x42, 4 * size);
    CHECK_EQ(mprotect(start + size, size, PROT_READ), 0);
    CHECK_EQ(mprotect(start + 2 * size, size, PROT_NONE), 0);
    CHECK_EQ(munmap(start + 3 * size, size), 0);
    *pages = (struct pages){start, size};
}

static void pages_close(const pages *pages) { munmap(pages->start, 3 * pages->size); }

static void expect_adoption(kvmem_status expected, const char *part, void *address, uint64_t size,
                            uint64_t flags) {
    kvmem_adopt_options options = OPTIONS(kvmem_adopt_options, it.address = address, it.size = size,
                                          it.flags = flags);
    OWNED(kvmem_region) region = NULL;
    EXPECT_MESSAGE(expected, part, kvmem_region_adopt_host(&options, &region, ERR));
    CHECK_EQ(region != NULL, expected == KVMEM_STATUS_OK);
}

TEST(the_protection_is_checked_when_a_transfer_is_created) {
    OPENED(pages, pages);
    const uint64_t size = pages.size;
    unsigned char *writable = pages.start, *readable = writable + size, *none = readable + size;
    const kvmem_status ok = KVMEM_STATUS_OK, invalid = KVMEM_STATUS_INVALID_ARGUMENT;
    const uint64_t read_only = KVMEM_ADOPT_READ_ONLY;
    expect_adoption(ok, "", writable, size, 0);
    expect_adoption(invalid, "KVMEM_ADOPT_READ_ONLY", readable, size, 0);
    expect_adoption(invalid, "check the address and the size, or set KVMEM_ADOPT_READ_ONLY", writable + size - 1, 2, 0);
    expect_adoption(ok, "", writable, 2 * size, read_only);
    expect_adoption(ok, "", readable + 1, size - 1, read_only);
    expect_adoption(invalid, "PROT_READ", none, 1, read_only);
    expect_adoption(invalid, "PROT_READ", none, 1, 0);
    expect_adoption(invalid, "PROT_READ", writable, 3 * size, read_only);
    expect_adoption(invalid, "adopt memory of a GPU by kvmem_region_adopt_device", none + size, 1, read_only);
    CHECK_EQ(mprotect(none, size, PROT_READ | PROT_WRITE), 0);
    expect_adoption(invalid, "not mapped", none, size + 1, 0);
    expect_adoption(ok, "", none, size, 0);
    expect_adoption(invalid, "known", writable, size, 4);
}

TEST(read_only_memory_is_a_source_but_no_destination) {
    OPENED(pages, pages);
    kvmem_adopt_options options = OPTIONS(kvmem_adopt_options, it.address = pages.start + pages.size,
                                          it.size = pages.size, it.flags = KVMEM_ADOPT_READ_ONLY);
    OWN(kvmem_region, source, kvmem_region_adopt_host, &options);
    CHECK_EQ(region_info(source).flags, KVMEM_REGION_READ_ONLY);
    OWNED(kvmem_region) view = view_of(source, 0, 1);
    CHECK_EQ(region_info(view).flags, KVMEM_REGION_READ_ONLY);
    unsigned char byte = 0;
    OWNED(kvmem_region) destination = region_adopt(&byte, 1);
    OWNED(kvmem_layout) from = region_lay_out(view);
    OWNED(kvmem_layout) to = region_lay_out(destination);
    const kv_move move = KV_MOVE(1, {0, 0});
    kv_run(from, to, &move);
    CHECK_EQ(byte, 0x42);
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, "KVMEM_ADOPT_READ_ONLY", kv_prepare, to, from,
           KV_JOB(&move));
}

TEST(the_info_of_a_view_describes_it) {
    OWNED(kvmem_region) region = adopt(NULL);
    OWNED(kvmem_region) view = view_of(region, 1, sizeof(memory) - 1);
    const kvmem_region_info info = region_info(view);
    CHECK_EQ(info.origin, KVMEM_ORIGIN_VIEW);
    CHECK_EQ(info.tier, KVMEM_TIER_SYSTEM);
    CHECK_EQ(info.address, (uintptr_t)memory + 1);
    CHECK_EQ(info.size, sizeof(memory) - 1);
    OWNED(kvmem_region) whole = view_of(region, 0, sizeof(memory));
    CHECK_EQ(region_info(whole).size, sizeof(memory));
}

TEST(a_view_past_its_parent_fails) {
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
    OWNED(kvmem_region) region = adopt(NULL);
    for (size_t i = 0; i < NUM(outside); i++)
        REFUSE(KVMEM_STATUS_OUT_OF_RANGE, "65536", kvmem_region_create_view, region, outside[i].offset,
               outside[i].size);
    const kvmem_status invalid = KVMEM_STATUS_INVALID_ARGUMENT;
    REFUSE(invalid, "0 bytes", kvmem_region_create_view, region, 0, 0);
    OWNED(kvmem_region) inner = view_of(region, 100, 50);
    REFUSE(KVMEM_STATUS_OUT_OF_RANGE, "", kvmem_region_create_view, inner, 0, 51);
}

TEST(a_view_of_a_file_begins_at_its_offset) {
    kvmem_region *file = region_create_temporary_file(MIB);
    OWNED(kvmem_region) view = view_of(file, 8192, 4096);
    const kvmem_region_info info = region_info(view);
    CHECK_EQ(info.address, 8192);
    CHECK_EQ(info.fd, region_info(file).fd);
    CHECK_EQ(info.tier, KVMEM_TIER_DISK);
    OWNED(kvmem_region) inner = view_of(view, 512, 512);
    CHECK_EQ(region_info(inner).address, 8704);
    kvmem_region_destroy(file);
    EXPECT_OK(kvmem_region_sync(inner, ERR));
}
