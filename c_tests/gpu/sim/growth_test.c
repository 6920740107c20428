// SPDX-License-Identifier: Apache-2.0
// The driver calls that growing and shrinking take, beside queries: what an extent cannot do without, and one
// call that opens all of them. Needs the stand-in.
#include "control.h"
#include "stance.h"

#define EXTENT (4 * MIB)
#define EXTENTS 16

static void expect_calls(const char *function, uint64_t count) {
    const uint64_t calls = SIM(sim_calls(function));
    if (calls != count)
        FAIL("%s: %llu calls, not %llu", function, (unsigned long long)calls, (unsigned long long)count);
}

/* No context is retained or pushed, nothing is exported or asked of peers. */
static void expect_nothing_else(void) {
    static const char *const others[] = {
        "cuDevicePrimaryCtxRetain",    "cuCtxPushCurrent_v2",   "cuMemExportToShareableHandle",
        "cuMemGetAddressRange_v2",     "cuDeviceCanAccessPeer", "cuMemGetAccess",
        "cuMemRetainAllocationHandle", "cuPointerGetAttribute", "cuMemAddressReserve",
    };
    for (size_t i = 0; i < NUM(others); i++) expect_calls(others[i], 0);
}

TEST(an_extent_takes_two_calls_and_a_step_one_more) {
    OWNED(kvmem_region) region = region_create_elastic(EXTENTS * EXTENT, EXTENT, 0);
    SIM(sim_reset());
    EXPECT_OK(kvmem_region_commit(region, 0, EXTENTS * EXTENT, ERR));
    expect_calls("cuMemCreate", EXTENTS);
    expect_calls("cuMemMap", EXTENTS);
    expect_calls("cuMemSetAccess", 1);
    expect_calls("cuMemUnmap", 0);
    expect_nothing_else();
    SIM(sim_reset());
    EXPECT_OK(kvmem_region_decommit(region, 0, EXTENTS * EXTENT, ERR));
    expect_calls("cuMemUnmap", EXTENTS);
    expect_calls("cuMemRelease", EXTENTS);
    expect_calls("cuMemSetAccess", 0);
    expect_nothing_else();
}

/* Holes in between: a call for each run of extents side by side. */
TEST(extents_apart_are_opened_run_by_run) {
    OWNED(kvmem_region) region = region_create_elastic(EXTENTS * EXTENT, EXTENT, 0);
    EXPECT_OK(kvmem_region_commit(region, 4 * EXTENT, 2 * EXTENT, ERR));
    SIM(sim_reset());
    EXPECT_OK(kvmem_region_commit(region, 0, EXTENTS * EXTENT, ERR));
    expect_calls("cuMemCreate", EXTENTS - 2);
    expect_calls("cuMemMap", EXTENTS - 2);
    expect_calls("cuMemSetAccess", 2);
    expect_nothing_else();
}
