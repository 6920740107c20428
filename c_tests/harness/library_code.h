// SPDX-License-Identifier: Apache-2.0
// Where the library's code is, to tell its calls from those of others.
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct library_code {
    uint64_t start, end;
} library_code;

/* Takes the loader's lock. */
library_code library_code_find(void);
static inline bool library_code_contains(const library_code *code, uint64_t address) {
    return code->start <= address && address < code->end;
}
