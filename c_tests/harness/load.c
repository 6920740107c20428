// SPDX-License-Identifier: Apache-2.0
#include "load.h"

#include "harness.h"

#include <stdarg.h>
#include <time.h>

static uint64_t asked_seconds(void) {
    const char *text = getenv("KVMEM_TEST_LOAD_SECONDS");
    return text != NULL ? strtoull(text, NULL, 10) : 0;
}

uint64_t load_duration(void) { return asked_seconds() > 0 ? SECONDS(asked_seconds()) : MILLISECONDS(500); }

uint64_t stop_duration(void) { return asked_seconds() > 0 ? SECONDS(10) : 0; }

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return SECONDS(time.tv_sec) + (uint64_t)time.tv_nsec;
}

load_clock load_begin(void) {
    return (load_clock){now()};
}

uint64_t load_elapsed(const load_clock *clock) { return now() - clock->began; }

bool load_lasts(const load_clock *clock, uint64_t duration) { return load_elapsed(clock) < duration; }

void load_report(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    printf("load: ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
}
