// SPDX-License-Identifier: Apache-2.0
// With a filter of the thread's system calls, the kernel notifies the test of each one before it performs it.
#include "held_call.h"

#include "harness.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <semaphore.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

/* More instructions than any filter here has. */
#define MAX_FILTER 100

static struct {
    void (*body)(void);
    struct sock_filter filter[MAX_FILTER];
    unsigned short filter_size;
    pthread_t thread;
    sem_t is_filtered;
    int listener;
    uint64_t id; /* of the stopped call */
    held_reply (*reply_to)(const struct seccomp_notif *call);
} held;

static void *run_filtered(void *nothing) {
    const struct sock_fprog program = {.len = held.filter_size, .filter = held.filter};
    CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    held.listener =
        (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    CHECK(held.listener >= 0);
    CHECK_EQ(sem_post(&held.is_filtered), 0);
    held.body();
    return nothing;
}

/* Notifies of calls of these numbers, or of all others. */
static void set_filter(const long *numbers, size_t count, bool of_others) {
    const uint32_t listed = of_others ? SECCOMP_RET_ALLOW : SECCOMP_RET_USER_NOTIF;
    const uint32_t others = of_others ? SECCOMP_RET_USER_NOTIF : SECCOMP_RET_ALLOW;
    struct sock_filter *next = held.filter;
    CHECK(2 * count + 2 <= MAX_FILTER);
    *next++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < count; i++) {
        *next++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)numbers[i], 0, 1);
        *next++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, listed);
    }
    *next++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, others);
    held.filter_size = (unsigned short)(next - held.filter);
}

/* Fails the call; 0: lets the kernel perform it. One that was interrupted comes again, as another one. */
static void end_call(uint64_t id, int error) {
    struct seccomp_notif_resp reply = {.id = id, .error = -error};
    if (error == 0) reply.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    if (ioctl(held.listener, SECCOMP_IOCTL_NOTIF_SEND, &reply) != 0) CHECK_EQ(errno, ENOENT);
}

/* Waits for a call of the thread; returns false if the thread has ended. Work of io_uring interrupts a call that waits here: then it is
   gone (ENOENT), and the kernel makes it again, as another one. */
static bool next_call(struct seccomp_notif *call) {
    int received = -1;
    while (received != 0) {
        struct pollfd asked = {.fd = held.listener, .events = POLLIN};
        CHECK_EQ(poll(&asked, 1, -1), 1); /* the process has a deadline */
        if ((asked.revents & POLLIN) == 0) return false;
        memset(call, 0, sizeof(*call));
        received = ioctl(held.listener, SECCOMP_IOCTL_NOTIF_RECV, call);
        if (received != 0) CHECK_EQ(errno, ENOENT);
    }
    return true;
}

static void prepare(void (*body)(void)) {
    held.body = body;
    CHECK_EQ(sem_init(&held.is_filtered, 0, 0), 0);
}

static void await_filter(void) {
    while (sem_wait(&held.is_filtered) != 0) CHECK_EQ(errno, EINTR);
}

static void begin(void (*body)(void), long number) {
    set_filter(&number, 1, false);
    prepare(body);
    CHECK_EQ(pthread_create(&held.thread, NULL, run_filtered, NULL), 0);
    await_filter();
}

void held_call_begin(void (*body)(void), long number, bool (*wanted)(const uint64_t *arguments)) {
    begin(body, number);
    struct seccomp_notif call;
    bool runs = next_call(&call);
    while (runs && !(call.data.nr == number && wanted((const uint64_t *)call.data.args))) {
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
    begin(body, number);
    finish(decide);
}

static void *reply_to_calls(void *nothing) {
    struct seccomp_notif call;
    await_filter();
    while (next_call(&call)) {
        const held_reply decided = held.reply_to(&call);
        if (decided.how == CALL_IS_HELD) continue;
        struct seccomp_notif_resp reply = {.id = call.id};
        if (decided.how == CALL_IS_PERFORMED) reply.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        else if (decided.how == CALL_FAILS) reply.error = -decided.error;
        else reply.val = decided.result;
        if (ioctl(held.listener, SECCOMP_IOCTL_NOTIF_SEND, &reply) != 0) CHECK_EQ(errno, ENOENT);
    }
    return nothing;
}

void held_calls_reply(void (*body)(void), const long *numbers, size_t count, bool of_others,
                       held_reply (*reply_to)(const struct seccomp_notif *call)) {
    pthread_t replying;
    held.reply_to = reply_to;
    set_filter(numbers, count, of_others);
    prepare(body);
    /* Before the body runs: a thread that waits for a reply may hold the allocator's lock. */
    CHECK_EQ(pthread_create(&replying, NULL, reply_to_calls, NULL), 0);
    CHECK_EQ(pthread_detach(replying), 0);
    CHECK_EQ(pthread_create(&held.thread, NULL, run_filtered, NULL), 0);
    CHECK_EQ(pthread_join(held.thread, NULL), 0);
}

void held_calls_go(uint64_t id) {
    struct seccomp_notif_resp reply = {.id = id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
    if (ioctl(held.listener, SECCOMP_IOCTL_NOTIF_SEND, &reply) != 0) CHECK_EQ(errno, ENOENT);
}
