// SPDX-License-Identifier: Apache-2.0
// What the steps of virtual memory management have in common.
#pragma once

#include "state.h"

#define GRANULARITY (2 * MIB)

bool vmm_is_supported(void);
/* Whether it is a multiple of the granularity. */
bool is_granular(uint64_t size);
