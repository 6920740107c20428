// SPDX-License-Identifier: Apache-2.0
// Memory and threads of the process.
#pragma once

#include "harness.h"

uint64_t address_space(void);
uint64_t resident_memory(void);
size_t count_threads(void);
