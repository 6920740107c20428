// SPDX-License-Identifier: Apache-2.0
// Cases that change their process irreversibly run in a child process.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Waits for the end of a child of this process, and returns its state, as waitpid does. */
int child_end(pid_t child);
/* The same for a child that must exit with success, and for one that a signal must end. */
void child_succeeds(pid_t child);
void child_is_ended_by(pid_t child, int signal);

/* Runs `body` in a child made by a plain fork. A failed check or a hang there fails the case here. Under the
   address sanitizer it first waits until all other threads are idle: GCC 12's sanitizer takes none of its
   locks for a fork, so a child hangs at a lock that another thread held. */
void in_a_forked_child(void (*body)(void));

/* Makes a child that does nothing until the other end of `socket` is closed: by fork, or by a plain clone
   call without the C library's handlers. Returns once it runs. */
void child_start(int socket, bool by_clone);

/* From here on a system call of this thread, and of threads it starts, fails with this errno. It cannot be
   undone, so use it only in a child. */
void fail_system_call(long number, int error);
/* The same of all threads of this process, those that exist included. */
void fail_system_call_of_all_threads(long number, int error);
/* The same if the fourth argument is at least `first`: preadv and pwritev from that offset on. */
void fail_system_call_from(long number, uint32_t first, int error);

/* Whether the kernel allows this process to use io_uring. */
bool has_io_uring(void);
/* The same; if not, reports that this part of the case is skipped. */
bool can_test_io_uring(void);
