// SPDX-License-Identifier: Apache-2.0
// Every driver call of every operation fails in turn: nothing leaks, the caller's context stays, the error
// says what the driver said, and the operation works afterwards.
#include "control.h"
#include "owner.h"
#include "stance.h"
#include "walk.h"

OWNER_ROLE
WALK_CASES

/* The library sees by creating memory which handles work: that there is none left says nothing about them. */
TEST(a_full_device_still_says_what_it_can_do) {
    SIM(sim_reset());
    GET(kvmem_cuda_device_info, expected, kvmem_cuda_get_device_info, 0);
    CHECK(expected.capabilities & KVMEM_CUDA_POSIX_FD);
    SIM(sim_fail("cuMemCreate", SIM_EVERY_CALL, CUDA_ERROR_OUT_OF_MEMORY));
    GET(kvmem_cuda_device_info, info, kvmem_cuda_get_device_info, 0);
    SIM(sim_reset());
    CHECK(info.capabilities & KVMEM_CUDA_POSIX_FD);
}

/* What a newer driver may answer. */
TEST(a_result_nobody_knows_is_given_by_number) {
    const operation *device_memory = walk_find("have_device_memory");
    operations_open();
    SIM(sim_reset());
    SIM(sim_fail("cuMemAlloc_v2", 1, (CUresult)7777));
    CHECK_EQ(device_memory->run(), KVMEM_STATUS_CUDA);
    CHECK_CAUSE(KVMEM_DOMAIN_CUDA, 7777);
    CHECK_STR(test_last_cause().name, "CUresult 7777");
    walk_check_works(device_memory);
    operations_close();
}
