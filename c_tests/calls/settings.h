// SPDX-License-Identifier: Apache-2.0
// How the fuzzer runs: from its arguments and its environment.
#pragma once

#include "harness.h"

typedef struct settings_values {
    const char *program;
    uint64_t seed;      /* of the first sequence; the next has the next */
    uint64_t sequences; /* how many; 0: as many as fit into the time */
    uint64_t calls;     /* of a sequence and thread */
    uint64_t seconds;   /* 0: no limit */
    uint64_t threads;
    uint64_t patience; /* seconds to wait for what ends on other threads */
    const char *only; /* indices of the calls to make, as "3,17"; NULL for all */
    const char *nixl; /* the backends that agents get, as "POSIX,UCX"; "" for none; NULL: no agents */
    bool faults; /* of calls below the library */
    bool minimises;
    bool prints_calls;
    bool prints_functions;
    bool collects_statuses; /* do not fail for a status that is not documented */
    bool needs_all; /* fail if a function was never called, or never succeeded */
} settings_values;
extern settings_values settings;

/* Reads arguments and environment; prints a usage and exits if they are wrong. */
void settings_read(int argc, char **argv);
/* The command that runs one sequence again. */
void settings_print_replay(uint64_t sequence);
/* Whether the call with this index is to be made. */
bool settings_has_call(uint64_t index);
/* Whether a function cannot succeed with these settings. */
bool settings_cannot_succeed(const char *function);
