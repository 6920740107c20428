// SPDX-License-Identifier: Apache-2.0
// During one call, a driver call of the stand-in fails, the process may open no more files, the kernel has no
// memory for the library, or the library can start no thread.
#include "faults.h"

#include "control.h"
#include "memory_faults.h"
#include "settings.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

static bool is_planned;
static bool has_limit;
static struct rlimit limit;
static uint64_t planned;

static void plan_driver(fuzz *fuzz) {
    static const CUresult results[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN};
    const uint64_t nth = 1 + random_below(fuzz, random_one_in(fuzz, 4) ? 60 : 10);
    SIM(sim_fail_nth_of_all(nth, random_of(fuzz, results)));
}

/* Sets the limit to the lowest free number. Open files stay open. */
static void plan_files(void) {
    const int lowest = dup(STDOUT_FILENO);
    CHECK(lowest >= 0 && close(lowest) == 0);
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit none = {(rlim_t)lowest, limit.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    has_limit = true;
}

/* Counts the threads that the library starts during the call, from any of its threads. Those from `first` to
   `last` fail; 0: none. */
static _Atomic uint32_t first_failing, last_failing, requests;
static _Atomic uint64_t refused;

static void plan_threads(fuzz *fuzz) {
    const uint32_t first = 1 + (uint32_t)random_below(fuzz, random_one_in(fuzz, 3) ? 4 : 1);
    requests = 0;
    last_failing = random_one_in(fuzz, 2) ? first : UINT32_MAX;
    first_failing = first;
}

static bool is_refused(const void *caller) {
    const uint32_t first = first_failing;
    if (first == 0 || !is_in_library(caller)) return false;
    const uint32_t number = 1 + atomic_fetch_add(&requests, 1);
    if (number < first || number > last_failing) return false;
    refused++;
    return true;
}

typedef int create_thread(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

/* Replaces the C library's function for all libraries of the process. Calls of NIXL and the driver never
   fail. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *),
                   void *argument) {
    if (is_refused(__builtin_return_address(0))) return EAGAIN;
    union {
        void *address;
        create_thread *function;
    } next = {dlsym(RTLD_NEXT, "pthread_create")};
    return next.function(thread, attributes, body, argument);
}

void faults_begin(fuzz *fuzz) {
    if (!settings.faults || !random_one_in(fuzz, 3)) return;
    planned++;
    is_planned = true;
    if (random_one_in(fuzz, 4)) plan_files();
    else if (random_one_in(fuzz, 3)) plan_threads(fuzz);
    else if (random_one_in(fuzz, 2)) memory_faults_plan(fuzz);
    else plan_driver(fuzz);
}

void faults_end(void) {
    if (has_limit) CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    else if (is_planned) SIM(sim_cancel_failures());
    first_failing = 0;
    memory_faults_forget();
    is_planned = has_limit = false;
}

void faults_spare(bool is_spared) {
    if (settings.faults) SIM(sim_exempt_thread(is_spared));
}

uint64_t faults_planned(void) { return planned; }

uint64_t faults_refused_threads(void) { return refused; }
