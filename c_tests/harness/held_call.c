// SPDX-License-Identifier: Apache-2.0
// With a filter of the thread's system calls, the kernel notifies the test of each one before it performs it.
#include "held_call.h"

#include "harness.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <semaphore.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

static struct {
    void (*body)(void);
    uint32_t number;
    pthread_t thread;
    sem_t is_filtered;
    int listener;
    uint64_t id; /* of the stopped call */
} held;

static void *run_filtered(void *nothing) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, held.number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = NUM(filter), .filter = filter};
    CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    held.listener =
        (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    CHECK(held.listener >= 0);
    CHECK_EQ(sem_post(&held.is_filtered), 0);
    held.body();
    return nothing;
}

/* Fails the call; 0: lets the kernel perform it. */
static void end_call(uint64_t id, int error) {
    struct seccomp_notif_resp reply = {.id = id, .error = -error};
    if (error == 0) reply.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    CHECK_EQ(ioctl(held.listener, SECCOMP_IOCTL_NOTIF_SEND, &reply), 0);
}

/* Waits for a call of the thread; returns false if the thread has ended. */
static bool next_call(struct seccomp_notif *call) {
    struct pollfd asked = {.fd = held.listener, .events = POLLIN};
    CHECK_EQ(poll(&asked, 1, -1), 1); /* the process has a deadline */
    if ((asked.revents & POLLIN) == 0) return false;
    memset(call, 0, sizeof(*call));
    CHECK_EQ(ioctl(held.listener, SECCOMP_IOCTL_NOTIF_RECV, call), 0);
    return true;
}

static void start(void (*body)(void), long number) {
    held.body = body;
    held.number = (uint32_t)number;
    CHECK_EQ(sem_init(&held.is_filtered, 0, 0), 0);
    CHECK_EQ(pthread_create(&held.thread, NULL, run_filtered, NULL), 0);
    while (sem_wait(&held.is_filtered) != 0) CHECK_EQ(errno, EINTR);
}

void held_call_begin(void (*body)(void), long number, bool (*wanted)(const uint64_t *arguments)) {
    start(body, number);
    struct seccomp_notif call;
    bool runs = next_call(&call);
    while (runs && !wanted((const uint64_t *)call.data.args)) {
        end_call(call.id, 0);
        runs = next_call(&call);
    }
    CHECK(runs); /* or it ended without such a call */
    held.id = call.id;
}

static int perform(const uint64_t *arguments) {
    (void)arguments;
    return 0;
}

static void finish(int (*decide)(const uint64_t *arguments)) {
    struct seccomp_notif call;
    while (next_call(&call)) end_call(call.id, decide((const uint64_t *)call.data.args));
    CHECK_EQ(pthread_join(held.thread, NULL), 0);
    close(held.listener);
}

void held_call_end(void) {
    end_call(held.id, 0);
    finish(perform);
}

void held_call_decide(void (*body)(void), long number, int (*decide)(const uint64_t *arguments)) {
    start(body, number);
    finish(decide);
}
