// SPDX-License-Identifier: Apache-2.0
// Calls of a file system: system calls for files below the folder of the process, as if that file system did not respond.
#include "held.h"

#include <linux/seccomp.h>
#include <sys/un.h>

/* What names the file, in the arguments. statx can be asked not to wait for the file system. */
typedef enum subject { PATH, PATH_AT, STATX, FD, LOCK, ADDRESS } subject;

static const struct known_call {
    long number;
    const char *name;
    subject subject;
} known_calls[] = {
#define KNOWN(name, subject) {SYS_##name, #name, subject}
#ifdef SYS_open
    KNOWN(open, PATH), KNOWN(stat, PATH), KNOWN(lstat, PATH), KNOWN(mkdir, PATH), KNOWN(rmdir, PATH), KNOWN(unlink, PATH),
    KNOWN(rename, PATH), KNOWN(chmod, PATH), KNOWN(access, PATH), KNOWN(readlink, PATH),
#endif
    KNOWN(openat, PATH_AT), KNOWN(newfstatat, PATH_AT), KNOWN(statx, STATX), KNOWN(mkdirat, PATH_AT), KNOWN(unlinkat, PATH_AT),
    KNOWN(renameat, PATH_AT), KNOWN(renameat2, PATH_AT), KNOWN(linkat, PATH_AT), KNOWN(readlinkat, PATH_AT), KNOWN(statfs, PATH),
    KNOWN(fstat, FD), KNOWN(fstatfs, FD), KNOWN(fchmod, FD), KNOWN(fchown, FD), KNOWN(getdents64, FD), KNOWN(flock, FD),
    KNOWN(ftruncate, FD), KNOWN(fallocate, FD), KNOWN(fsync, FD), KNOWN(fdatasync, FD), KNOWN(read, FD), KNOWN(write, FD),
    KNOWN(pread64, FD), KNOWN(pwrite64, FD), KNOWN(preadv, FD), KNOWN(pwritev, FD), KNOWN(close, FD), KNOWN(fcntl, LOCK),
    KNOWN(bind, ADDRESS), KNOWN(connect, ADDRESS),
};

static atomic_bool begun, is_holding;
static uint64_t held_id;

static bool begins_with(const char *path, const char *begin) { return strncmp(path, begin, strlen(begin)) == 0; }

static bool is_ours(const char *path) {
    const char *folder = held_folder();
    const bool is_elsewhere = begins_with(path, folder) && begins_with(path + strlen(folder), "/" HELD_ELSEWHERE);
    return (begins_with(path, folder) && !is_elsewhere) || begins_with(path, "/memfd:" HELD_MEMORY);
}

static bool is_file_ours(int fd) {
    char link[64], path[256];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof(path) - 1);
    path[length > 0 ? length : 0] = '\0';
    return is_ours(path);
}

static bool is_path_ours(int folder, const char *path) {
    return path[0] == '/' || folder == AT_FDCWD ? is_ours(path) : is_file_ours(folder);
}

static bool is_address_ours(const struct sockaddr_un *address) { return address->sun_family == AF_UNIX && is_ours(address->sun_path); }

static bool is_call_ours(const struct known_call *known, const uint64_t *arguments) {
    const void *pointer = (const void *)(uintptr_t)arguments[known->subject == PATH ? 0 : 1];
    switch (known->subject) {
        case PATH: return is_ours(pointer);
        case STATX:
            return ((int)arguments[2] & AT_STATX_DONT_SYNC) == 0 && is_path_ours((int)arguments[0], pointer);
        case PATH_AT: return is_path_ours((int)arguments[0], pointer);
        case ADDRESS: return is_address_ours(pointer);
        case LOCK: return (arguments[1] == F_OFD_SETLK || arguments[1] == F_OFD_GETLK) && is_file_ours((int)arguments[0]);
        default: return is_file_ours((int)arguments[0]);
    }
}

static const struct known_call *find(int number) {
    for (size_t i = 0; i < NUM(known_calls); i++)
        if (known_calls[i].number == number) return &known_calls[i];
    FAIL("system call %d is in no list of %s", number, __FILE__);
}

static held_reply reply_to(const struct seccomp_notif *call) {
    const held_reply performed = {.how = CALL_IS_PERFORMED};
    /* The filter does not see what the kernel does for io_uring, so threads read and write. */
    if (call->data.nr == SYS_io_uring_setup) return (held_reply){.how = CALL_FAILS, .error = EPERM};
    if (!begun || is_holding) return performed;
    const struct known_call *known = find(call->data.nr);
    if (!is_call_ours(known, (const uint64_t *)call->data.args)) return performed;
    held_id = call->id;
    is_holding = held_meets(known->name);
    return is_holding ? (held_reply){.how = CALL_IS_HELD} : performed;
}

void below_run(void (*body)(void)) {
    long numbers[NUM(known_calls) + 1] = {SYS_io_uring_setup};
    for (size_t i = 0; i < NUM(known_calls); i++) numbers[i + 1] = known_calls[i].number;
    held_calls_reply(body, ARRAY(numbers), false, reply_to);
}

void below_begin(void) { begun = true; }

void below_go(void) { held_calls_go(held_id); }
