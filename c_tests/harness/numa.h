// SPDX-License-Identifier: Apache-2.0
// The node and the policy of the pages of this process.
#pragma once

#include <stdint.h>

/* From <linux/mempolicy.h>. */
#define NUMA_PREFERRED 1
#define NUMA_BIND 2

/* The last node of this machine that has memory. If that is node 0, reports that this part of the case is
   skipped. */
uint32_t numa_node_to_test(void);
/* Checks that the pages of [address, address + size) have this policy and node, and that the first and last
   byte are located on the node. With NUMA_PREFERRED the node may have had no free page, so only the policy is
   checked. */
void numa_check_placed(uint64_t address, uint64_t size, int policy, uint32_t node);
