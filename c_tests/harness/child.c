// SPDX-License-Identifier: Apache-2.0
// Children by fork, and filters of system calls by seccomp.
#include "child.h"

#include "harness.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

void in_a_forked_child(void (*body)(void)) {
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        test_leave_cases();
        alarm(20); /* the parent's alarm is not inherited */
        body();
        _exit(0);
    }
    int state = 0;
    CHECK_EQ(waitpid(pid, &state, 0), pid);
    CHECK(WIFEXITED(state));
    CHECK_EQ(WEXITSTATUS(state), 0);
}

static void install(struct sock_filter *filter, unsigned short length) {
    const struct sock_fprog program = {.len = length, .filter = filter};
    CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    CHECK_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ANSWER(what) BPF_STMT(BPF_RET | BPF_K, what)

void refuse_system_call(long number, int answer) {
    struct sock_filter filter[] = {
        LOAD(nr),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 1),
        ANSWER(SECCOMP_RET_ERRNO | (uint32_t)answer),
        ANSWER(SECCOMP_RET_ALLOW),
    };
    install(filter, NUM(filter));
}

void refuse_system_call_from(long number, uint32_t first, int answer) {
    struct sock_filter filter[] = {
        LOAD(nr),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 3),
        LOAD(args[3]), /* the lower half */
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, first, 0, 1),
        ANSWER(SECCOMP_RET_ERRNO | (uint32_t)answer),
        ANSWER(SECCOMP_RET_ALLOW),
    };
    install(filter, NUM(filter));
}

bool has_io_uring(void) {
    uint64_t parameters[15]; /* struct io_uring_params */
    memset(parameters, 0, sizeof(parameters));
    const long ring = syscall(SYS_io_uring_setup, 1, parameters);
    if (ring >= 0) {
        close((int)ring);
    }
    return ring >= 0;
}
