// SPDX-License-Identifier: Apache-2.0
// How many messages one side sends or reads before it is killed.
#pragma once

#include "extents.h"
#include "harness.h"
#include "wire.h"

#define ALL EXTENTS_MESSAGES

/* A number of whole messages, and a number of bytes of the next one with all its file descriptors. */
typedef struct step {
    size_t messages;
    size_t bytes; /* SIZE_MAX: all but the last */
    bool opens;   /* and has opened the share */
} step;

/* All steps of a stream. Packet sockets have only those without bytes. */
#define NUM_STEPS 12
extern const step steps[NUM_STEPS];

/* Sends the messages up to a step. */
void step_send(int socket, const wire *messages, const step *step);
/* Waits until everything sent on the socket was read. */
void step_await_read(int socket);
/* A part of the receiver's error message after a sender was killed at this step. */
const char *step_error(const step *step);
/* In a peer: kills its own process. */
_Noreturn void step_die(void);
