// SPDX-License-Identifier: Apache-2.0
// Looks up the stand-in's functions in the loaded driver, and compares counts of live objects.
#include "control.h"

#include "driver.h"
#include "patience.h"

#include <dlfcn.h>

static control functions;
static bool is_ready;

static void look_up(const char *name, void *function) {
    void *symbol = driver_symbol(name);
    if (symbol == NULL) FAIL("the driver is not the stand-in: it has no %s", name);
    memcpy(function, &symbol, sizeof(symbol));
}

const control *control_get(void) {
    if (!is_ready) {
#define FUNCTION(name) look_up(#name, &functions.name);
        CONTROL_FUNCTIONS(FUNCTION)
#undef FUNCTION
        is_ready = true;
    }
    return &functions;
}

void await_calls(const char *function, uint64_t count) {
    const uint64_t end = patience_end();
    while (SIM(sim_calls(function)) < count) patience_wait(end, function);
}

sim_counts sim_live_now(void) {
    sim_counts counts;
    SIM(sim_live(&counts));
    return counts;
}

/* The names of the fields of sim_counts, which are all 64-bit numbers. */
static const char *const names[] = {
    "primary_retains", "contexts", "allocations",  "host_allocations", "registrations", "reservations",
    "handles",         "mappings", "ipc_openings", "streams",          "events",        "modules",
    "linkers",         "graphs",   "open_fds",     "lost_with_context",
};
_Static_assert(sizeof(sim_counts) == NUM(names) * sizeof(uint64_t), "a name for each count");

static void describe_difference(const sim_counts *before, const sim_counts *after, char *text, size_t size) {
    uint64_t counts[2][NUM(names)];
    memcpy(counts[0], before, sizeof(counts[0]));
    memcpy(counts[1], after, sizeof(counts[1]));
    const char *failed = SIM(sim_last_failed());
    snprintf(text, size, "(%s failing)", failed != NULL ? failed : "nothing");
    for (size_t i = 0; i < NUM(names); i++) {
        const size_t used = strlen(text);
        if (counts[0][i] != counts[1][i])
            snprintf(text + used, size - used, " %s to return to %llu from %llu", names[i],
                     (unsigned long long)counts[0][i], (unsigned long long)counts[1][i]);
    }
}

void expect_still_alive(const sim_counts *before) {
    const sim_counts now = sim_live_now();
    CHECK_EQ(now.allocations, before->allocations);
    CHECK_EQ(now.registrations, before->registrations);
    CHECK_EQ(now.mappings, before->mappings);
    CHECK_EQ(now.streams, before->streams);
}

/* Whether there are more objects of a kind than before, besides those that were lost with their context. */
static bool has_more(const sim_counts *counts, const sim_counts *before) {
    uint64_t values[2][NUM(names)];
    memcpy(values[0], counts, sizeof(values[0]));
    memcpy(values[1], before, sizeof(values[1]));
    for (size_t i = 0; i < NUM(names) - 1; i++)
        if (values[0][i] > values[1][i]) return true;
    return false;
}

static bool differs(const sim_counts *counts, const sim_counts *before) {
    return memcmp(counts, before, sizeof(*counts)) != 0;
}

static void await_while(bool (*is_due)(const sim_counts *, const sim_counts *), const sim_counts *before) {
    const uint64_t end = patience_end();
    for (;;) {
        const sim_counts after = sim_live_now();
        if (!is_due(&after, before)) return;
        char difference[512];
        describe_difference(before, &after, difference, sizeof(difference));
        patience_wait(end, difference);
    }
}

void await_live(const sim_counts *before) { await_while(differs, before); }

/* Threads of the library release the last objects of a case after its handles were destroyed. The next case
   begins after that, so that its counts are its own. */
static sim_counts at_begin;
static bool kept_at_begin;
static bool objects_remain;

/* Whether the stand-in is loaded. It is not loaded here: a case, or a child that it forks, may be the first to
   initialise the driver. */
static bool has_stand_in(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (driver == NULL) return false;
    const bool found = dlsym(driver, "sim_live") != NULL;
    dlclose(driver);
    return found;
}

static void begin_case(void) {
    objects_remain = false;
    at_begin = has_stand_in() ? sim_live_now() : (sim_counts){0};
    kept_at_begin = device_is_kept();
}

static void end_case(void) {
    if (objects_remain || !has_stand_in()) return;
    at_begin.primary_retains += device_is_kept() && !kept_at_begin;
    await_while(has_more, &at_begin);
}

void let_objects_remain(void) { objects_remain = true; }

TEST_REGISTER(begin_and_end, test_set_begin_and_end(begin_case, end_case))
