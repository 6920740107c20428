// SPDX-License-Identifier: Apache-2.0
// Chooses what the device does next.
#include "order.h"

#include "cuda_sim.h"

#include <stdlib.h>

typedef struct choice {
    stream *stream;
    uint64_t candidates;
} choice;

static bool is_set;
static uint64_t seed; /* 0: what was submitted last */
static uint64_t chance;

bool order_is_left(const stream *asked, uint64_t number) {
    return asked->first != NULL && asked->first->number <= number;
}

static bool is_blocking_left(const context *of, uint64_t number) {
    EACH(stream, known, sim.streams) {
        if (known->context == of && known->is_blocking && order_is_left(known, number)) return true;
    }
    return order_is_left(&of->per_thread, number);
}

bool order_is_left_before_legacy(const context *of, uint64_t number) {
    return order_is_left(&of->legacy, number) || is_blocking_left(of, number);
}

static bool may_begin(const stream *asked) {
    const piece *next = asked->first;
    if (next == NULL || (next->work.kind == WORK_WAIT && !mark_is_reached(next->work.mark))) return false;
    if (asked == &asked->context->legacy) return !is_blocking_left(asked->context, next->number);
    return !asked->is_blocking || !order_is_left(&asked->context->legacy, next->number);
}

/* Xorshift: anything will do that is the same each time. */
static uint64_t next_by_chance(void) {
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return chance;
}

static void consider(stream *candidate, choice *chosen) {
    if (!may_begin(candidate)) return;
    chosen->candidates++;
    const bool is_better = chosen->stream == NULL ||
                           (seed == 0 ? candidate->first->number > chosen->stream->first->number
                                      : next_by_chance() % chosen->candidates == 0);
    if (is_better) chosen->stream = candidate;
}

static void set(uint64_t wanted) {
    is_set = true;
    seed = wanted;
    chance = wanted * UINT64_C(0x9e3779b97f4a7c15);
}

void order_reset(void) {
    const char *told = getenv("KVMEM_SIM_ORDER");
    set(told == NULL ? 0 : strtoull(told, NULL, 10));
}

stream *order_choose(void) {
    if (!is_set) order_reset();
    choice chosen = {0};
    EACH(context, known, sim.contexts) {
        consider(&known->legacy, &chosen);
        consider(&known->per_thread, &chosen);
    }
    EACH(stream, known, sim.streams) {
        consider(known, &chosen);
    }
    return chosen.stream;
}

void sim_set_order(uint64_t wanted) {
    LOCKED;
    set(wanted);
}
