// SPDX-License-Identifier: Apache-2.0
// Which system calls the library makes, and the ways in which each of them can fail.
#pragma once

#include "library_code.h"

#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>

/* In place of an errno: the call transfers half of its bytes. */
#define SHORT_TRANSFER (-1)

typedef struct system_call {
    long number;
    const char *name;
    int ways[6]; /* errnos that Linux documents for the call, or SHORT_TRANSFER; ends with 0 */
} system_call;

/* The call, if it can fail; NULL if it cannot with these arguments, or if what fails then is the C library's or std's own,
   which end the process. A number that no list has fails the test. */
const system_call *system_call_find(const struct seccomp_data *call, const library_code *library);
size_t system_call_num_ways(const system_call *call);
/* Whether the way may last: until something else ends it. Others occur once. */
bool system_call_can_last(int way);
/* Makes the call with half of its bytes, and returns the result or a negative errno; 0 if it cannot be made so. */
int64_t system_call_shortened(const struct seccomp_data *call);

/* Those that cannot fail, or that end what they end whatever they return: the filter ignores them. */
extern const long system_calls_ignored[];
extern const size_t system_calls_num_ignored;
