// SPDX-License-Identifier: Apache-2.0
// Fuzzes call sequences over the C ABI: random calls of every function of kvmem.h, with valid and invalid
// arguments, from one thread or several. Each status must be documented in the header, and nothing may be
// left after all handles were destroyed. See fuzz/README.md.
#include "driver.h"
#include "faults.h"
#include "fuzz.h"
#include "leftovers.h"
#include "memory_faults.h"
#include "minimise.h"
#include "owned.h"
#include "sequence.h"
#include "settings.h"
#include "table.h"

#include <time.h>

static uint64_t seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec;
}

/* A program that uses a GPU retains its context. The library must not be the only user. */
static void retain_devices(void) {
    for (int device = 0; device < driver_devices(); device++) retain_device(device);
}

/* If something large is allocated by mistake, the allocation fails, and the machine stays usable. */
static void limit_memory(void) {
#ifndef __SANITIZE_ADDRESS__
    const struct rlimit limit = {UINT64_C(64) << 30, UINT64_C(64) << 30};
    CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
#endif
}

/* With --needs-all, four times the sequences are allowed for rare successes. */
static bool has_enough(uint64_t done) {
    if (settings.sequences == 0 || done < settings.sequences) return false;
    return done >= 4 * settings.sequences || !settings.needs_all || calls_report(false, false);
}

static uint64_t run_sequences(void) {
    const uint64_t start = seconds_now();
    uint64_t done = 0;
    while (!has_enough(done) && (settings.seconds == 0 || seconds_now() - start < settings.seconds)) {
        sequence_run(settings.seed + done);
        done++;
    }
    return done;
}

int main(int argc, char **argv) {
    settings_read(argc, argv);
    if (settings.minimises) return minimise();
    printf("seed %llu\n", (unsigned long long)settings.seed);
    fflush(stdout);
    signal(SIGPIPE, SIG_IGN);
    sequence_catch_crashes();
    limit_memory();
    if (settings.faults) memory_faults_watch();
    table_open();
    owned_open();
    retain_devices();
    kvmem_statistics_serve(NULL); /* its socket and its thread stay until the process ends */
    leftovers_note();
    const uint64_t done = run_sequences();
    sequence_check_threads();
    owned_close();
    const bool is_complete = calls_report(settings.prints_functions, settings.needs_all);
    if (settings.faults) {
        printf("a failure was planned for %llu calls; %llu threads and %llu requests for memory failed\n",
               (unsigned long long)faults_planned(), (unsigned long long)faults_refused_threads(),
               (unsigned long long)memory_faults_refused());
        CHECK(settings.only != NULL || faults_planned() < 1000 ||
              (faults_refused_threads() > 0 && memory_faults_refused() > 0));
    }
    printf("%llu sequences, %llu calls, nothing found\n", (unsigned long long)done,
           (unsigned long long)calls_made());
    return settings.needs_all && !is_complete ? EXIT_FAILURE : EXIT_SUCCESS;
}
