// SPDX-License-Identifier: Apache-2.0
// Children by fork, and filters of system calls by seccomp.
#include "child.h"

#include "harness.h"

#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#ifdef __SANITIZE_ADDRESS__
/* System calls in which threads wait for work. A wait that the kernel has interrupted continues as
   restart_syscall. */
static const long idle_calls[] = {SYS_futex, SYS_restart_syscall, SYS_io_uring_enter, SYS_poll, SYS_ppoll};

/* Whether the thread waits for work, or has ended. */
static bool is_idle(const char *thread) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%.10s/syscall", thread);
    FILE *file = fopen(path, "r");
    if (file == NULL) return true;
    long call = -1; /* for example in a page fault; a running thread has no number there */
    bool at_rest = fscanf(file, "%ld", &call) == EOF;
    fclose(file);
    for (size_t i = 0; i < NUM(idle_calls); i++) at_rest = at_rest || call == idle_calls[i];
    return at_rest;
}

static bool are_others_idle(void) {
    DIR *threads = opendir("/proc/self/task");
    CHECK(threads != NULL);
    bool at_rest = true;
    for (struct dirent *thread = readdir(threads); thread != NULL; thread = readdir(threads)) {
        const bool is_other = thread->d_name[0] != '.' && atoi(thread->d_name) != gettid();
        at_rest = at_rest && (!is_other || is_idle(thread->d_name));
    }
    closedir(threads);
    return at_rest;
}
#endif

void in_a_forked_child(void (*body)(void)) {
#ifdef __SANITIZE_THREAD__
    /* It keeps the ids of threads that only the parent has, and ends a child in which a thread gets one of them. */
    SKIP_PART("a forked child: ThreadSanitizer ends one that starts threads");
    return;
#endif
#ifdef __SANITIZE_ADDRESS__
    while (!are_others_idle()) {
        sched_yield(); /* the process has a deadline */
    }
#endif
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        test_leave_cases();
        alarm(PATIENCE_SECONDS); /* the parent's alarm is not inherited */
        body();
        _exit(0);
    }
    child_succeeds(pid);
}

int child_end(pid_t child) {
    int state = 0;
    CHECK_EQ(waitpid(child, &state, 0), child);
    return state;
}

void child_succeeds(pid_t child) {
    const int state = child_end(child);
    CHECK(WIFEXITED(state));
    CHECK_EQ(WEXITSTATUS(state), EXIT_SUCCESS);
}

void child_is_ended_by(pid_t child, int signal) {
    const int state = child_end(child);
    CHECK(WIFSIGNALED(state));
    CHECK_EQ(WTERMSIG(state), signal);
}

void child_start(int socket, bool by_clone) {
    int ready[2];
    CHECK_EQ(pipe2(ready, O_CLOEXEC), 0);
    const long child = by_clone ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
    CHECK(child >= 0);
    if (child == 0) {
        char byte = 1;
        struct pollfd end = {.fd = socket}; /* data on the socket is for the parent */
        if (write(ready[1], &byte, 1) != 1) _exit(1);
        while (poll(&end, 1, -1) < 0) {
        }
        _exit(0);
    }
    char byte = 0;
    close(ready[1]);
    CHECK_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
}

static void install_with(struct sock_filter *filter, unsigned short length, unsigned flags) {
    const struct sock_fprog program = {.len = length, .filter = filter};
    CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    CHECK_EQ(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program), 0);
}

static void install(struct sock_filter *filter, unsigned short length) { install_with(filter, length, 0); }

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, what)

static void fail_call(long number, int error, unsigned flags) {
    struct sock_filter filter[] = {
        LOAD(nr),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 1),
        RETURN(SECCOMP_RET_ERRNO | (uint32_t)error),
        RETURN(SECCOMP_RET_ALLOW),
    };
    install_with(filter, NUM(filter), flags);
}

void fail_system_call(long number, int error) { fail_call(number, error, 0); }

void fail_system_call_of_all_threads(long number, int error) { fail_call(number, error, SECCOMP_FILTER_FLAG_TSYNC); }

void fail_system_call_from(long number, uint32_t first, int error) {
    struct sock_filter filter[] = {
        LOAD(nr),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 3),
        LOAD(args[3]), /* the lower half */
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, first, 0, 1),
        RETURN(SECCOMP_RET_ERRNO | (uint32_t)error),
        RETURN(SECCOMP_RET_ALLOW),
    };
    install(filter, NUM(filter));
}

bool has_io_uring(void) {
    uint64_t parameters[15]; /* struct io_uring_params */
    memset(parameters, 0, sizeof(parameters));
    const long ring = syscall(SYS_io_uring_setup, 1, parameters);
    if (ring >= 0) close((int)ring);
    return ring >= 0;
}

bool can_test_io_uring(void) {
    const bool has = has_io_uring();
    if (!has) SKIP_PART("io_uring: this kernel has none, or does not permit it to this process");
    return has;
}
