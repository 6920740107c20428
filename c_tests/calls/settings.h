// SPDX-License-Identifier: Apache-2.0
// Settings of the fuzzer, from its arguments and its environment.
#pragma once

#include "harness.h"

typedef struct settings_values {
    const char *program;
    uint64_t seed;      /* of the first sequence; each next sequence adds one */
    uint64_t sequences; /* number of sequences; 0: as many as fit into the time */
    uint64_t calls;     /* per sequence and thread */
    uint64_t seconds;   /* 0: no limit */
    uint64_t threads;
    uint64_t patience; /* seconds to wait for releases on other threads */
    const char *only; /* indices of the calls to make, as "3,17"; NULL: all */
    const char *nixl; /* backends of the agents, as "POSIX,UCX"; "": none; NULL: no agents */
    bool faults; /* of calls below the library */
    bool minimises;
    bool prints_calls;
    bool prints_functions;
    bool collects_statuses; /* report statuses that are not documented, and continue */
    bool needs_all; /* fail if a function was never called, or never succeeded */
} settings_values;
extern settings_values settings;

/* Reads arguments and environment. If they are wrong, prints a usage and exits. */
void settings_read(int argc, char **argv);
/* Prints the command that runs one sequence again. */
void settings_print_replay(uint64_t sequence);
/* Whether to make the call with this index. */
bool settings_has_call(uint64_t index);
/* Whether a function cannot succeed with these settings. */
bool settings_cannot_succeed(const char *function);
