// SPDX-License-Identifier: Apache-2.0
// Regions on disk: temporary files without a name, named files, and what happens to a file when a call fails.
#include "harness.h"

#include <sys/statvfs.h>

#define MEMORY_FILE_SYSTEM "/dev/shm"

static kvmem_disk_options disk_options(uint64_t size) {
    return OPTIONS(kvmem_disk_options, it.size = size);
}

/* Fails with this status, creates no region, and leaves no file descriptor open. */
static void refuse(const kvmem_disk_options *options, kvmem_status status, const char *part) {
    KEEPS_FILES;
    REFUSE(status, part, kvmem_region_create_disk, options);
}

static bool has_direct_io(const char *directory) {
    const int file = open(directory, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    if (file >= 0) close(file);
    return file >= 0;
}

TEST(a_temporary_file_has_no_name_and_is_deleted_with_its_region) {
    SCRATCH(directory);
    KEEPS_FILES;
    kvmem_disk_options options = WITH(disk_options(MIB), it.directory = directory.path);
    OWNED(kvmem_region) region = region_create_disk(&options);
    const kvmem_region_info info = region_info(region);
    CHECK(info.flags & KVMEM_REGION_TEMPORARY);
    CHECK_EQ(count_directory_entries(directory.path), 0);
    struct stat state;
    CHECK_EQ(fstat(info.fd, &state), 0);
    CHECK_EQ(state.st_nlink, 0);
    CHECK(state.st_size >= (off_t)MIB);
    CHECK(fcntl(info.fd, F_GETFD) & FD_CLOEXEC);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "", kvmem_region_get_path, region);
}

TEST(info_describes_the_region) {
    OWNED(kvmem_region) region = region_create_disk(REF(disk_options(MIB)));
    const kvmem_region_info info = region_info(region);
    CHECK_EQ(info.tier, KVMEM_TIER_DISK);
    CHECK_EQ(info.origin, KVMEM_ORIGIN_ALLOCATED);
    CHECK_EQ(info.address, 0);
    CHECK_EQ(info.size, MIB);
    CHECK_EQ(info.device, -1);
    CHECK_EQ(info.numa_node, -1);
    CHECK(info.fd >= 0);
    CHECK_EQ(info.registration_count, 0);
    CHECK_EQ((info.flags & KVMEM_REGION_DIRECT_IO) != 0, has_direct_io(temporary_directory()));
    CHECK_EQ(info.alignment > 1, (info.flags & KVMEM_REGION_DIRECT_IO) != 0);
    CHECK_EQ(info.alignment & (info.alignment - 1), 0);
}

TEST(the_file_is_allocated_in_advance) {
    OWNED(kvmem_region) region = region_create_disk(REF(disk_options(4 * MIB)));
    const kvmem_region_info info = region_info(region);
    struct stat state;
    CHECK_EQ(fstat(info.fd, &state), 0);
    CHECK_EQ((info.flags & KVMEM_REGION_PREALLOCATED) != 0, (uint64_t)state.st_blocks * 512 >= 4 * MIB);
}

TEST(buffered_means_no_direct_io) {
    kvmem_disk_options options = WITH(disk_options(MIB), it.flags = KVMEM_DISK_BUFFERED);
    OWNED(kvmem_region) region = region_create_disk(&options);
    const kvmem_region_info info = region_info(region);
    CHECK_EQ(info.flags & KVMEM_REGION_DIRECT_IO, 0);
    CHECK_EQ(info.alignment, 1);
    CHECK_EQ(fcntl(info.fd, F_GETFL) & O_DIRECT, 0);
}

TEST(a_named_file_outlives_its_region) {
    SCRATCH(directory);
    const size_t files = count_open_files();
    kvmem_disk_options options = WITH(disk_options(MIB), it.path = scratch_file(&directory, "cache"));
    kvmem_region *region = region_create_disk(&options);
    CHECK_EQ(region_info(region).flags & KVMEM_REGION_TEMPORARY, 0);
    EXPECT_OK(kvmem_region_sync(region, ERR));
    kvmem_region_destroy(region);
    CHECK_EQ(count_open_files(), files);
    CHECK_EQ(file_length(scratch_file(&directory, "cache")), MIB);
}

TEST(the_path_is_returned_as_text) {
    SCRATCH(directory);
    kvmem_disk_options options = WITH(disk_options(4096), it.path = scratch_file(&directory, "named"));
    OWNED(kvmem_region) region = region_create_disk(&options);
    OWN(kvmem_blob, path, kvmem_region_get_path, region);
    CHECK_EQ(kvmem_blob_size(path), strlen(options.path));
    CHECK_STR((const char *)kvmem_blob_data(path), options.path);
}

TEST(a_file_that_exists_is_unchanged) {
    SCRATCH(directory);
    kvmem_disk_options options = WITH(disk_options(4096), it.path = scratch_file(&directory, "precious"));
    write_file(options.path, "precious", 8);
    refuse(&options, KVMEM_STATUS_ALREADY_EXISTS, options.path);
    CHECK_EQ(file_length(options.path), 8);
}

TEST(a_directory_fails) {
    SCRATCH(directory);
    kvmem_disk_options options = WITH(disk_options(4096), it.path = directory.path);
    refuse(&options, KVMEM_STATUS_ALREADY_EXISTS, directory.path);
    options.flags = KVMEM_DISK_OPEN_EXISTING;
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, directory.path);
}

TEST(a_device_fails) {
    refuse(REF(WITH(disk_options(4096), it.path = "/dev/zero", it.flags = KVMEM_DISK_OPEN_EXISTING)),
           KVMEM_STATUS_INVALID_ARGUMENT, "/dev/zero");
}

TEST(a_missing_directory_is_named) {
    kvmem_disk_options options = WITH(disk_options(4096), it.path = "/nonexistent/directory/file");
    refuse(&options, KVMEM_STATUS_NOT_FOUND, options.path);
    CHECK_CAUSE(KVMEM_DOMAIN_ERRNO, ENOENT);
    options.path = NULL;
    options.directory = "/nonexistent/directory";
    refuse(&options, KVMEM_STATUS_NOT_FOUND, "the directory /nonexistent/directory does not exist");
    CHECK_CAUSE(KVMEM_DOMAIN_ERRNO, ENOENT);
}

TEST(a_full_file_system_leaves_no_file) {
    struct statvfs space;
    CHECK_EQ(statvfs(MEMORY_FILE_SYSTEM, &space), 0);
    CLEANUP(scratch_remove) scratch directory = scratch_create(MEMORY_FILE_SYSTEM);
    kvmem_disk_options options = disk_options((uint64_t)space.f_blocks * space.f_frsize + MIB);
    options.path = scratch_file(&directory, "too_large");
    refuse(&options, KVMEM_STATUS_OUT_OF_MEMORY, options.path);
    CHECK_CAUSE(KVMEM_DOMAIN_ERRNO, ENOSPC);
    CHECK_HAS(test_last_message(), "bytes are free on the file system of");
    CHECK_EQ(count_directory_entries(directory.path), 0);
    options.path = NULL;
    options.directory = directory.path;
    refuse(&options, KVMEM_STATUS_OUT_OF_MEMORY, directory.path);
    CHECK_CAUSE(KVMEM_DOMAIN_ERRNO, ENOSPC);
}

TEST(a_file_system_in_memory_is_used_without_direct_io) {
    kvmem_disk_options options = WITH(disk_options(MIB), it.directory = MEMORY_FILE_SYSTEM);
    const bool direct = has_direct_io(MEMORY_FILE_SYSTEM);
    kvmem_region *region = region_create_disk(&options);
    const kvmem_region_info info = region_info(region);
    CHECK_EQ((info.flags & KVMEM_REGION_DIRECT_IO) != 0, direct);
    CHECK_EQ(pwrite(info.fd, "", 0, 0), 0);
    kvmem_region_destroy(region);
    options.flags = KVMEM_DISK_DIRECT_REQUIRED;
    if (direct) {
        kvmem_region_destroy(region_create_disk(&options));
        SKIP_PART("a file system without direct I/O: %s has it on this kernel", MEMORY_FILE_SYSTEM);
    } else {
        refuse(&options, KVMEM_STATUS_UNSUPPORTED, "O_DIRECT");
    }
}

TEST(contradicting_options_fail) {
    kvmem_disk_options options = disk_options(4096);
    options.flags = KVMEM_DISK_BUFFERED | KVMEM_DISK_DIRECT_REQUIRED;
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, "BUFFERED");
    options.flags = KVMEM_DISK_OPEN_EXISTING;
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, "path");
    options.flags = 0;
    options.path = "/tmp/a";
    options.directory = "/tmp";
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, "directory");
}

TEST(impossible_sizes_fail) {
    kvmem_disk_options options = disk_options(0);
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, "needs a size");
    options.size = UINT64_MAX;
    kvmem_region *region = NULL;
    KEEPS_FILES;
    CHECK(kvmem_region_create_disk(&options, &region, ERR) < 0);
    CHECK(region == NULL);
}

TEST(opening_an_existing_file_does_not_change_it) {
    SCRATCH(directory);
    static unsigned char bytes[8192];
    memset(bytes, 0x5A, sizeof(bytes));
    const char *path = scratch_file(&directory, "existing");
    write_file(path, bytes, sizeof(bytes));
    const uint64_t sizes[] = {0, 4096, 8192};
    for (size_t i = 0; i < NUM(sizes); i++) {
        kvmem_disk_options options = WITH(disk_options(sizes[i]), it.path = path,
                                          it.flags = KVMEM_DISK_OPEN_EXISTING | KVMEM_DISK_BUFFERED);
        OWNED(kvmem_region) region = region_create_disk(&options);
        CHECK_EQ(region_info(region).size, sizes[i] ? sizes[i] : sizeof(bytes));
        unsigned char read_back[sizeof(bytes)];
        CHECK_EQ(pread(region_info(region).fd, read_back, sizeof(read_back), 0), sizeof(bytes));
        CHECK_FILLED(read_back, 0x5A, sizeof(read_back));
    }
    CHECK_EQ(access(path, F_OK), 0);
}

TEST(an_existing_file_must_exist_and_be_large_enough) {
    SCRATCH(directory);
    kvmem_disk_options options = WITH(disk_options(100), it.path = scratch_file(&directory, "small"),
                                      it.flags = KVMEM_DISK_OPEN_EXISTING);
    refuse(&options, KVMEM_STATUS_NOT_FOUND, options.path);
    CHECK_EQ(count_directory_entries(directory.path), 0);
    write_file(options.path, "small", 5);
    refuse(&options, KVMEM_STATUS_OUT_OF_RANGE, "100");
    CHECK_HAS(test_last_message(), "5");
    write_file(options.path, "", 0);
    options.size = 0;
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, options.path);
}

TEST(nothing_leaks) {
    const kvmem_disk_options options = disk_options(4096);
    kvmem_region_destroy(region_create_disk(&options));
    const size_t files = count_open_files();
    const size_t mappings = count_mappings();
    for (int i = 0; i < 100; i++) kvmem_region_destroy(region_create_disk(&options));
    CHECK_EQ(count_open_files(), files);
    CHECK(count_mappings() < mappings + 100); /* the allocator may have added mappings */
}
