// SPDX-License-Identifier: Apache-2.0
// Tests under load, which are short in `make test`, and as long as requested in `make load-test`.
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Nanoseconds that each load lasts: $KVMEM_TEST_LOAD_SECONDS, or half a second. */
uint64_t load_duration(void);
/* How long a peer stays stopped: 10 s if the variable is set, otherwise no longer than the calls made
   meanwhile. */
uint64_t stop_duration(void);

/* Whether the time since `load_begin` is below a duration. */
typedef struct load_clock {
    uint64_t began;
} load_clock;
load_clock load_begin(void);
bool load_lasts(const load_clock *clock, uint64_t duration);
/* Nanoseconds since then. */
uint64_t load_elapsed(const load_clock *clock);

/* Prints a line that the record of `make load-test` contains. */
void load_report(const char *format, ...) __attribute__((format(printf, 1, 2)));
