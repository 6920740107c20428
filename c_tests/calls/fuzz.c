// SPDX-License-Identifier: Apache-2.0
// Random choices, the check of each call, and the choice of the next one.
#include "fuzz.h"

#include "faults.h"
#include "settings.h"
#include "table.h"

#include <stdarg.h>

static const struct {
    const char *name;
    uint32_t statuses; /* 0: the function returns no status */
} functions[NUM_FUNCTIONS] = {
#define FUNCTION(name, statuses) {#name, statuses},
    FUZZ_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

static _Atomic uint64_t called[NUM_FUNCTIONS];
static _Atomic uint64_t succeeded[NUM_FUNCTIONS];

static const operation *const groups[] = {
    general_operations, region_operations, layout_operations, transfer_operations,
    share_operations,   agent_operations,  raw_operations,    directory_operations,
    store_operations,   cuda_operations,  simple_operations,
};

void fuzz_fail(const fuzz *fuzz, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    flockfile(stdout);
    printf("FAILED: call %llu of thread %u, %s, %s: ", (unsigned long long)fuzz->index, fuzz->thread,
           fuzz->operation != NULL ? fuzz->operation : "no operation", functions[fuzz->function].name);
    vprintf(format, arguments);
    printf("\n");
    settings_print_replay(fuzz->sequence);
    fflush(stdout);
    va_end(arguments);
    _exit(EXIT_FAILURE);
}

/* ---- random values ---- */

/* SplitMix64. */
static uint64_t mix(uint64_t *state) {
    uint64_t mixed = *state += UINT64_C(0x9E3779B97F4A7C15);
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
    return mixed ^ (mixed >> 31);
}

uint64_t random_next(fuzz *fuzz) { return mix(&fuzz->random); }

uint64_t random_below(fuzz *fuzz, uint64_t end) { return end == 0 ? 0 : random_next(fuzz) % end; }

bool random_one_in(fuzz *fuzz, uint64_t count) { return random_below(fuzz, count) == 0; }

uint64_t random_flags(fuzz *fuzz, uint64_t known) {
    if (random_one_in(fuzz, 3)) return 0;
    if (random_one_in(fuzz, 60)) return random_next(fuzz);
    return random_next(fuzz) & random_next(fuzz) & known;
}

uint64_t random_size(fuzz *fuzz, uint64_t most) {
    static const uint64_t others[] = {0, 1, UINT64_C(1) << 56, UINT64_MAX, UINT64_MAX - 4095};
    if (random_one_in(fuzz, 40)) return random_of(fuzz, others);
    const uint64_t size = 1 + random_below(fuzz, most);
    return random_one_in(fuzz, 3) || size < 4096 ? size : size / 4096 * 4096;
}

uint64_t random_index(fuzz *fuzz, uint64_t end) {
    static const uint64_t beyond[] = {0, 1, UINT32_MAX, UINT64_MAX};
    return random_one_in(fuzz, 40) ? end + random_of(fuzz, beyond) : random_below(fuzz, end);
}

int32_t random_device(fuzz *fuzz) {
    static const int32_t others[] = {-1, 2, 1000000, INT32_MIN};
    return random_one_in(fuzz, 50) ? random_of(fuzz, others) : (int32_t)random_below(fuzz, 2);
}

uint64_t random_timeout(fuzz *fuzz) {
    static const uint64_t timeouts[] = {0, 1, 1000, 1000000, 5000000};
    return random_of(fuzz, timeouts);
}

size_t random_struct_size(fuzz *fuzz, size_t size) {
    static const size_t others[] = {0, 4, 8, 16, 24, SIZE_MAX};
    return random_one_in(fuzz, 60) ? random_of(fuzz, others) : size;
}

/* ---- calls ---- */

void call_note(fuzz *fuzz, enum function function) {
    fuzz->function = function;
    atomic_fetch_add_explicit(&called[function], 1, memory_order_relaxed);
    if (functions[function].statuses == 0)
        atomic_fetch_add_explicit(&succeeded[function], 1, memory_order_relaxed);
    if (settings.prints_calls)
        printf("%llu.%u %s: %s\n", (unsigned long long)fuzz->index, fuzz->thread, fuzz->operation,
               functions[function].name);
}

kvmem_error **call_begin(fuzz *fuzz, enum function function) {
    call_note(fuzz, function);
    fuzz->error = NULL;
    fuzz->has_slot = !random_one_in(fuzz, 6);
    faults_begin(fuzz);
    return fuzz->has_slot ? &fuzz->error : NULL;
}

static bool is_documented(enum function function, kvmem_status status) {
    if (status > KVMEM_STATUS_IN_PROGRESS || status < KVMEM_STATUS_PANIC) return false;
    /* The introduction of the header says this once for all functions. */
    if (settings.faults && (status == KVMEM_STATUS_OUT_OF_MEMORY || status == KVMEM_STATUS_CUDA)) return true;
    const unsigned bit = status > 0 ? 31 : (unsigned)-status;
    return ((functions[function].statuses >> bit) & 1) != 0;
}

/* A failure has an error with the same status; a success has none. */
static void check_error(fuzz *fuzz, kvmem_status status) {
    if (!fuzz->has_slot || (status >= 0 && fuzz->error == NULL)) return;
    if (status >= 0 || fuzz->error == NULL)
        fuzz_fail(fuzz, "status %d, and %s error", (int)status, fuzz->error != NULL ? "an" : "no");
    size_t length = 0;
    const char *message = kvmem_error_message(fuzz->error, &length);
    if (kvmem_error_status(fuzz->error) != status || length == 0 || strlen(message) != length)
        fuzz_fail(fuzz, "status %d, and an error with status %d: '%s'", (int)status,
                  (int)kvmem_error_status(fuzz->error), message);
}

/* Ends the process; with --collect-statuses, prints each function and status once. */
static void report_undocumented(fuzz *fuzz, enum function function, kvmem_status status) {
    static _Atomic uint32_t reported[NUM_FUNCTIONS];
    const char *message =
        fuzz->error != NULL ? kvmem_error_message(fuzz->error, NULL) : "(no error requested)";
    if (!settings.collects_statuses || status == KVMEM_STATUS_PANIC || status > KVMEM_STATUS_IN_PROGRESS)
        fuzz_fail(fuzz, "%s is not documented: %s", kvmem_status_name(status), message);
    const uint32_t bit = UINT32_C(1) << (unsigned)(status < 0 ? -status : 0);
    if (fuzz->error != NULL && (atomic_fetch_or(&reported[function], bit) & bit) == 0)
        printf("UNDOCUMENTED: %s: %s: %s (seed %llu)\n", functions[function].name, kvmem_status_name(status),
               message, (unsigned long long)fuzz->sequence);
}

kvmem_status call_end(fuzz *fuzz, kvmem_status status) {
    const enum function function = fuzz->function;
    faults_end();
    if (!is_documented(function, status)) report_undocumented(fuzz, function, status);
    check_error(fuzz, status);
    if (settings.prints_calls)
        printf("    %s %s\n", kvmem_status_name(status),
               fuzz->error != NULL ? kvmem_error_message(fuzz->error, NULL) : "");
    if (status >= 0) {
        atomic_fetch_add_explicit(&succeeded[function], 1, memory_order_relaxed);
    } else if (fuzz->error != NULL) {
        table_add(fuzz, ERRORS, fuzz->error); /* the table takes ownership */
    }
    fuzz->error = NULL;
    fuzz->has_slot = false;
    return status;
}

void check_created(fuzz *fuzz, kind kind, kvmem_status status, void *handle, bool was_asked) {
    if (!was_asked) {
        if (status >= 0) {
            fuzz_fail(fuzz, "status %d without an output for the handle", (int)status);
        }
        return;
    }
    if (handle == POISON || (status >= 0) != (handle != NULL))
        fuzz_fail(fuzz, "status %d, and the handle is %p", (int)status, handle);
    if (handle != NULL) table_add(fuzz, kind, handle);
}

/* ---- the choice of calls ---- */

/* Each sequence prefers one group of operations, so that calls that depend on each other follow each
   other. */
static unsigned weight_in(uint64_t sequence, size_t group, const operation *operation) {
    uint64_t state = sequence;
    return operation->weight * (mix(&state) % COUNT_OF(groups) == group ? 10 : 1);
}

static unsigned total_weight(uint64_t sequence) {
    unsigned total = 0;
    for (size_t i = 0; i < COUNT_OF(groups); i++) {
        for (const operation *operation = groups[i]; operation->name != NULL; operation++)
            total += weight_in(sequence, i, operation);
    }
    return total;
}

static const operation *operation_at(uint64_t sequence, uint64_t place) {
    for (size_t i = 0; i < COUNT_OF(groups); i++) {
        for (const operation *operation = groups[i]; operation->name != NULL; operation++) {
            const unsigned weight = weight_in(sequence, i, operation);
            if (place < weight) return operation;
            place -= weight;
        }
    }
    return NULL;
}

static void run(fuzz *fuzz, const operation *operation, unsigned depth);

/* Runs one of the operations that create a handle of this kind. */
static void make(fuzz *fuzz, kind kind, unsigned depth) {
    const operation *makers[16];
    size_t count = 0;
    for (size_t i = 0; i < COUNT_OF(groups); i++) {
        for (const operation *operation = groups[i]; operation->name != NULL; operation++) {
            if ((operation->makes & BIT(kind)) != 0 && count < COUNT_OF(makers)) makers[count++] = operation;
        }
    }
    if (count > 0) run(fuzz, makers[random_below(fuzz, count)], depth + 1);
}

/* Mostly creates the missing handles that the operation needs, and then runs it. */
static void run(fuzz *fuzz, const operation *operation, unsigned depth) {
    for (kind kind = 0; kind < NUM_KINDS; kind++) {
        if ((operation->needs & BIT(kind)) != 0 && depth < 4 && !table_has(kind) && !random_one_in(fuzz, 20))
            make(fuzz, kind, depth);
    }
    fuzz->operation = operation->name;
    operation->run(fuzz);
    table_release(fuzz);
}

void call_run(fuzz *fuzz, uint64_t sequence, uint64_t index, unsigned thread) {
    /* Each call has its own random numbers, so removing one call does not change the others. */
    uint64_t state = sequence ^ (index << 20) ^ ((uint64_t)thread << 52);
    fuzz->random = mix(&state);
    fuzz->sequence = sequence;
    fuzz->index = index;
    fuzz->thread = thread;
    run(fuzz, operation_at(sequence, random_below(fuzz, total_weight(sequence))), 0);
}

bool calls_report(bool prints, bool needs_all) {
    bool is_complete = true;
    for (size_t i = 0; i < NUM_FUNCTIONS; i++) {
        const unsigned long long calls = called[i];
        const unsigned long long successes = succeeded[i];
        const bool is_lacking = calls == 0 || (successes == 0 && !settings_cannot_succeed(functions[i].name));
        if (prints || (needs_all && is_lacking))
            printf("%s%s: %llu calls, %llu succeeded\n", needs_all && is_lacking ? "TOO FEW: " : "",
                   functions[i].name, calls, successes);
        is_complete = is_complete && !is_lacking;
    }
    return is_complete;
}

uint64_t calls_made(void) {
    uint64_t sum = 0;
    for (size_t i = 0; i < NUM_FUNCTIONS; i++) sum += called[i];
    return sum;
}
