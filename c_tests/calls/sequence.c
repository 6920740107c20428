// SPDX-License-Identifier: Apache-2.0
// Runs the calls of a sequence.
#include "sequence.h"

#include "fuzz.h"
#include "leftovers.h"
#include "settings.h"
#include "table.h"

/* Longer than any sequence takes, unless a call hangs. */
#define DEADLINE_SECONDS 120

static _Thread_local fuzz *running;

typedef struct worker {
    pthread_t thread;
    fuzz fuzz;
    uint64_t seed;
    unsigned number;
} worker;

/* Uses async-signal-safe calls, and snprintf of numbers into its own buffer. */
static void on_signal(int number) {
    char text[256];
    const fuzz *fuzz = running;
    const int length = snprintf(text, sizeof(text),
                                "FAILED: signal %d, sequence %llu, call %llu of thread %u, %s, function %d\n",
                                number, fuzz != NULL ? (unsigned long long)fuzz->sequence : 0,
                                fuzz != NULL ? (unsigned long long)fuzz->index : 0, fuzz != NULL ? fuzz->thread : 0,
                                fuzz != NULL && fuzz->operation != NULL ? fuzz->operation : "no operation",
                                fuzz != NULL ? (int)fuzz->function : -1);
    const ssize_t written = write(STDOUT_FILENO, text, (size_t)length);
    (void)written;
    signal(number, SIG_DFL);
    raise(number == SIGALRM ? SIGABRT : number);
}

void sequence_catch_crashes(void) {
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGALRM};
    for (size_t i = 0; i < COUNT_OF(signals); i++) signal(signals[i], on_signal);
}

static void *work(void *argument) {
    worker *worker = argument;
    running = &worker->fuzz;
    for (uint64_t index = 0; index < settings.calls; index++) {
        if (settings_has_call(index)) call_run(&worker->fuzz, worker->seed, index, worker->number);
    }
    running = NULL;
    return NULL;
}

static void run_threads(uint64_t seed) {
    static worker workers[64];
    for (unsigned i = 0; i < settings.threads; i++) {
        workers[i] = (worker){.seed = seed, .number = i};
        CHECK_EQ(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < settings.threads; i++) CHECK_EQ(pthread_join(workers[i].thread, NULL), 0);
}

/* In random order, and with the log callback removed. */
static void end_all(fuzz *fuzz) {
    fuzz->operation = "the end of all handles";
    table_destroy_all(fuzz);
    TRY(fuzz, kvmem_log_set_callback, KVMEM_LOG_OFF, NULL, NULL);
    table_destroy_all(fuzz); /* the error of that call, if it failed */
}

void sequence_run(uint64_t seed) {
    static worker single;
    single = (worker){.seed = seed};
    alarm(DEADLINE_SECONDS);
    shares_forget_tokens();
    if (settings.threads > 1) run_threads(seed);
    else work(&single);
    single.fuzz.random = seed;
    single.fuzz.sequence = seed;
    single.fuzz.index = settings.calls;
    running = &single.fuzz;
    end_all(&single.fuzz);
    leftovers_check(&single.fuzz);
    running = NULL;
}

void sequence_check_threads(void) {
    fuzz fuzz = {.operation = "the end of all sequences"};
    alarm(DEADLINE_SECONDS);
    leftovers_check_threads(&fuzz);
}
