// SPDX-License-Identifier: Apache-2.0
// A case that takes something from its process for good: it runs in a child of its own.
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Runs `body` in a child made by fork alone. A failed check or a hang there fails the case here. Under the
   address sanitizer it waits until all other threads wait for work: GCC 12's takes none of its locks for a
   fork, and a child hangs at one that another thread held. */
void in_a_forked_child(void (*body)(void));

/* Makes a child that does nothing until the other end of `socket` is closed: by fork, or by clone alone as
   programs do that go around the C library. Returns once it runs. */
void child_that_lives(int socket, bool by_clone);

/* From here on a system call of this thread, and of threads it starts, answers this errno instead of being
   made. There is no way back, so only in a child. */
void refuse_system_call(long number, int answer);
/* The same where the fourth argument is at least `first`: preadv and pwritev from that offset on. */
void refuse_system_call_from(long number, uint32_t first, int answer);

/* Whether the kernel gives this process an io_uring. */
bool has_io_uring(void);
/* The same; if not, reports that this part of the case is skipped. */
bool can_test_io_uring(void);
