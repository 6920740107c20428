// SPDX-License-Identifier: Apache-2.0
// One driver call of the stand-in fails, or the process may open no more files.
#include "faults.h"

#include "control.h"
#include "settings.h"

static bool is_planned;
static bool has_limit;
static struct rlimit limit;
static uint64_t planned;

static void plan_driver(fuzz *fuzz) {
    static const CUresult results[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN};
    const uint64_t nth = 1 + random_below(fuzz, random_one_in(fuzz, 4) ? 60 : 10);
    SIM(sim_fail_nth_of_all(nth, random_of(fuzz, results)));
}

/* The limit is the lowest free number: what is open stays open. */
static void plan_files(void) {
    const int lowest = dup(STDOUT_FILENO);
    CHECK(lowest >= 0 && close(lowest) == 0);
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit none = {(rlim_t)lowest, limit.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    has_limit = true;
}

void faults_begin(fuzz *fuzz) {
    if (!settings.faults || !random_one_in(fuzz, 3)) return;
    planned++;
    is_planned = true;
    if (random_one_in(fuzz, 3)) plan_files();
    else plan_driver(fuzz);
}

void faults_end(void) {
    if (has_limit) CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    else if (is_planned) SIM(sim_forget_failures());
    is_planned = has_limit = false;
}

void faults_spare(bool is_spared) { if (settings.faults) SIM(sim_spare(is_spared)); }

uint64_t faults_planned(void) { return planned; }
