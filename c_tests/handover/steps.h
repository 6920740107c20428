// SPDX-License-Identifier: Apache-2.0
// How far one side of a hand-over gets before it is killed.
#pragma once

#include "extents.h"
#include "harness.h"
#include "wire.h"

#define ALL EXTENTS_MESSAGES

/* So many messages whole, and so many bytes of the next with all its file descriptors. */
typedef struct step {
    size_t messages;
    size_t bytes; /* SIZE_MAX: all but the last */
    bool opens;   /* and has opened what it got */
} step;

/* Every step of a stream; where messages are kept apart there are only those without bytes. */
#define NUM_STEPS 12
extern const step steps[NUM_STEPS];

/* Sends as much of the messages. */
void step_send(int socket, const wire *messages, const step *step);
/* Waits until all that was sent on the socket is read. */
void step_await_read(int socket);
/* What a receiver is told of a sender that got so far. */
const char *step_told(const step *step);
/* In a peer: kills it. */
_Noreturn void step_die(void);
