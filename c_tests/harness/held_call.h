// SPDX-License-Identifier: Apache-2.0
// A thread whose system calls the test stops, until it lets the kernel perform them, or that fail as the test
// decides.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

/* The call that opens a file, and which of its arguments is the path. The flags follow. */
#ifdef SYS_open
enum { OPEN_CALL = SYS_open, OPENED_PATH = 0 };
#else
enum { OPEN_CALL = SYS_openat, OPENED_PATH = 1 };
#endif

/* Runs `body` on a thread, and returns once the thread makes a system call of this number for whose arguments
   `wanted` returns true. Only one at a time in a process. Threads that it starts count as it. Under the
   address sanitizer no child can be forked meanwhile, because in_a_forked_child waits for the thread. */
void held_call_begin(void (*body)(void), long number, bool (*wanted)(const uint64_t *arguments));
/* Performs the call, and waits until the thread has ended. */
void held_call_end(void);

/* Runs `body` on a thread to its end. For each system call of this number that the thread makes, `decide`
   returns the errno that it fails with, or 0: the kernel performs it. */
void held_call_decide(void (*body)(void), long number, int (*decide)(const uint64_t *arguments));

/* How a system call ends: performed by the kernel, with this errno, with this result, or not before held_calls_go. */
typedef struct held_reply {
    enum { CALL_IS_PERFORMED, CALL_FAILS, CALL_RETURNS, CALL_IS_HELD } how;
    int error;
    int64_t result;
} held_reply;

/* Runs `body` on a thread to its end. `reply_to` is called for each system call of these numbers, or with `of_others` of all
   others, that the thread and those that it starts make: on another thread, until the process ends. Only once in a process. */
struct seccomp_notif;
void held_calls_reply(void (*body)(void), const long *numbers, size_t count, bool of_others,
                       held_reply (*reply_to)(const struct seccomp_notif *call));
/* The kernel performs the call that is held, whose notification has this id. */
void held_calls_go(uint64_t id);
