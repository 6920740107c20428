// SPDX-License-Identifier: Apache-2.0
// Where the kernel has the pages of this process, and by what policy.
#pragma once

#include <stdint.h>

/* Of <linux/mempolicy.h>. */
#define NUMA_PREFERRED 1
#define NUMA_BIND 2

/* The last node of this machine that has memory. If that is node 0, reports that this part of the case is
 * skipped. */
uint32_t numa_node_to_test(void);
/* Checks that the pages of [address, address + size) are to come from a node by such a policy, and that
 * those of the first and last byte lie there. A preferred node may have had none left: of those only the
 * policy is checked. */
void numa_check_placed(uint64_t address, uint64_t size, int policy, uint32_t node);
