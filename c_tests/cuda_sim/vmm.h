// SPDX-License-Identifier: Apache-2.0
// What the steps of virtual memory management have in common.
#ifndef CUDA_SIM_VMM_H
#define CUDA_SIM_VMM_H

#include "state.h"

#define GRANULARITY (2 * MIB)

bool vmm_is_supported(void);
/* Whether it is a multiple of the granularity. */
bool is_granular(uint64_t size);

#endif
