// SPDX-License-Identifier: Apache-2.0
// Calls the kernel directly: the C library has no such function, and libnuma is not needed.
#define _DEFAULT_SOURCE
#include "numa.h"

#include "harness.h"

#include <limits.h>

/* From <linux/mempolicy.h>: flags of get_mempolicy. */
#define OF_NODE 1
#define OF_ADDRESS 2

#define MAX_NODES 1024
#define BITS (sizeof(unsigned long) * CHAR_BIT)

static uint32_t last_node(void) {
    char text[256] = "0";
    FILE *file = fopen("/sys/devices/system/node/has_memory", "re");
    if (file != NULL) {
        CHECK(fgets(text, sizeof(text), file) != NULL);
        fclose(file);
    }
    const char *last = text + strcspn(text, "\n"); /* of "0-1,3" */
    while (last > text && last[-1] >= '0' && last[-1] <= '9') last--;
    return (uint32_t)strtoul(last, NULL, 10);
}

uint32_t numa_node_to_test(void) {
    const uint32_t last = last_node();
    if (last == 0) SKIP_PART("a NUMA node other than node 0: this machine has none");
    return last;
}

static void check_policy(uint64_t address, int policy, uint32_t node) {
    int found = -1;
    unsigned long nodes[MAX_NODES / BITS] = {0};
    CHECK_EQ(syscall(SYS_get_mempolicy, &found, nodes, (unsigned long)MAX_NODES, address, OF_ADDRESS), 0);
    CHECK_EQ(found, policy);
    for (uint32_t i = 0; i < MAX_NODES; i++) CHECK_EQ((nodes[i / BITS] >> (i % BITS)) & 1, i == node);
}

static void check_node(uint64_t address, uint32_t node) {
    int found = -1;
    CHECK_EQ(syscall(SYS_get_mempolicy, &found, NULL, 0ul, address, OF_NODE | OF_ADDRESS), 0);
    CHECK_EQ(found, (int)node);
}

void numa_check_placed(uint64_t address, uint64_t size, int policy, uint32_t node) {
    const uint64_t places[] = {address, address + size - 1};
    for (size_t i = 0; i < NUM(places); i++) {
        check_policy(places[i], policy, node);
        if (policy == NUMA_BIND) check_node(places[i], node);
    }
}
