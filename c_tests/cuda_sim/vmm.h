// SPDX-License-Identifier: Apache-2.0
// Common to the functions of virtual memory management.
#pragma once

#include "state.h"

#define GRANULARITY (2 * MIB)

bool vmm_is_supported(void);
/* Returns whether it is a multiple of the granularity. */
bool is_granular(uint64_t size);
