// SPDX-License-Identifier: Apache-2.0
// Opens files of other processes through /proc.
#include "foreign_file.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t process_start(pid_t process) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)process);
    FILE *file = fopen(path, "re");
    if (file == NULL) return 0;
    char text[1024];
    const size_t length = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[length] = '\0';
    const char *after_name = strrchr(text, ')');
    char status = 'Z';
    unsigned long long start = 0;
    const char *fields = ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu";
    const bool is_read = after_name != NULL && sscanf(after_name, fields, &status, &start) == 2;
    return is_read && strchr("ZX", status) == NULL ? start : 0;
}

uint64_t inode_of(int fd) {
    struct stat file;
    return fstat(fd, &file) == 0 ? (uint64_t)file.st_ino : 0;
}

foreign_file foreign_file_of(int fd) {
    return (foreign_file){
        .process_start = process_start(getpid()),
        .inode = inode_of(fd), .process = (int32_t)getpid(), .fd = fd,
    };
}

int foreign_file_open(const foreign_file *file) {
    if (file->process_start == 0 || process_start(file->process) != file->process_start) return -1;
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)file->process, (int)file->fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && inode_of(fd) != file->inode) {
        close(fd);
        return -1;
    }
    return fd;
}
