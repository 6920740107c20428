// SPDX-License-Identifier: Apache-2.0
// Layouts in named files: the file contains a fingerprint of its layout, and a layout of another shape fails.
#include "harness.h"

#define FINGERPRINT 4096

static kvmem_status build(const kvmem_layout_config *config, const char *path, uint64_t flags,
                          kvmem_layout **layout) {
    kvmem_disk_options disk = OPTIONS(kvmem_disk_options, it.path = path, it.flags = flags);
    kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = config,
                                           it.source = KVMEM_LAYOUT_ALLOCATE, it.disk = &disk);
    return kvmem_layout_build(&options, layout, ERR);
}

static kvmem_layout *must_build(const kvmem_layout_config *config, const char *path, uint64_t flags) {
    kvmem_layout *layout = NULL;
    EXPECT_OK(build(config, path, flags, &layout));
    CHECK(layout != NULL);
    return layout;
}

static void refuse(const kvmem_layout_config *config, const char *path, uint64_t flags, kvmem_status status,
                   const char *part) {
    kvmem_layout *layout = (kvmem_layout *)&layout;
    EXPECT_MESSAGE(status, part, build(config, path, flags, &layout));
    CHECK(layout == NULL);
}

/* The offset after the last block in the file. */
static uint64_t end_of_blocks(const kvmem_layout *layout, const kvmem_layout_config *config) {
    GET(kvmem_block, last, kvmem_layout_get_block, layout, config->num_blocks - 1, config->num_layers - 1,
        config->outer_dim - 1);
    return last.address + last.size;
}

/* The same, rounded up to pages of the file. */
static uint64_t end_of_pages(uint64_t size) {
    return (size + FINGERPRINT - 1) / FINGERPRINT * FINGERPRINT;
}

static kvmem_region_info info_of(const kvmem_layout *layout) {
    OWN(kvmem_region, region, kvmem_layout_get_region, layout, 0);
    return region_info(region);
}

TEST(the_same_layout_opens_with_its_blocks) {
    SCRATCH_FILE(path, "cache");
    const uint64_t ways[] = {KVMEM_DISK_OPEN_OR_CREATE, KVMEM_DISK_OPEN_OR_CREATE, KVMEM_DISK_OPEN_EXISTING,
                             KVMEM_DISK_OPEN_EXISTING | KVMEM_DISK_READ_ONLY};
    for (size_t kind = 0; kind < KV_NUM_KINDS; kind++) {
        const kvmem_layout_config config = kv_config(&kv_kinds[kind]);
        uint64_t size = 0;
        for (size_t i = 0; i < NUM(ways); i++) {
            OWNED(kvmem_layout) layout = must_build(&config, path, ways[i] | KVMEM_DISK_BUFFERED);
            const int file = info_of(layout).fd;
            size = end_of_blocks(layout, &config);
            unsigned char byte = 0;
            CHECK_EQ(pread(file, &byte, 1, (off_t)size - 1), 1);
            CHECK_EQ(byte, i == 0 ? 0 : 0x5A);
            if (i == 0) CHECK_EQ(pwrite(file, "\x5A", 1, (off_t)size - 1), 1);
        }
        CHECK_EQ(file_length(path), end_of_pages(size) + FINGERPRINT);
        CHECK_EQ(unlink(path), 0);
    }
}

/* Also with direct I/O, and with blocks that end where the fingerprint begins. */
TEST(writing_all_blocks_keeps_the_fingerprint) {
    SCRATCH_FILE(path, "cache");
    kvmem_layout_config config = WITH(kv_config(&kv_kinds[0]), it.page_size = 16, it.inner_dim = 128,
                                      it.alignment = 4096);
    const kv_move move = KV_MOVE(3, {0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {6, 6});
    OWNED(kvmem_layout) memory = layout_allocate_system(&config);
    const kvmem_region_info info = info_of(memory);
    unsigned char *bytes = (unsigned char *)(uintptr_t)info.address;
    memset(bytes, 0x77, info.size);
    for (int i = 0; i < 2; i++) {
        kvmem_layout *file = must_build(&config, path, KVMEM_DISK_OPEN_OR_CREATE);
        i == 0 ? kv_run(memory, file, &move) : kv_run(file, memory, &move);
        CHECK_EQ(file_length(path), end_of_blocks(file, &config) + FINGERPRINT);
        kvmem_layout_destroy(file);
        CHECK_FILLED(bytes, 0x77, info.size);
        memset(bytes, i == 0 ? 0 : 0x77, info.size);
    }
}

TEST(another_layout_fails_with_the_difference) {
    static const struct {
        size_t field; /* offset of a uint64_t */
        uint64_t value;
        const char *named;
    } others[] = {
        {offsetof(kvmem_layout_config, num_blocks), 6, "num_blocks is 7 in the file and 6 here"},
        {offsetof(kvmem_layout_config, num_blocks), 8, "num_blocks is 7 in the file and 8 here"},
        {offsetof(kvmem_layout_config, num_layers), 4, "num_layers"},
        {offsetof(kvmem_layout_config, outer_dim), 1, "outer_dim"},
        {offsetof(kvmem_layout_config, page_size), 8, "page_size"},
        {offsetof(kvmem_layout_config, inner_dim), 3, "inner_dim"},
        {offsetof(kvmem_layout_config, dtype_width), 4, "dtype_width"},
        {offsetof(kvmem_layout_config, alignment), 4096, "alignment"},
    };
    SCRATCH_FILE(path, "cache");
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    kvmem_layout_destroy(must_build(&config, path, 0));
    for (size_t i = 0; i < NUM(others); i++) {
        kvmem_layout_config other = config;
        memcpy((char *)&other + others[i].field, &others[i].value, sizeof(uint64_t));
        refuse(&other, path, KVMEM_DISK_OPEN_EXISTING, KVMEM_STATUS_INVALID_ARGUMENT, others[i].named);
        refuse(&other, path, KVMEM_DISK_OPEN_OR_CREATE, KVMEM_STATUS_INVALID_ARGUMENT, others[i].named);
    }
    kvmem_layout_config other = config;
    other.order = KVMEM_ORDER_LAYER_SEPARATE_OUTER_FIRST; /* the same size with blocks at other offsets */
    refuse(&other, path, KVMEM_DISK_OPEN_EXISTING, KVMEM_STATUS_INVALID_ARGUMENT, "order is ");
    kvmem_layout_destroy(must_build(&config, path, KVMEM_DISK_OPEN_EXISTING));
}

#define IDENTIFIED(config, bytes, count) WITH(config, it.identity = (bytes), it.identity_size = (count))

/* Two models of one shape; also with bytes that are no text, and the longest. */
TEST(a_file_of_another_identity_fails_with_both) {
    SCRATCH_FILE(path, "cache");
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    const kvmem_layout_config model = IDENTIFIED(config, "llama-3 bf16", 12), other = IDENTIFIED(config,
                                                                                                 "llama-3 f16", 11);
    static const struct {
        const char *there, *here;
    } named = {"identity is 'llama-3 bf16' in the file and 'llama-3 f16' here",
               "identity is 'llama-3 bf16' in the file and none here"};
    kvmem_layout_destroy(must_build(&model, path, 0));
    refuse(&other, path, KVMEM_DISK_OPEN_EXISTING, KVMEM_STATUS_INVALID_ARGUMENT, named.there);
    refuse(&config, path, KVMEM_DISK_OPEN_OR_CREATE, KVMEM_STATUS_INVALID_ARGUMENT, named.here);
    refuse(REF(WITH(other, it.num_blocks = 8)), path, KVMEM_DISK_OPEN_EXISTING, KVMEM_STATUS_INVALID_ARGUMENT,
           "num_blocks");
    {
        OWNED(kvmem_layout) again = must_build(&model, path, KVMEM_DISK_OPEN_EXISTING);
        GET(kvmem_layout_info, info, kvmem_layout_get_info, again);
        CHECK(info.identity_size == 12 && memcmp(info.identity, "llama-3 bf16", 12) == 0);
    }
    CHECK_EQ(unlink(path), 0);
    unsigned char bytes[2049];
    memset(bytes, 0xE4, sizeof(bytes));
    const kvmem_layout_config longest = IDENTIFIED(config, bytes, 2048);
    kvmem_layout_destroy(must_build(&longest, path, 0));
    kvmem_layout_destroy(must_build(&longest, path, KVMEM_DISK_OPEN_EXISTING));
    bytes[2047] = 0;
    refuse(&longest, path, KVMEM_DISK_OPEN_EXISTING, KVMEM_STATUS_INVALID_ARGUMENT,
           "2048 bytes with CRC-32C");
    refuse(REF(IDENTIFIED(config, bytes, 2049)), path, 0, KVMEM_STATUS_INVALID_ARGUMENT,
           "identity_size is 2049");
    refuse(REF(IDENTIFIED(config, NULL, 5)), path, 0, KVMEM_STATUS_INVALID_ARGUMENT, "identity is NULL");
    CHECK_EQ(unlink(path), 0);
    kvmem_layout_destroy(must_build(REF(IDENTIFIED(config, bytes, 0)), path, 0)); /* none */
    OWNED(kvmem_layout) none = must_build(&config, path, KVMEM_DISK_OPEN_EXISTING);
    GET(kvmem_layout_info, info, kvmem_layout_get_info, none);
    CHECK(info.identity == NULL && info.identity_size == 0);
}

TEST(two_layouts_do_not_write_one_file) {
    SCRATCH_FILE(path, "cache");
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OWNED(kvmem_layout) layout = must_build(&config, path, 0);
    refuse(&config, path, KVMEM_DISK_OPEN_EXISTING, KVMEM_STATUS_BUSY, path);
    OWNED(kvmem_layout) reader = must_build(&config, path, KVMEM_DISK_OPEN_EXISTING | KVMEM_DISK_READ_ONLY);
    kvmem_layout_destroy(layout);
    layout = must_build(&config, path, KVMEM_DISK_OPEN_EXISTING);
}

TEST(a_file_without_a_valid_fingerprint_fails) {
    SCRATCH_FILE(path, "cache");
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    kvmem_layout *layout = must_build(&config, path, 0);
    const off_t blocks = end_of_pages(end_of_blocks(layout, &config));
    kvmem_layout_destroy(layout);
    CHECK_EQ(file_length(path), blocks + FINGERPRINT);
    CHECK_EQ(unlink(path), 0);
    const kvmem_status corrupt = KVMEM_STATUS_CORRUPT;
    /* A file of the right size made by another program. */
    write_file(path, "", 0);
    CHECK_EQ(truncate(path, blocks + FINGERPRINT), 0);
    refuse(&config, path, KVMEM_DISK_OPEN_EXISTING, corrupt, "KVMEM_LAYOUT_REGIONS");
    CHECK_EQ(unlink(path), 0);
    /* A truncated file, a longer file, and a file with a damaged fingerprint. */
    kvmem_layout_destroy(must_build(&config, path, 0));
    CHECK_EQ(truncate(path, blocks), 0);
    refuse(&config, path, KVMEM_DISK_OPEN_EXISTING, corrupt, path);
    CHECK_EQ(truncate(path, 5), 0);
    refuse(&config, path, KVMEM_DISK_OPEN_EXISTING, corrupt, path);
    CHECK_EQ(unlink(path), 0);
    kvmem_layout_destroy(must_build(&config, path, 0));
    CHECK_EQ(truncate(path, blocks + FINGERPRINT + 1), 0);
    refuse(&config, path, KVMEM_DISK_OPEN_EXISTING, corrupt, path);
    CHECK_EQ(truncate(path, blocks + FINGERPRINT), 0);
    kvmem_layout_destroy(must_build(&config, path, KVMEM_DISK_OPEN_EXISTING));
    const int file = open(path, O_WRONLY | O_CLOEXEC);
    CHECK_EQ(pwrite(file, "?", 1, blocks + 40), 1);
    close(file);
    refuse(&config, path, KVMEM_DISK_OPEN_EXISTING, corrupt, path);
}

/* The file of a region has the requested size, and contains nothing else. */
TEST(a_plain_region_has_no_fingerprint) {
    SCRATCH(directory);
    kvmem_disk_options disk = OPTIONS(kvmem_disk_options, it.path = scratch_file(&directory, "plain"),
                                      it.size = 12345);
    GET(kvmem_region *, region, kvmem_region_create_disk, &disk);
    kvmem_region_destroy(region);
    CHECK_EQ(file_length(disk.path), 12345);
}

/* Two regions of one layer each. */
static kvmem_status lay_out_two(kvmem_region *first, kvmem_region *second) {
    kvmem_layout_config config = WITH(kv_config(&kv_kinds[1]), it.num_layers = 2);
    kvmem_region *const regions[] = {first, second};
    return TRIED(kvmem_layout, kvmem_layout_build,
                 REF(OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_REGIONS,
                             it.regions = regions, it.count = 2)));
}

TEST(one_file_opened_twice_counts_as_overlapping) {
    SCRATCH(directory);
    kvmem_disk_options disk = OPTIONS(kvmem_disk_options);
    char link_path[160];
    strcpy(link_path, scratch_file(&directory, "another_name"));
    disk.path = scratch_file(&directory, "file");
    disk.size = MIB;
    OWNED(kvmem_region) first = NULL, *second = NULL, *other = NULL;
    EXPECT_OK(kvmem_region_create_disk(&disk, &first, ERR));
    CHECK_EQ(link(disk.path, link_path), 0);
    disk.flags = KVMEM_DISK_OPEN_EXISTING | KVMEM_DISK_NO_LOCK;
    disk.path = link_path;
    EXPECT_OK(kvmem_region_create_disk(&disk, &second, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "overlap", lay_out_two(first, second));
    EXPECT_OK(kvmem_region_create_view(second, MIB / 2, MIB / 2, &other, ERR));
    EXPECT_OK(lay_out_two(first, other)); /* other bytes of the same file */
}

TEST(memory_mapped_twice_counts_as_overlapping) {
    const size_t size = 65536;
    CLEANUP(test_close) const int file = memfd_create("pages", MFD_CLOEXEC);
    CHECK(file >= 0);
    CHECK_EQ(ftruncate(file, 2 * (off_t)size), 0);
    unsigned char *first = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    unsigned char *second = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    unsigned char *own = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    CHECK(first != MAP_FAILED && second != MAP_FAILED && own != MAP_FAILED);
    kvmem_region *one = region_adopt(first, size);
    kvmem_region *same = region_adopt(second, size);
    kvmem_region *rest = region_adopt(second + size, size);
    kvmem_region *private = region_adopt(own, size);
    const kvmem_status invalid = KVMEM_STATUS_INVALID_ARGUMENT;
    EXPECT_MESSAGE(invalid, "regions 0 and 1 overlap", lay_out_two(one, same));
    EXPECT_OK(lay_out_two(one, rest));
    EXPECT_OK(lay_out_two(one, private)); /* a write to it allocates a new page */
    kvmem_region *const all[] = {one, same, rest, private};
    for (size_t i = 0; i < NUM(all); i++) kvmem_region_destroy(all[i]);
    munmap(first, size);
    munmap(second, 2 * size);
    munmap(own, size);
}

TEST(a_region_with_the_same_bytes_twice_is_rejected) {
    const size_t size = 65536;
    CLEANUP(test_close) const int file = memfd_create("pages", MFD_CLOEXEC);
    CHECK(file >= 0);
    CHECK_EQ(ftruncate(file, (off_t)size), 0);
    unsigned char *twice = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(twice != MAP_FAILED);
    for (size_t i = 0; i < 2; i++)
        CHECK(mmap(twice + i * size, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) !=
              MAP_FAILED);
    kvmem_layout_config config = OPTIONS(kvmem_layout_config, it.num_blocks = 32, it.num_layers = 1,
                                         it.outer_dim = 1, it.page_size = 1, it.inner_dim = 2048,
                                         it.dtype_width = 2, it.order = "BLONC");
    OWNED(kvmem_region) region = region_adopt(twice, 2 * size);
    const kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = &config,
                                                 it.source = KVMEM_LAYOUT_REGIONS, it.regions = &region,
                                                 it.count = 1);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "maps the same bytes twice", kvmem_layout_build, &options);
    config.num_blocks = 16; /* the first mapping */
    OWN(kvmem_layout, layout, kvmem_layout_build, &options);
    kvmem_layout_destroy(layout);
    layout = NULL;
    kvmem_region_destroy(region);
    region = NULL;
    munmap(twice, 2 * size);
}

/* Also strides of padded pages. Orders with the same addresses are no difference. */
TEST(another_order_or_stride_fails_with_the_difference) {
    CLEANUP(scratch_remove) scratch directory = scratch_create(temporary_directory());
    const char *path = scratch_file(&directory, "cache");
    kvmem_layout_config usual = WITH(kv_config(&kv_kinds[0]), it.num_heads = 2);
    const kvmem_layout_config config = WITH(usual, it.order = "BLOHNC", it.block_stride = 4096);
    for (int i = 0; i < 2; i++) {
        OWNED(kvmem_layout) layout = must_build(&config, path,
                                                KVMEM_DISK_OPEN_OR_CREATE | KVMEM_DISK_BUFFERED);
        GET(kvmem_layout_info, info, kvmem_layout_get_info, layout);
        CHECK_STR(info.order, "BLOHNC");
        CHECK_EQ(info.block_stride, 4096);
    }
    static const struct {
        const char *order;
        uint64_t block_stride;
        const char *named;
    } others[] = {
        {"BLONHC", 4096, "order is BLOHNC in the file and BLONHC here"},
        {"BLOHNC", 8192, "the stride of axis B is 4096 bytes in the file and 8192 bytes here"},
        {"BLOHNC", 0, "the stride of axis B is 4096 bytes in the file and tight here"},
        {"BLONHC", 0,
         "order is BLOHNC in the file and BLONHC here, the stride of axis B is 4096 bytes in the file and tight here"},
    };
    for (size_t i = 0; i < NUM(others); i++) {
        const kvmem_layout_config other = WITH(usual, it.order = others[i].order,
                                               it.block_stride = others[i].block_stride);
        refuse(&other, path, KVMEM_DISK_OPEN_EXISTING, KVMEM_STATUS_INVALID_ARGUMENT, others[i].named);
    }
    CHECK_EQ(unlink(path), 0);
    kvmem_layout_config named = kv_config(&kv_kinds[0]), same = WITH(usual, it.order = "BLONHC");
    kvmem_layout_destroy(must_build(&named, path, 0));
    kvmem_layout_destroy(must_build(&same, path, KVMEM_DISK_OPEN_EXISTING));
}

/* The caller has mapped the file and adopted the mapping, so both are the same bytes. */
TEST(a_file_and_its_mapping_count_as_overlapping) {
    enum { PAGE = 4096, BLOCKS = 8 };
    SCRATCH_FILE(path, "cache");
    const kvmem_layout_config config = OPTIONS(
        kvmem_layout_config, it.num_blocks = BLOCKS, it.num_layers = 1, it.outer_dim = 1, it.page_size = 1,
        it.inner_dim = PAGE, it.dtype_width = 1, it.order = KVMEM_ORDER_FULLY_CONTIGUOUS);
    OWNED(kvmem_layout) on_disk = must_build(&config, path, KVMEM_DISK_BUFFERED);
    unsigned char *bytes = mmap(NULL, BLOCKS * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, info_of(on_disk).fd,
                                0);
    CHECK(bytes != MAP_FAILED);
    {
        OWN(kvmem_region, region, kvmem_region_adopt_host,
            REF(OPTIONS(kvmem_adopt_options, it.address = bytes, it.size = BLOCKS * PAGE)));
        OWNED(kvmem_layout) mapped = regions_lay_out(&config, &region, 1, NULL);
        const kvmem_block_pair same[] = {{3, 3}}, apart[] = {{3, 4}};
        const kv_job refused =
            JOB(it.run.pairs = same, it.run.num_pairs = NUM(same));
        REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "overlap", kv_prepare, mapped, on_disk, &refused);
        REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "overlap", kv_prepare, on_disk, mapped, &refused);
        const kv_job options =
            JOB(it.run.pairs = apart, it.run.num_pairs = NUM(apart));
        memset(bytes + 3 * PAGE, 7, PAGE);
        kv_run_with(mapped, on_disk, &options);
        CHECK_FILLED(bytes + 4 * PAGE, 7, PAGE);
    }
    CHECK_EQ(munmap(bytes, BLOCKS * PAGE), 0);
}

/* Layer 0 is read from page 0 and written to page 1, from which layer 1 is read. No layer alone overlaps. */
TEST(layers_that_are_moved_one_by_one_overlap_each_other) {
    enum { PAGE = 4096, BLOCKS = 4 };
    SCRATCH_FILE(path, "cache");
    const kvmem_layout_config config = OPTIONS(
        kvmem_layout_config, it.num_blocks = BLOCKS, it.num_layers = 2, it.outer_dim = 1, it.page_size = 1,
        it.inner_dim = PAGE, it.dtype_width = 1, it.order = KVMEM_ORDER_FULLY_CONTIGUOUS);
    OWNED(kvmem_layout) on_disk = must_build(&config, path, KVMEM_DISK_BUFFERED);
    const size_t size = 2 * BLOCKS * PAGE;
    unsigned char *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, info_of(on_disk).fd, 0);
    CHECK(bytes != MAP_FAILED);
    {
        OWN(kvmem_region, region, kvmem_region_adopt_host,
            REF(OPTIONS(kvmem_adopt_options, it.address = bytes + PAGE, it.size = size - PAGE)));
        const kvmem_layout_config fewer = WITH(config, it.num_blocks = BLOCKS - 1);
        OWNED(kvmem_layout) mapped = regions_lay_out(&fewer, &region, 1, NULL);
        static const kvmem_block_pair pairs[] = {{0, 0}};
        const kv_job by_layer =
            JOB(it.run.pairs = pairs, it.run.num_pairs = 1, it.transfer.flags = KVMEM_TRANSFER_BY_LAYER);
        REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "overlap", kv_prepare, on_disk, mapped, &by_layer);
        REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "overlap", kv_prepare, mapped, on_disk, &by_layer);
    }
    CHECK_EQ(munmap(bytes, size), 0);
}
