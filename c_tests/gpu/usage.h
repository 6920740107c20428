// SPDX-License-Identifier: Apache-2.0
// What the process takes of the machine, in bytes and threads.
#pragma once

#include "harness.h"

uint64_t address_space(void);
uint64_t resident_memory(void);
size_t count_threads(void);
