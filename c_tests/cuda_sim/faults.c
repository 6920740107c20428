// SPDX-License-Identifier: Apache-2.0
// Planned failures, and counts of calls.
#include "call.h"
#include "contexts.h"
#include "cuda_sim.h"
#include "devices.h"
#include "order.h"
#include "queue.h"

#include <stdio.h>
#include <string.h>

#define MAX_PLANS 32

typedef struct plan {
    bool is_set;
    function which; /* NUM_FUNCTIONS for all */
    uint64_t calls_left;
    bool every_call;
    bool is_without_effect; /* AT_ONCE also for functions that release */
    bool is_later;
    CUresult result;
} plan;

static plan plans[MAX_PLANS];
static uint64_t counts[NUM_FUNCTIONS];
static const char *last_failed;
static _Thread_local bool is_exempt;
static bool checks_are_exempt;

static function held_function = NUM_FUNCTIONS;
static uint64_t held_calls, hold_number;
static bool (*asked)(const char *function);

static failure_time how_it_fails(const plan *plan, function which) {
    if (plan->is_later) return LATER;
    return functions[which].manner == RELEASES && !plan->is_without_effect ? AFTERWARDS : AT_ONCE;
}

/* Counts a call for the plan. Returns whether the plan applies to it. */
static bool plan_applies(plan *plan, function which) {
    if (!plan->is_set || (plan->which != which && plan->which != NUM_FUNCTIONS)) return false;
    if (plan->every_call) return true;
    plan->calls_left--;
    plan->is_set = plan->calls_left > 0;
    return !plan->is_set;
}

bool faults_is_exempt(void) { return is_exempt; }

bool faults_take(function which, failure_time *when, CUresult *result) {
    bool is_planned = false;
    if (is_exempt || (checks_are_exempt && which == CALL_cuCtxGetId && context_current() != NULL))
        return is_planned;
    counts[which]++;
    for (size_t i = 0; i < MAX_PLANS; i++) {
        if (plan_applies(&plans[i], which) && !is_planned) {
            is_planned = true;
            last_failed = functions[which].name;
            *when = how_it_fails(&plans[i], which);
            *result = plans[i].result;
        }
    }
    return is_planned;
}

static function find(const char *name) {
    for (size_t i = 0; i < NUM_FUNCTIONS; i++) {
        if (strcmp(functions[i].name, name) == 0) return (function)i;
    }
    sim_crash("a test names %s, which is not a function of the stand-in", name);
}

static void add(plan added) {
    added.is_set = true;
    added.every_call = added.calls_left == SIM_EVERY_CALL;
    for (size_t i = 0; i < MAX_PLANS; i++) {
        if (!plans[i].is_set) {
            plans[i] = added;
            return;
        }
    }
    sim_crash("a test plans more than %d failures", MAX_PLANS);
}

static void add_locked(plan added) {
    LOCKED;
    add(added);
}

void sim_fail(const char *name, uint64_t nth, CUresult result) {
    add_locked((plan){.which = find(name), .calls_left = nth, .result = result});
}

void faults_plan(const char *text) {
    char name[64];
    int result = 0;
    if (sscanf(text, "%63s %d", name, &result) != 2)
        sim_crash("KVMEM_SIM_FAIL=%s is not a function and a number", text);
    add((plan){.which = find(name), .calls_left = SIM_EVERY_CALL, .result = (CUresult)result});
}

void sim_fail_without_effect(const char *name, uint64_t nth, CUresult result) {
    add_locked((plan){.which = find(name), .calls_left = nth, .result = result, .is_without_effect = true});
}

void sim_fail_later(const char *name, uint64_t nth, CUresult result) {
    const function which = find(name);
    if (functions[which].manner != SUBMITS)
        sim_crash("a test plans a later failure of %s, which submits no work", name);
    add_locked((plan){.which = which, .calls_left = nth, .result = result, .is_later = true});
}

void sim_fail_nth_of_all(uint64_t nth, CUresult result) {
    add_locked((plan){.which = NUM_FUNCTIONS, .calls_left = nth, .result = result});
}

void sim_exempt_thread(bool is) { is_exempt = is; }

void sim_exempt_context_checks(void) {
    LOCKED;
    checks_are_exempt = true;
}

const char *sim_last_failed(void) {
    LOCKED;
    return last_failed;
}

uint64_t sim_calls(const char *name) {
    LOCKED;
    return counts[find(name)];
}

uint64_t sim_call_count(void) {
    LOCKED;
    uint64_t count = 0;
    for (size_t i = 0; i < NUM_FUNCTIONS; i++) count += counts[i];
    return count;
}

void sim_cancel_failures(void) {
    LOCKED;
    memset(plans, 0, sizeof(plans));
}

static void go_calls(void) {
    held_function = NUM_FUNCTIONS;
    hold_number++;
    pthread_cond_broadcast(&sim.work_done);
}

void sim_reset(void) {
    LOCKED;
    memset(plans, 0, sizeof(plans));
    memset(counts, 0, sizeof(counts));
    last_failed = NULL;
    is_exempt = checks_are_exempt = false;
    attributes_reset();
    order_reset();
    go_calls();
    queue_go();
}

void faults_wait_if_held(function which) {
    if (is_exempt) return;
    const bool is_asked = asked != NULL && asked(functions[which].name);
    if (which != held_function && !is_asked) return;
    const uint64_t number = hold_number;
    held_function = NUM_FUNCTIONS;
    held_calls++;
    while (number == hold_number) pthread_cond_wait(&sim.work_done, &sim.lock);
    held_calls--;
}

void sim_hold_call(const char *name) {
    LOCKED;
    held_function = find(name);
}

void sim_ask(bool (*is_held)(const char *function)) {
    LOCKED;
    asked = is_held;
}

uint64_t sim_held_calls(void) {
    LOCKED;
    return held_calls;
}

void sim_go_calls(void) {
    LOCKED;
    go_calls();
}
