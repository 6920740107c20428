// SPDX-License-Identifier: Apache-2.0
// The lists of system calls.
#include "system_calls.h"

#include "harness.h"

#include <sys/uio.h>

#define FAILS(name, ...) {SYS_##name, #name, {__VA_ARGS__}}

/* EINTR only where Linux lets a signal, or a file system that a process serves, interrupt the call. */
static const system_call calls[] = {
#ifdef SYS_open
    FAILS(open, EINTR, EMFILE, ENOMEM, EIO, ENOSPC),
    FAILS(stat, EIO, ENOMEM),
    FAILS(lstat, EIO, ENOMEM),
    FAILS(mkdir, EIO, ENOSPC, ENOMEM),
    FAILS(rmdir, EIO),
    FAILS(unlink, EIO),
    FAILS(readlink, EIO, ENOMEM),
    FAILS(rename, EIO, ENOSPC),
    FAILS(chmod, EIO),
    FAILS(access, EIO),
    FAILS(poll, EINTR, ENOMEM),
    FAILS(symlink, EIO, ENOSPC),
    FAILS(epoll_wait, EINTR),
#endif
    FAILS(openat, EINTR, EMFILE, ENOMEM, EIO, ENOSPC),
    FAILS(newfstatat, EINTR, EIO, ENOMEM),
    FAILS(fstat, EINTR, EIO, ENOMEM),
    FAILS(statx, EINTR, EIO, ENOMEM),
    FAILS(statfs, EINTR, EIO, ENOMEM),
    FAILS(fstatfs, EINTR, EIO, ENOMEM),
    FAILS(readlinkat, EINTR, EIO, ENOMEM),
    FAILS(mkdirat, EINTR, EIO, ENOSPC, ENOMEM),
    FAILS(unlinkat, EINTR, EIO),
    FAILS(renameat, EINTR, EIO, ENOSPC),
    FAILS(renameat2, EINTR, EIO, ENOSPC),
    FAILS(symlinkat, EIO, ENOSPC),
    FAILS(linkat, EINTR, EIO, ENOSPC),
    FAILS(faccessat, EIO),
    FAILS(fchmodat, EINTR, EIO),
    FAILS(fchmod, EINTR, EIO),
    FAILS(fchown, EINTR, EIO),
    FAILS(getdents64, EIO, ENOMEM),
    FAILS(lseek, EIO),
    FAILS(flock, EINTR, ENOLCK),
    FAILS(fcntl, EINTR, ENOLCK, EMFILE),
    FAILS(ftruncate, EINTR, ENOSPC, EIO),
    FAILS(fallocate, EINTR, ENOSPC, EIO),
    FAILS(fsync, EINTR, EIO, ENOSPC),
    FAILS(fdatasync, EINTR, EIO, ENOSPC),
    FAILS(read, EINTR, EIO, SHORT_TRANSFER),
    FAILS(pread64, EINTR, EIO, ENOMEM, SHORT_TRANSFER),
    FAILS(preadv, EIO, ENOMEM, SHORT_TRANSFER),
    FAILS(write, EINTR, EIO, ENOSPC, SHORT_TRANSFER),
    FAILS(pwrite64, EINTR, EIO, ENOSPC, SHORT_TRANSFER),
    FAILS(pwritev, EIO, ENOSPC, SHORT_TRANSFER),
    FAILS(mmap, ENOMEM, EAGAIN),
    FAILS(mremap, ENOMEM, EAGAIN),
    FAILS(madvise, EINTR, EAGAIN, ENOMEM, EIO),
    FAILS(mbind, ENOMEM, EIO),
    FAILS(mlock, ENOMEM, EAGAIN),
    FAILS(memfd_create, EMFILE, ENOMEM),
    FAILS(eventfd2, EMFILE, ENOMEM),
    FAILS(pipe2, EMFILE),
    FAILS(dup, EMFILE),
    FAILS(clone, EAGAIN, ENOMEM),
    FAILS(clone3, EAGAIN, ENOMEM),
    FAILS(socket, EMFILE, ENOMEM),
    FAILS(socketpair, EMFILE, ENOMEM),
    FAILS(bind, EINTR, ENOMEM, ENOSPC),
    FAILS(listen, EINTR, ENOMEM),
    FAILS(accept4, EINTR, EMFILE, ENOMEM),
    FAILS(connect, EINTR, EAGAIN, ENOMEM),
    FAILS(sendmsg, EINTR, EAGAIN, ENOMEM, SHORT_TRANSFER),
    FAILS(recvmsg, EINTR, EAGAIN, ENOMEM),
    FAILS(sendto, EINTR, EAGAIN, ENOMEM),
    FAILS(getsockopt, ENOMEM),
    FAILS(setsockopt, ENOMEM),
    FAILS(getsockname, ENOMEM),
    FAILS(getpeername, ENOMEM),
    FAILS(pidfd_open, EMFILE, ENOMEM),
    FAILS(io_uring_setup, EMFILE, ENOMEM, EPERM),
    FAILS(io_uring_enter, EINTR, EAGAIN, ENOMEM),
    FAILS(io_uring_register, EINTR, ENOMEM),
    FAILS(inotify_init1, EMFILE, ENOMEM),
    FAILS(inotify_add_watch, ENOSPC, ENOMEM),
    FAILS(timerfd_create, EMFILE, ENOMEM),
    FAILS(epoll_create1, EMFILE, ENOMEM),
    FAILS(ppoll, EINTR, ENOMEM),
    FAILS(getrandom, EINTR),
    FAILS(sched_getaffinity, ENOMEM),
    FAILS(move_pages, ENOMEM),
    FAILS(get_mempolicy, ENOMEM),
    FAILS(mincore, EAGAIN, ENOMEM),
};

/* Of an eventfd, a pipe or a duplicate, which no file system serves. */
static const system_call of_no_file[] = {
    FAILS(read, EINTR),
    FAILS(write, EINTR),
    FAILS(fcntl, EMFILE),
};

const long system_calls_ignored[] = {
    SYS_futex, SYS_exit, SYS_exit_group, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigpending,
    SYS_rt_sigtimedwait, SYS_sigaltstack, SYS_munmap, SYS_close, SYS_gettid, SYS_getpid, SYS_getuid, SYS_geteuid, SYS_getgid,
    SYS_getegid, SYS_set_robust_list, SYS_sched_yield, SYS_brk, SYS_clock_gettime, SYS_clock_nanosleep, SYS_nanosleep,
    SYS_restart_syscall, SYS_mprotect, SYS_prctl, SYS_tgkill, SYS_kill, SYS_uname, SYS_sysinfo, SYS_prlimit64, SYS_shutdown, SYS_getcwd,
    SYS_umask, SYS_rseq, SYS_getcpu, SYS_ioctl, SYS_seccomp, SYS_fadvise64, SYS_membarrier, SYS_getresuid, SYS_getresgid,
    SYS_inotify_rm_watch,
#ifdef SYS_arch_prctl
    SYS_arch_prctl,
#endif
#ifdef SYS_alarm
    SYS_alarm,
#endif
};
const size_t system_calls_num_ignored = NUM(system_calls_ignored);

/* The C library's allocator, and std's stacks for signals: without memory for them, Rust ends the process. std reads the
   keys of its hash tables, and ends the process without them. */
static bool ends_the_process(const struct seccomp_data *call, bool is_library) {
    if (is_library) return false;
    if (call->nr == SYS_mmap) return (call->args[3] & (MAP_ANONYMOUS | MAP_STACK)) == MAP_ANONYMOUS;
    return call->nr == SYS_getrandom || call->nr == SYS_mremap || call->nr == SYS_madvise;
}

static bool can_fail(const struct seccomp_data *call) {
    if (call->nr == SYS_fcntl)
        return call->args[1] == F_OFD_SETLK || call->args[1] == F_OFD_GETLK || call->args[1] == F_DUPFD_CLOEXEC;
    if (call->nr == SYS_write) return call->args[0] > STDERR_FILENO;
    return true;
}

static bool is_of_no_file(const struct seccomp_data *call) {
    struct stat state;
    if (call->nr == SYS_fcntl) return call->args[1] == F_DUPFD_CLOEXEC;
    if (call->nr != SYS_read && call->nr != SYS_write) return false;
    return fstat((int)call->args[0], &state) != 0 || !S_ISREG(state.st_mode);
}

static const system_call *find(const system_call *list, size_t count, int number) {
    for (size_t i = 0; i < count; i++)
        if (list[i].number == number) return &list[i];
    FAIL("system call %d is in no list of %s: add it with the errors that it can have", number, __FILE__);
}

const system_call *system_call_find(const struct seccomp_data *call, const library_code *library) {
    const bool is_library = library_code_contains(library, call->instruction_pointer);
    if (ends_the_process(call, is_library) || !can_fail(call)) return NULL;
    return is_of_no_file(call) ? find(ARRAY(of_no_file), call->nr) : find(ARRAY(calls), call->nr);
}

size_t system_call_num_ways(const system_call *call) {
    size_t count = 0;
    while (count < NUM(call->ways) && call->ways[count] != 0) count++;
    return count;
}

bool system_call_can_last(int way) {
    return way == EMFILE || way == ENOMEM || way == ENOSPC || way == EIO || way == EPERM || way == ENOLCK;
}

static int64_t result_of(int64_t result) { return result < 0 ? -errno : result; }

static int64_t shortened_vectors(const struct seccomp_data *call) {
    struct iovec first = *(const struct iovec *)(uintptr_t)call->args[1];
    first.iov_len = (first.iov_len + 1) / 2;
    const int file = (int)call->args[0];
    const off_t offset = (off_t)call->args[3];
    return result_of(call->nr == SYS_preadv ? preadv(file, &first, 1, offset) : pwritev(file, &first, 1, offset));
}

static int64_t shortened_message(const struct seccomp_data *call) {
    struct msghdr message = *(const struct msghdr *)(uintptr_t)call->args[1];
    if (message.msg_iovlen == 0 || message.msg_iov[0].iov_len < 2) return 0;
    struct iovec first = {message.msg_iov[0].iov_base, message.msg_iov[0].iov_len / 2};
    message.msg_iov = &first;
    message.msg_iovlen = 1;
    int type = 0;
    socklen_t size = sizeof(type);
    if (getsockopt((int)call->args[0], SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) return 0;
    return result_of(sendmsg((int)call->args[0], &message, (int)call->args[2] | MSG_DONTWAIT));
}

int64_t system_call_shortened(const struct seccomp_data *call) {
    void *bytes = (void *)(uintptr_t)call->args[1];
    const int file = (int)call->args[0];
    const size_t half = (size_t)(call->args[2] + 1) / 2;
    switch (call->nr) {
        case SYS_preadv:
        case SYS_pwritev: return shortened_vectors(call);
        case SYS_sendmsg: return shortened_message(call);
        case SYS_pread64: return result_of(pread(file, bytes, half, (off_t)call->args[3]));
        case SYS_pwrite64: return result_of(pwrite(file, bytes, half, (off_t)call->args[3]));
        default: break;
    }
    /* The kernel gives and takes the counter of an eventfd only as a whole. */
    if (call->args[2] <= sizeof(uint64_t)) return 0;
    return result_of(call->nr == SYS_read ? read(file, bytes, half) : write(file, bytes, half));
}
