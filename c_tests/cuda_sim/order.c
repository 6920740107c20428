// SPDX-License-Identifier: Apache-2.0
// Chooses the task that the device runs next.
#include "order.h"

#include "cuda_sim.h"

#include <stdlib.h>

typedef struct choice {
    stream *stream;
    uint64_t candidates;
} choice;

static bool is_set;
static uint64_t seed; /* 0: the task submitted last */
static uint64_t random_state;

bool order_is_unfinished(const stream *queried, uint64_t number) {
    return queried->first != NULL && queried->first->number <= number;
}

static bool is_blocking_unfinished(const context *of, uint64_t number) {
    EACH(stream, known, sim.streams) {
        if (known->context == of && known->is_blocking && order_is_unfinished(known, number)) return true;
    }
    return order_is_unfinished(&of->per_thread, number);
}

bool order_is_unfinished_before_legacy(const context *of, uint64_t number) {
    return order_is_unfinished(&of->legacy, number) || is_blocking_unfinished(of, number);
}

static bool may_begin(const stream *queried) {
    const task *next = queried->first;
    if (next == NULL || (next->work.kind == WORK_WAIT && !record_is_complete(next->work.record)))
        return false;
    if (queried == &queried->context->legacy) return !is_blocking_unfinished(queried->context, next->number);
    return !queried->is_blocking || !order_is_unfinished(&queried->context->legacy, next->number);
}

/* Xorshift; it only has to be reproducible. */
static uint64_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void add_candidate(stream *candidate, choice *chosen) {
    if (!may_begin(candidate)) return;
    chosen->candidates++;
    const bool is_better = chosen->stream == NULL ||
                           (seed == 0 ? candidate->first->number > chosen->stream->first->number
                                      : next_random() % chosen->candidates == 0);
    if (is_better) chosen->stream = candidate;
}

static void set(uint64_t new_seed) {
    is_set = true;
    seed = new_seed;
    random_state = new_seed * UINT64_C(0x9e3779b97f4a7c15);
}

void order_reset(void) {
    const char *value = getenv("KVMEM_SIM_ORDER");
    set(value == NULL ? 0 : strtoull(value, NULL, 10));
}

stream *order_next_stream(void) {
    if (!is_set) order_reset();
    choice chosen = {0};
    EACH(context, known, sim.contexts) {
        add_candidate(&known->legacy, &chosen);
        add_candidate(&known->per_thread, &chosen);
    }
    EACH(stream, known, sim.streams) {
        add_candidate(known, &chosen);
    }
    return chosen.stream;
}

void sim_set_order(uint64_t new_seed) {
    LOCKED;
    set(new_seed);
}
