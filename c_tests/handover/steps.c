// SPDX-License-Identifier: Apache-2.0
// After each message, and within each message.
#include "steps.h"

#include <sys/ioctl.h>

const step steps[NUM_STEPS] = {
    {0, 0, false}, {0, 1, false}, {0, WIRE_HEADER, false}, {0, SIZE_MAX, false},
    {1, 0, false}, {1, 1, false}, {1, WIRE_HEADER, false}, {1, SIZE_MAX, false},
    {2, 0, false}, {2, 1, false}, {2, SIZE_MAX, false},    {ALL, 0, false},
};

void step_send(int socket, const wire *messages, const step *step) {
    for (size_t i = 0; i < step->messages; i++)
        wire_send(socket, &messages[i], messages[i].size, messages[i].num_fds);
    if (step->bytes > 0) {
        const wire *next = &messages[step->messages];
        const size_t size = step->bytes < next->size ? step->bytes : next->size - 1;
        wire_send(socket, next, size, next->num_fds);
    }
}

void step_await_read(int socket) {
    int unread = 1;
    while (unread > 0) {
        CHECK_EQ(ioctl(socket, TIOCOUTQ, &unread), 0);
        sched_yield();
    }
}

const char *step_error(const step *step) {
    if (step->messages > 0) return " file descriptors";
    return step->bytes > 0 ? "within the first message" : "before the first message";
}

void step_die(void) {
    for (;;) kill(getpid(), SIGKILL);
}
