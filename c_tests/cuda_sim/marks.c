// SPDX-License-Identifier: Apache-2.0
// Makes marks and counts who holds them.
#include "marks.h"

#include <stdlib.h>
#include <time.h>

mark *mark_make(void) {
    mark *made = sim_allocate(sizeof(*made));
    return mark_hold(made);
}

mark *mark_hold(mark *held) {
    held->holders++;
    return held;
}

void mark_release(mark *released) {
    if (released != NULL && --released->holders == 0) free(released);
}

void mark_reach(mark *reached, CUresult error) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    reached->happened = (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
    reached->error = error;
    reached->is_reached = true;
}

/* Without a mark there is nothing to wait for. */
bool mark_is_reached(const mark *asked) { return asked == NULL || asked->is_reached; }
