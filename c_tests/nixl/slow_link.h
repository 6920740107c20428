// SPDX-License-Identifier: Apache-2.0
// A port on the loopback interface that forwards to another port after a delay, and can be cut.
#pragma once

#include "harness.h"

typedef struct slow_link {
    int port;
    int listener;
    int target_port;
    atomic_uint delay_ms; /* of each part of a stream, per direction */
    int cut; /* an event fd: ready while the link is cut */
    pthread_t thread;
} slow_link;

void slow_link_open(slow_link *link, int target_port, unsigned delay_ms);
/* Ends all connections, and new ones, until the link is mended. */
void slow_link_cut(slow_link *link);
void slow_link_mend(slow_link *link);
/* Call it when no connection is open any more: it waits until both sides of each connection are closed. */
void slow_link_close(slow_link *link);
