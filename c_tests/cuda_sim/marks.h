// SPDX-License-Identifier: Apache-2.0
// Marks between the works of a stream: what an event stands for from one record to the next.
#pragma once

#include "state.h"

/* It lives as long as somebody holds it: the work that reaches it, those that wait for it, the event. */
typedef struct mark {
    uint64_t holders;
    bool is_reached;
    CUresult error;  /* what had failed on its stream by then */
    double happened; /* milliseconds of some clock */
} mark;

/* Held once. */
mark *mark_make(void);
mark *mark_hold(mark *held);
/* NULL is none. */
void mark_release(mark *released);
/* The work before it is done. */
void mark_reach(mark *reached, CUresult error);
bool mark_is_reached(const mark *asked);
