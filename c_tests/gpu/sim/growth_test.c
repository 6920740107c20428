// SPDX-License-Identifier: Apache-2.0
// The number of driver calls, except queries, to commit and decommit extents: the minimum per extent, and one
// call that sets access of all of them.
#include "control.h"
#include "caller_context.h"

#define EXTENT (4 * MIB)
#define EXTENTS 16

static void expect_calls(const char *function, uint64_t count) {
    const uint64_t calls = SIM(sim_calls(function));
    if (calls != count)
        FAIL("%s: %llu calls, not %llu", function, (unsigned long long)calls, (unsigned long long)count);
}

/* Checks that no context is retained or pushed, nothing is exported, and peers are not queried. */
static void expect_no_other_calls(void) {
    static const char *const others[] = {
        "cuDevicePrimaryCtxRetain",    "cuCtxPushCurrent_v2",   "cuMemExportToShareableHandle",
        "cuMemGetAddressRange_v2",     "cuDeviceCanAccessPeer", "cuMemGetAccess",
        "cuMemRetainAllocationHandle", "cuPointerGetAttribute", "cuMemAddressReserve",
    };
    for (size_t i = 0; i < NUM(others); i++) expect_calls(others[i], 0);
}

TEST(an_extent_needs_two_calls_and_a_commit_one_more) {
    OWNED(kvmem_region) region = region_create_elastic(EXTENTS * EXTENT, EXTENT, 0);
    SIM(sim_reset());
    EXPECT_OK(kvmem_region_commit(region, 0, EXTENTS * EXTENT, ERR));
    expect_calls("cuMemCreate", EXTENTS);
    expect_calls("cuMemMap", EXTENTS);
    expect_calls("cuMemSetAccess", 1);
    expect_calls("cuMemUnmap", 0);
    expect_no_other_calls();
    SIM(sim_reset());
    EXPECT_OK(kvmem_region_decommit(region, 0, EXTENTS * EXTENT, ERR));
    expect_calls("cuMemUnmap", EXTENTS);
    expect_calls("cuMemRelease", EXTENTS);
    expect_calls("cuMemSetAccess", 0);
    expect_no_other_calls();
}

/* Between committed extents, each run of adjacent extents needs one call. */
TEST(access_is_set_once_per_run_of_extents) {
    OWNED(kvmem_region) region = region_create_elastic(EXTENTS * EXTENT, EXTENT, 0);
    EXPECT_OK(kvmem_region_commit(region, 4 * EXTENT, 2 * EXTENT, ERR));
    SIM(sim_reset());
    EXPECT_OK(kvmem_region_commit(region, 0, EXTENTS * EXTENT, ERR));
    expect_calls("cuMemCreate", EXTENTS - 2);
    expect_calls("cuMemMap", EXTENTS - 2);
    expect_calls("cuMemSetAccess", 2);
    expect_no_other_calls();
}
