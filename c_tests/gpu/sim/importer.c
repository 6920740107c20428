// SPDX-License-Identifier: Apache-2.0
// Finds control blocks among open files by their names.
#include "importer.h"

#include <fcntl.h>

#define NAME "/memfd:kvmem-control"
/* Each importer locks one byte from this offset on. */
#define FIRST_IMPORTER (1 << 20)
#define MAX_FDS 1024

static void path_of(int fd, char *path, size_t size) { snprintf(path, size, "/proc/self/fd/%d", fd); }

static bool is_block(int fd) {
    char path[64];
    char target[64] = {0};
    path_of(fd, path, sizeof(path));
    return readlink(path, target, sizeof(target) - 1) > 0 && strncmp(target, NAME, strlen(NAME)) == 0;
}

static void set_lock(int fd, short kind) {
    struct flock lock = {.l_type = kind, .l_whence = SEEK_SET, .l_start = FIRST_IMPORTER + 5, .l_len = 1};
    CHECK_EQ(fcntl(fd, F_OFD_SETLK, &lock), 0);
}

static int block_of(const kvmem_share *share) {
    const kvmem_share_info info = share_info(share);
    for (size_t i = 0; i < info.num_fds; i++) {
        if (is_block(info.fds[i])) return info.fds[i];
    }
    FAIL("the share has no control block");
}

int importer_begin(const kvmem_share *share) {
    char path[64];
    path_of(block_of(share), path, sizeof(path));
    const int importer = open(path, O_RDONLY | O_CLOEXEC); /* a separate open file, as in another process */
    CHECK(importer >= 0);
    set_lock(importer, F_RDLCK);
    return importer;
}

void importer_unlock(int importer) { set_lock(importer, F_UNLCK); }

void importer_end(int importer) { close(importer); }

void block_files_disable_locks(block_files *files) {
    files->count = 0;
    CLEANUP(test_close) const int without_locks = open("/", O_PATH | O_CLOEXEC);
    CHECK(without_locks >= 0);
    for (int fd = 0; fd < MAX_FDS; fd++) {
        if (!is_block(fd)) continue;
        CHECK(files->count < IMPORTER_MAX_FILES);
        files->fds[files->count] = fd;
        files->kept[files->count] = fcntl(fd, F_DUPFD_CLOEXEC, MAX_FDS);
        CHECK(files->kept[files->count] >= 0);
        files->count++;
        CHECK_EQ(dup3(without_locks, fd, O_CLOEXEC), fd);
    }
}

void block_files_enable_locks(const block_files *files) {
    for (size_t i = 0; i < files->count; i++) {
        CHECK_EQ(dup3(files->kept[i], files->fds[i], O_CLOEXEC), files->fds[i]);
        close(files->kept[i]);
    }
}
