// SPDX-License-Identifier: Apache-2.0
// Regions of system memory: zeroed, page-aligned, huge pages, NUMA, prefault, and unmapped when destroyed.
#include "harness.h"

#include <sys/sysinfo.h>

static kvmem_system_options system_options(uint64_t size) {
    return OPTIONS(kvmem_system_options, it.size = size);
}

static kvmem_region *create(const kvmem_system_options *options) {
    return MADE(kvmem_region, kvmem_region_create_system, options);
}

TEST(memory_is_zeroed_aligned_and_writable) {
    const uint64_t sizes[] = {1, 4095, 4096, 4097, 3 * MIB + 123};
    for (size_t i = 0; i < NUM(sizes); i++) {
        OWNED(kvmem_region) region = create(REF(system_options(sizes[i])));
        const kvmem_region_info info = region_info(region);
        unsigned char *bytes = (unsigned char *)(uintptr_t)info.address;
        CHECK_EQ(info.size, sizes[i]);
        CHECK_EQ(info.address % 4096, 0);
        CHECK_FILLED(bytes, 0, sizes[i]);
        memset(bytes, 0xA5, sizes[i]);
        CHECK_FILLED(bytes, 0xA5, sizes[i]);
    }
}

TEST(info_describes_the_region) {
    OWNED(kvmem_region) region = create(REF(system_options(10000)));
    const kvmem_region_info info = region_info(region);
    CHECK_EQ(info.tier, KVMEM_TIER_SYSTEM);
    CHECK_EQ(info.origin, KVMEM_ORIGIN_ALLOCATED);
    CHECK_EQ(info.memory_page_size, 4096);
    CHECK_EQ(info.alignment, 1);
    CHECK_EQ(info.flags, 0);
    CHECK_EQ(info.device, -1);
    CHECK_EQ(info.numa_node, -1);
    CHECK_EQ(info.fd, -1);
    CHECK_EQ(info.registration_count, 0);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "", kvmem_region_get_path, region);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "", kvmem_region_get_agent, region, 0);
    EXPECT_OK(kvmem_region_sync(region, ERR));
}

TEST(destroying_unmaps) {
    kvmem_region *region = create(REF(system_options(8 * MIB)));
    const uint64_t address = region_info(region).address;
    CHECK(is_mapped(address));
    kvmem_region_destroy(region);
    CHECK(!is_mapped(address));
    kvmem_region_destroy(NULL);
}

TEST(nothing_leaks) {
    const kvmem_system_options options = system_options(MIB);
    kvmem_region_destroy(create(&options));
    const size_t mappings = count_mappings();
    KEEPS_FILES;
    for (int i = 0; i < 100; i++) kvmem_region_destroy(create(&options));
    CHECK(count_mappings() < mappings + 100); /* the allocator may have added mappings */
}

TEST(impossible_sizes_fail) {
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "0 bytes", kvmem_region_create_system, REF(system_options(0)));
    const kvmem_system_options beyond_the_machine = system_options(UINT64_C(1) << 56);
    REFUSE(KVMEM_STATUS_OUT_OF_MEMORY, "72057594037927936", kvmem_region_create_system, &beyond_the_machine);
    kvmem_region *region = NULL;
    const kvmem_status status = kvmem_region_create_system(REF(system_options(UINT64_MAX)), &region, ERR);
    CHECK(status == KVMEM_STATUS_INVALID_ARGUMENT || status == KVMEM_STATUS_OUT_OF_MEMORY);
    CHECK(region == NULL);
}

TEST(huge_pages_are_used_or_their_fallback_is_visible) {
    OWNED(kvmem_region) region = create(REF(WITH(system_options(4 * MIB), it.huge_page_size = 2 * MIB)));
    const kvmem_region_info info = region_info(region);
    if (ready_huge_pages() >= 2) {
        CHECK_EQ(info.memory_page_size, 2 * MIB);
        CHECK_EQ(info.flags, 0);
    } else {
        CHECK_EQ(info.memory_page_size, 4096);
        CHECK_EQ(info.flags, KVMEM_REGION_HUGE_PAGE_FALLBACK);
        SKIP_PART("reserved huge pages: this machine has none free (see /proc/sys/vm/nr_hugepages)");
    }
    CHECK_FILLED((void *)(uintptr_t)info.address, 0, info.size);
}

TEST(required_huge_pages_do_not_fall_back) {
    kvmem_system_options options = system_options((ready_huge_pages() + 1) * 2 * MIB);
    options.huge_page_size = 2 * MIB;
    options.flags = KVMEM_SYSTEM_HUGE_PAGES_REQUIRED;
    REFUSE(KVMEM_STATUS_OUT_OF_MEMORY, "huge page", kvmem_region_create_system, &options);
    CHECK_HAS(test_last_message(), "nr_hugepages");
}

/* The kernel does not reserve huge pages on a specific node, so the first access could raise SIGBUS. */
TEST(huge_pages_of_a_node_are_allocated_at_once) {
    kvmem_system_options options = WITH(system_options(2 * MIB), it.huge_page_size = 2 * MIB,
                                        it.flags = KVMEM_SYSTEM_NUMA_BIND | KVMEM_SYSTEM_HUGE_PAGES_REQUIRED);
    if (ready_huge_pages() == 0) {
        REFUSE(KVMEM_STATUS_OUT_OF_MEMORY, "nr_hugepages", kvmem_region_create_system, &options);
        SKIP_PART("reserved huge pages: this machine has none free (see /proc/sys/vm/nr_hugepages)");
        return;
    }
    OWNED(kvmem_region) region = create(&options);
    CHECK_EQ(region_info(region).numa_node, 0);
    CHECK_EQ(region_residency(region).resident_bytes, 2 * MIB);
}

TEST(impossible_huge_pages_fail) {
    kvmem_system_options options = WITH(system_options(4 * MIB), it.huge_page_size = 3 * MIB);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "3145728", kvmem_region_create_system, &options);
    /* A size that no system has is a lack, not a mistake: systems differ. */
    options.huge_page_size = UINT64_C(1) << 40;
    OWNED(kvmem_region) fallen_back = create(&options);
    CHECK_EQ(region_info(fallen_back).flags, KVMEM_REGION_HUGE_PAGE_FALLBACK);
    options.flags = KVMEM_SYSTEM_HUGE_PAGES_REQUIRED;
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "/sys/kernel/mm/hugepages", kvmem_region_create_system, &options);
    options.huge_page_size = 0;
    options.flags = KVMEM_SYSTEM_HUGE_PAGES_REQUIRED;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "HUGE_PAGES", kvmem_region_create_system, &options);
}

TEST(transparent_huge_pages_are_counted) {
    kvmem_system_options options = system_options(8 * MIB);
    options.flags = KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES;
    OWNED(kvmem_region) region = create(&options);
    CHECK_EQ(region_residency(region).transparent_huge_bytes, 0); /* nothing is touched yet */
    memset((void *)(uintptr_t)region_info(region).address, 1, 8 * MIB);
    const kvmem_region_residency residency = region_residency(region);
    CHECK_EQ(residency.transparent_huge_bytes % (2 * MIB), 0);
    CHECK(residency.transparent_huge_bytes <= residency.resident_bytes);
    CHECK(residency.resident_bytes + residency.swapped_bytes >= 8 * MIB);
}

/* The kernel has transparent huge pages; whether it provides them is a setting, which does not matter for
   requests. */
static bool has_transparent_huge_pages(void) {
    return access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) == 0;
}

static void expect_requested_huge_pages(uint64_t address) {
    CHECK_EQ(mapping_has_flag(address, "hg"), has_transparent_huge_pages());
    CHECK(!mapping_has_flag(address, "nh"));
}

TEST(a_region_of_a_huge_page_asks_for_huge_pages) {
    const uint64_t sizes[] = {2 * MIB, 4 * MIB + 4096};
    const uint64_t flags[] = {0, KVMEM_SYSTEM_SHAREABLE};
    for (size_t i = 0; i < NUM(sizes) * NUM(flags); i++) {
        const uint64_t size = sizes[i / NUM(flags)];
        OWNED(kvmem_region) region = create(REF(WITH(system_options(size),
                                                     it.flags = flags[i % NUM(flags)])));
        const kvmem_region_info info = region_info(region);
        CHECK_EQ(info.address % (2 * MIB), 0);
        CHECK_EQ(info.flags & KVMEM_REGION_HUGE_PAGE_FALLBACK, 0); /* they were not requested by the caller */
        expect_requested_huge_pages(info.address);
        memset((void *)(uintptr_t)info.address, 1, size);
        CHECK_EQ(region_residency(region).transparent_huge_bytes % (2 * MIB), 0);
    }
}

TEST(the_regions_of_a_layout_ask_for_huge_pages) {
    kvmem_layout_config config = kv_config(&kv_kinds[0]);
    config.num_blocks = 4 * MIB / kv_block_stride(&config) + 1;
    kvmem_system_options system = {.struct_size = sizeof(system)};
    OWN(kvmem_layout, layout, kvmem_layout_build,
        REF(OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_ALLOCATE, it.system = &system)));
    kvmem_block block;
    EXPECT_OK(kvmem_layout_get_block(layout, 0, 0, 0, &block, ERR));
    expect_requested_huge_pages(block.address);
}

TEST(a_smaller_region_has_the_pages_of_the_system) {
    OWNED(kvmem_region) region = create(REF(system_options(2 * MIB - 1)));
    CHECK(!mapping_has_flag(region_info(region).address, "hg"));
    CHECK(!mapping_has_flag(region_info(region).address, "nh"));
}

TEST(ordinary_pages_can_be_requested) {
    const kvmem_system_options options = WITH(system_options(8 * MIB), it.flags = KVMEM_SYSTEM_NO_HUGE_PAGES);
    OWNED(kvmem_region) region = create(&options);
    const uint64_t address = region_info(region).address;
    CHECK_EQ(mapping_has_flag(address, "nh"), has_transparent_huge_pages());
    CHECK(!mapping_has_flag(address, "hg"));
    *(unsigned char *)(uintptr_t)(address + 4 * MIB) = 1;
    CHECK_EQ(count_resident_pages(address, 8 * MIB), 1);
}

TEST(contradicting_requests_for_pages_fail) {
    const kvmem_system_options options = WITH(system_options(4 * MIB), it.flags = KVMEM_SYSTEM_NO_HUGE_PAGES);
    const kvmem_system_options contradictions[] = {
        WITH(options, it.flags |= KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES),
        WITH(options, it.flags |= KVMEM_SYSTEM_HUGE_PAGES_REQUIRED),
        WITH(options, it.huge_page_size = 2 * MIB),
    };
    for (size_t i = 0; i < NUM(contradictions); i++)
        REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "HUGE_PAGES", kvmem_region_create_system, &contradictions[i]);
}

/* The sanitizers reserve addresses for themselves. */
#if !defined __SANITIZE_ADDRESS__ && !UNDER_THREAD_SANITIZER

/* Alignment for huge pages needs up to 2 MiB more addresses than the region has. */
static void create_with_few_addresses(void) {
    const uint64_t size = 64 * MIB;
    limit_addresses(size + MIB);
    REFUSE(KVMEM_STATUS_OUT_OF_MEMORY, "", kvmem_region_create_system,
           REF(WITH(system_options(size), it.flags = KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES)));
    OWNED(kvmem_region) region = create(REF(system_options(size)));
    const uint64_t address = region_info(region).address;
    expect_requested_huge_pages(address);
    ((unsigned char *)(uintptr_t)address)[size - 1] = 1;
}

TEST_CALL(scarce_addresses_suffice, in_a_forked_child(create_with_few_addresses))

#endif

TEST(resident_pages_are_counted) {
    const uint64_t flags[] = {0, KVMEM_SYSTEM_SHAREABLE};
    for (size_t i = 0; i < NUM(flags); i++) {
        OWNED(kvmem_region) region = create(REF(WITH(system_options(4 * MIB), it.flags = flags[i])));
        OWN(kvmem_region, view, kvmem_region_create_view, region, MIB, MIB);
        /* The kernel may have merged a private mapping with an adjacent one, whose pages then count too. */
        const bool is_alone = flags[i] == KVMEM_SYSTEM_SHAREABLE;
        CHECK(region_residency(region).resident_bytes == 0 || !is_alone);
        memset((void *)(uintptr_t)region_info(region).address, 1, 4 * MIB);
        const kvmem_region_residency residency = region_residency(region);
        CHECK(residency.resident_bytes + residency.swapped_bytes >= 4 * MIB);
        CHECK(residency.resident_bytes <= 4 * MIB);
        CHECK_EQ(region_residency(view).resident_bytes, residency.resident_bytes);
    }
}

/* Counters that cannot be read are an error, never 0. kvmem_region_get_info needs none of them. */
static void count_without_proc(void) {
    OWNED(kvmem_region) region = create(REF(system_options(MIB)));
    fail_system_call(SYS_openat, EACCES);
    CHECK_EQ(region_info(region).size, MIB);
    kvmem_region_residency residency;
    EXPECT_MESSAGE(KVMEM_STATUS_PERMISSION_DENIED, "smaps",
                   kvmem_region_get_residency(region, &residency, ERR));
}

TEST(counters_that_cannot_be_read_are_an_error) {
    static unsigned char memory[8192];
    kvmem_region *adopted = region_adopt(memory, sizeof(memory));
    kvmem_region *file = region_create_temporary_file(4096);
    kvmem_region *const others[] = {adopted, file};
    for (size_t i = 0; i < NUM(others); i++) {
        kvmem_region_residency residency;
        EXPECT(KVMEM_STATUS_UNSUPPORTED, kvmem_region_get_residency(others[i], &residency, ERR));
        kvmem_region_destroy(others[i]);
    }
    in_a_forked_child(count_without_proc);
}

static uint64_t read_number(const char *path) {
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    unsigned long long number = 0;
    CHECK_EQ(fscanf(file, "%llu", &number), 1);
    fclose(file);
    return number;
}

static uint64_t machine_memory(void) {
    struct sysinfo machine;
    CHECK_EQ(sysinfo(&machine), 0);
    return ((uint64_t)machine.totalram + machine.totalswap) * machine.mem_unit;
}

/* More memory than the machine has could never be used, although a memory file of that size can be
   created. */
TEST(more_than_the_machine_has_fails) {
    const uint64_t size = machine_memory() + (UINT64_C(1) << 30);
    const uint64_t flags[] = {0, KVMEM_SYSTEM_SHAREABLE,
                              KVMEM_SYSTEM_SHAREABLE | KVMEM_SYSTEM_TRANSPARENT_HUGE_PAGES};
    for (size_t i = 0; i < NUM(flags); i++) {
        kvmem_system_options options = WITH(system_options(size), it.flags = flags[i]);
        if (read_number("/proc/sys/vm/overcommit_memory") == 1) {
            kvmem_region_destroy(create(&options)); /* this setting of the administrator allows it */
        } else {
            char text[32];
            snprintf(text, sizeof(text), "%llu", (unsigned long long)size);
            REFUSE(KVMEM_STATUS_OUT_OF_MEMORY, text, kvmem_region_create_system, &options);
        }
    }
}

/* A checksum of such a layout would read page after page until the kernel kills the process. */
TEST(a_layout_of_more_than_the_machine_has_fails) {
    kvmem_layout_config config = kv_config(&kv_kinds[0]);
    config.num_blocks = machine_memory() / kv_block_stride(&config) + (UINT64_C(1) << 30) / kv_block_stride(&config);
    kvmem_system_options system = {.struct_size = sizeof(system), .flags = KVMEM_SYSTEM_SHAREABLE};
    kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = &config,
                                           it.source = KVMEM_LAYOUT_ALLOCATE, it.system = &system);
    OWNED(kvmem_layout) layout = NULL;
    const bool is_refused = read_number("/proc/sys/vm/overcommit_memory") != 1;
    EXPECT(is_refused ? KVMEM_STATUS_OUT_OF_MEMORY : KVMEM_STATUS_OK,
           kvmem_layout_build(&options, &layout, ERR));
}

/* RLIMIT_FSIZE also limits memory files. The default action of its signal would end the child. */
static void make_limited_memory_files(void) {
    const struct rlimit limit = {MIB, MIB};
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    kvmem_system_options options = WITH(system_options(MIB), it.flags = KVMEM_SYSTEM_SHAREABLE);
    OWNED(kvmem_region) region = create(&options);
    options.size = MIB + 1;
    REFUSE(KVMEM_STATUS_OUT_OF_MEMORY, "RLIMIT_FSIZE", kvmem_region_create_system, &options);
    CHECK_HAS(test_last_message(), "1048576 bytes");
    /* The control block of a share is a file too. */
    const struct rlimit none = {0, MIB};
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
    kvmem_share_options share_options = OPTIONS(kvmem_share_options);
    REFUSE(KVMEM_STATUS_OUT_OF_MEMORY, "RLIMIT_FSIZE", kvmem_share_create_region, region, &share_options);
}

TEST_CALL(a_limit_on_files_is_an_error_and_no_signal, in_a_forked_child(make_limited_memory_files))

static void without_mbind(void) {
    fail_system_call(SYS_mbind, EPERM);
    kvmem_system_options options = WITH(system_options(MIB), it.flags = KVMEM_SYSTEM_NUMA_BIND);
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, "CAP_SYS_NICE", kvmem_region_create_system, &options);
    CHECK_HAS(test_last_message(), "kvmem-doctor");
}

TEST_CALL(a_container_that_forbids_numa_placement_is_named, in_a_forked_child(without_mbind))

TEST(a_numa_node_that_exists_is_bound) {
    const uint32_t nodes[] = {0, numa_node_to_test()};
    for (size_t i = 0; i < NUM(nodes); i++) {
        kvmem_system_options options = WITH(system_options(MIB), it.flags = KVMEM_SYSTEM_NUMA_BIND,
                                            it.numa_node = nodes[i], it.prefault_threads = 1);
        OWNED(kvmem_region) region = create(&options);
        const kvmem_region_info info = region_info(region);
        CHECK_EQ(info.numa_node, nodes[i]);
        numa_check_placed(info.address, info.size, NUMA_BIND, nodes[i]);
    }
}

TEST(a_numa_node_that_does_not_exist_fails) {
    const uint32_t nodes[] = {1023, 1000000, UINT32_MAX};
    for (size_t i = 0; i < NUM(nodes); i++) {
        kvmem_system_options options = WITH(system_options(MIB), it.flags = KVMEM_SYSTEM_NUMA_BIND,
                                            it.numa_node = nodes[i]);
        char text[16];
        snprintf(text, sizeof(text), "%u", nodes[i]);
        REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, text, kvmem_region_create_system, &options);
    }
}

TEST(a_numa_node_without_its_flag_fails) {
    kvmem_system_options options = WITH(system_options(MIB), it.numa_node = 3);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "numa_node", kvmem_region_create_system, &options);
}

TEST(prefault_makes_every_page_resident) {
    const uint32_t threads[] = {1, 2, 64};
    for (size_t i = 0; i < NUM(threads); i++) {
        kvmem_system_options options = WITH(system_options(4 * MIB + 1), it.prefault_threads = threads[i]);
        OWNED(kvmem_region) region = create(&options);
        const kvmem_region_info info = region_info(region);
        CHECK_EQ(count_resident_pages(info.address, info.size), 1025);
        CHECK_FILLED((void *)(uintptr_t)info.address, 0, info.size);
    }
}

TEST(without_prefault_no_page_is_resident) {
    const kvmem_system_options options = system_options(4 * MIB);
    OWNED(kvmem_region) region = create(&options);
    CHECK_EQ(count_resident_pages(region_info(region).address, 4 * MIB), 0);
}
