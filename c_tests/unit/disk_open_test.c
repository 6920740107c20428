// SPDX-License-Identifier: Apache-2.0
// Creating and opening files: a call that fails removes the file that it created, and its message names a
// remedy.
#include "harness.h"

#include <sys/mount.h>

static kvmem_disk_options disk_options(const char *path, uint64_t flags, uint64_t size) {
    return OPTIONS(kvmem_disk_options, it.path = path, it.flags = flags, it.size = size);
}

static void write_text(const char *path, const char *text) {
    CLEANUP(test_close) const int file = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(file >= 0);
    CHECK_EQ(write(file, text, strlen(text)), strlen(text));
}

/* Mounts a file system without O_DIRECT over a directory, for this process alone. */
static bool mount_ramfs(const char *path) {
    const uid_t user = getuid();
    if (unshare(CLONE_NEWNS) != 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
        char map[64];
        snprintf(map, sizeof(map), "0 %u 1", (unsigned)user);
        write_text("/proc/self/uid_map", map);
    }
    return mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mount("", path, "ramfs", 0, NULL) == 0;
}

static scratch mount_point;
#define CANNOT_MOUNT 99

static void on_ramfs(void) {
    if (!mount_ramfs(mount_point.path)) _exit(CANNOT_MOUNT);
    kvmem_disk_options options =
        disk_options(scratch_file(&mount_point, "required"), KVMEM_DISK_DIRECT_REQUIRED, 8192);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "O_DIRECT", kvmem_region_create_disk, &options);
    CHECK_EQ(count_directory_entries(mount_point.path), 0);
    /* An existing empty file is not filled. */
    write_file(options.path, "", 0);
    options.flags |= KVMEM_DISK_OPEN_OR_CREATE;
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "O_DIRECT", kvmem_region_create_disk, &options);
    CHECK_EQ(file_length(options.path), 0);
    CHECK_EQ(unlink(options.path), 0);
    options.flags = KVMEM_DISK_DIRECT_REQUIRED;
    options.path = NULL;
    options.directory = mount_point.path;
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "O_DIRECT", kvmem_region_create_disk, &options);
    options.flags = 0;
    kvmem_region_destroy(region_create_disk(&options));
    CHECK_EQ(count_directory_entries(mount_point.path), 0);

    options = disk_options(scratch_file(&mount_point, "preferred"), 0, 8192);
    kvmem_region *region = region_create_disk(&options);
    CHECK_EQ(region_info(region).flags & KVMEM_REGION_DIRECT_IO, 0);
    kvmem_region_destroy(region);
    CHECK_EQ(count_directory_entries(mount_point.path), 1);
    options.flags = KVMEM_DISK_OPEN_EXISTING | KVMEM_DISK_DIRECT_REQUIRED;
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "O_DIRECT", kvmem_region_create_disk, &options);
    CHECK_EQ(access(options.path, F_OK), 0); /* this file existed before */
    _exit(0);
}

TEST(without_direct_io_a_file_is_buffered_or_removed) {
    mount_point = scratch_create(temporary_directory());
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        test_leave_cases();
        alarm(PATIENCE_SECONDS);
        on_ramfs();
    }
    const int state = child_end(child);
    scratch_remove(&mount_point);
    CHECK(WIFEXITED(state));
    if (WEXITSTATUS(state) == CANNOT_MOUNT)
        SKIP("mounting ramfs: neither root nor user namespaces are allowed here");
    CHECK_EQ(WEXITSTATUS(state), 0);
}

/* The file exists when the limit is found to be too low. The default action of the signal would end the
   child. */
static void limited_file(void) {
    SCRATCH(directory);
    const struct rlimit limit = {12345, 12345};
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    kvmem_disk_options options = disk_options(scratch_file(&directory, "limited"), 0, MIB);
    REFUSE(KVMEM_STATUS_OUT_OF_MEMORY, "RLIMIT_FSIZE", kvmem_region_create_disk, &options);
    CHECK_CAUSE(KVMEM_DOMAIN_ERRNO, EFBIG);
    CHECK_HAS(test_last_message(), "12345 bytes");
    CHECK_HAS(test_last_message(), options.path);
    CHECK_EQ(count_directory_entries(directory.path), 0);
    options.flags = KVMEM_DISK_OPEN_OR_CREATE;
    REFUSE(KVMEM_STATUS_OUT_OF_MEMORY, "RLIMIT_FSIZE", kvmem_region_create_disk, &options);
    CHECK_EQ(count_directory_entries(directory.path), 0);
    /* An existing empty file stays, and stays empty. */
    write_file(options.path, "", 0);
    REFUSE(KVMEM_STATUS_OUT_OF_MEMORY, "RLIMIT_FSIZE", kvmem_region_create_disk, &options);
    CHECK_EQ(file_length(options.path), 0);
}

TEST_CALL(a_limit_on_files_is_an_error_and_no_signal, in_a_forked_child(limited_file))

static void limited_descriptors(void) {
    const struct rlimit limit = {64, 64};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    while (dup(0) >= 0) {
    }
    kvmem_disk_options options = disk_options(NULL, 0, 4096);
    REFUSE(KVMEM_STATUS_OUT_OF_MEMORY, "RLIMIT_NOFILE", kvmem_region_create_disk, &options);
    CHECK_CAUSE(KVMEM_DOMAIN_ERRNO, EMFILE);
    CHECK_HAS(test_last_message(), "64 open file descriptors");
}

TEST_CALL(a_limit_on_descriptors_is_reported_with_its_value, in_a_forked_child(limited_descriptors))

TEST(a_file_that_exists_names_the_flags) {
    SCRATCH(directory);
    kvmem_disk_options options = disk_options(scratch_file(&directory, "there"), 0, 4096);
    write_file(options.path, "there", 5);
    REFUSE(KVMEM_STATUS_ALREADY_EXISTS, "KVMEM_DISK_OPEN_EXISTING", kvmem_region_create_disk, &options);
    CHECK_HAS(test_last_message(), "KVMEM_DISK_OPEN_OR_CREATE");
    options.flags = KVMEM_DISK_OPEN_EXISTING;
    options.path = scratch_file(&directory, "missing");
    REFUSE(KVMEM_STATUS_NOT_FOUND, "KVMEM_DISK_OPEN_OR_CREATE creates it", kvmem_region_create_disk, &options);
}

/* No advice that the next call would reject. */
TEST(a_missing_file_is_not_to_be_created_where_it_cannot_be) {
    SCRATCH(directory);
    kvmem_disk_options options = disk_options("/nonexistent/file", KVMEM_DISK_OPEN_EXISTING, 4096);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "the directory /nonexistent does not exist", kvmem_region_create_disk, &options);
    CHECK(strstr(test_last_message(), "OPEN_OR_CREATE") == NULL);
    options.path = scratch_file(&directory, "file");
    options.flags = KVMEM_DISK_OPEN_EXISTING | KVMEM_DISK_READ_ONLY;
    REFUSE(KVMEM_STATUS_NOT_FOUND, options.path, kvmem_region_create_disk, &options);
    CHECK(strstr(test_last_message(), "OPEN_OR_CREATE") == NULL);
    write_file(options.path, "", 0);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "the file is empty", kvmem_region_create_disk, &options);
    CHECK(strstr(test_last_message(), "OPEN_OR_CREATE") == NULL);
}

TEST(open_or_create_does_either) {
    SCRATCH(directory);
    kvmem_disk_options options = disk_options(scratch_file(&directory, "cache"), KVMEM_DISK_OPEN_OR_CREATE,
                                              8192);
    options.flags |= KVMEM_DISK_BUFFERED;
    for (int i = 0; i < 2; i++) {
        OWNED(kvmem_region) region = region_create_disk(&options);
        const kvmem_region_info info = region_info(region);
        CHECK_EQ(info.size, 8192);
        unsigned char byte = 0;
        CHECK_EQ(pread(info.fd, &byte, 1, 8191), 1);
        CHECK_EQ(byte, i == 0 ? 0 : 0x5A);
        CHECK_EQ(pwrite(info.fd, "\x5A", 1, 8191), 1);
    }
    options.size = 8193;
    REFUSE(KVMEM_STATUS_OUT_OF_RANGE, "8193", kvmem_region_create_disk, &options);
    options.path = scratch_file(&directory, "empty");
    write_file(options.path, "", 0);
    kvmem_region_destroy(region_create_disk(&options));
    CHECK_EQ(file_length(options.path), 8193);
    options.path = directory.path;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, directory.path, kvmem_region_create_disk, &options);
    options.path = NULL;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "path", kvmem_region_create_disk, &options);
}

TEST(contradicting_flags_fail) {
    kvmem_disk_options options =
        disk_options("/tmp/a", KVMEM_DISK_OPEN_EXISTING | KVMEM_DISK_OPEN_OR_CREATE, 4096);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "exclude", kvmem_region_create_disk, &options);
    options.flags = KVMEM_DISK_READ_ONLY;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "KVMEM_DISK_OPEN_EXISTING", kvmem_region_create_disk, &options);
    options.flags = KVMEM_DISK_READ_ONLY | KVMEM_DISK_OPEN_OR_CREATE;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "KVMEM_DISK_OPEN_EXISTING", kvmem_region_create_disk, &options);
}

TEST(a_link_to_no_file_is_reported_as_one) {
    SCRATCH(directory);
    kvmem_disk_options options = disk_options(scratch_file(&directory, "link"), 0, 4096);
    CHECK_EQ(symlink("nowhere", options.path), 0);
    REFUSE(KVMEM_STATUS_ALREADY_EXISTS, "symbolic link", kvmem_region_create_disk, &options);
    options.flags = KVMEM_DISK_OPEN_OR_CREATE;
    REFUSE(KVMEM_STATUS_ALREADY_EXISTS, "symbolic link", kvmem_region_create_disk, &options);
    CHECK_EQ(count_directory_entries(directory.path), 1);
}

/* Opening a FIFO without a writer would block forever. */
TEST(a_fifo_fails) {
    SCRATCH(directory);
    kvmem_disk_options options =
        disk_options(scratch_file(&directory, "fifo"), KVMEM_DISK_OPEN_EXISTING | KVMEM_DISK_READ_ONLY, 4096);
    CHECK_EQ(mkfifo(options.path, 0600), 0);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "regular file", kvmem_region_create_disk, &options);
}

static void expect_no_path(const kvmem_region *region) {
    REFUSE(KVMEM_STATUS_NOT_FOUND, "", kvmem_region_get_path, region);
}

TEST(an_outdated_path_is_not_returned) {
    SCRATCH(directory);
    char first[160], second[160];
    strcpy(first, scratch_file(&directory, "first"));
    strcpy(second, scratch_file(&directory, "second"));
    const kvmem_disk_options options = disk_options(first, 0, 4096);
    OWNED(kvmem_region) region = region_create_disk(&options);
    CHECK_EQ(rename(first, second), 0);
    expect_no_path(region);
    CHECK_HAS(test_last_message(), first);
    write_file(first, "another", 7);
    expect_no_path(region);
    CHECK_HAS(test_last_message(), "another file");
    CHECK_EQ(rename(second, first), 0);
    OWN(kvmem_blob, path, kvmem_region_get_path, region);
    CHECK_STR((const char *)kvmem_blob_data(path), first);
    CHECK_EQ(unlink(first), 0);
    expect_no_path(region);
}
