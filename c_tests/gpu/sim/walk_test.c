// SPDX-License-Identifier: Apache-2.0
// Makes each driver call of each operation except transfers fail; see walk.h.
#include "control.h"
#include "owner.h"
#include "caller_context.h"
#include "walk.h"

OWNER_ROLE
WALK_CASES

/* kvmem creates memory to determine which handles work. A failure for lack of memory must not count as
   "no". */
TEST(capabilities_are_reported_without_free_memory) {
    SIM(sim_reset());
    GET(kvmem_cuda_device_info, expected, kvmem_cuda_get_device_info, 0);
    CHECK(expected.capabilities & KVMEM_CUDA_POSIX_FD);
    SIM(sim_fail("cuMemCreate", SIM_EVERY_CALL, CUDA_ERROR_OUT_OF_MEMORY));
    GET(kvmem_cuda_device_info, info, kvmem_cuda_get_device_info, 0);
    SIM(sim_reset());
    CHECK(info.capabilities & KVMEM_CUDA_POSIX_FD);
}

/* Newer drivers may return such results. */
TEST(an_unknown_result_is_reported_by_number) {
    const operation *device_memory = walk_find("allocate_device_memory");
    operations_open();
    SIM(sim_reset());
    SIM(sim_fail("cuMemAlloc_v2", 1, (CUresult)7777));
    CHECK_EQ(device_memory->run(), KVMEM_STATUS_CUDA);
    CHECK_CAUSE(KVMEM_DOMAIN_CUDA, 7777);
    CHECK_STR(test_last_cause().name, "CUresult 7777");
    walk_check_works(device_memory);
    operations_close();
}
