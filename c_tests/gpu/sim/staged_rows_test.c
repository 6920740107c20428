// SPDX-License-Identifier: Apache-2.0
// Rows between staging memory and memory of a GPU while no kernel can be loaded, and on a GPU that supports none: the
// driver copies them, row by row. With stand-ins for the driver and for NIXL.
#include "control.h"
#include "gpu_flight.h"
#include "caller_context.h"
#include "stand_in.h"

/* Scattered blocks, in both directions. */
static void move_by_staging(bool reads, const char *function, CUresult failure) {
    nixl_find_stand_in();
    NIXL(nixl_sim_set_routing(1));
    NIXL(nixl_sim_set_moving(UINT64_MAX));
    SIM(sim_reset());
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    kvmem_agent *near = agent_open("near"), *far = agent_open("far");
    side here;
    kv_side there;
    CALL(side_open(&here, PLACE_DEVICE, 0, &config, near, 1));
    kv_side_open(&there, &config, far, 2);
    agents_introduce(near, far);
    kvmem_layout *remote = layout_import(near, there.layout), *local = here.model.layout;
    SIM(sim_fail(function, SIM_EVERY_CALL, failure));
    kvmem_transfer *transfer = MADE(
        kvmem_transfer, kv_prepare, reads ? remote : local, reads ? local : remote,
        KV_JOB(&scattered_move, it.transfer.method = KVMEM_METHOD_NIXL_STAGED));
    const uint64_t copied = SIM(sim_copied());
    RUN(transfer);
    CHECK_EQ(SIM(sim_calls("cuLaunchKernel")), 0);
    GET(kvmem_transfer_info, info, kvmem_transfer_get_info, transfer);
    CHECK(SIM(sim_copied()) - copied >= info.bytes);
    SIM(sim_cancel_failures());
    if (reads) {
        kv_expect_moved(&here.model, &there, &scattered_move);
        kv_side_check(&there);
    } else {
        kv_side_check_moved(&there, &here.model, &scattered_move);
    }
    side_check(&here);
    DESTROYED(kvmem_transfer, transfer);
    DESTROYED(kvmem_layout, remote);
    CALL(side_close(&here));
    kv_side_close(&there);
    DESTROYED(kvmem_agent, near);
    DESTROYED(kvmem_agent, far);
    NIXL(nixl_sim_set_routing(0));
    SIM(sim_reset());
}

#define CAPTURED "cuCtxRecordEvent", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
#define TOO_OLD "cuModuleLoadData", CUDA_ERROR_NO_BINARY_FOR_GPU

TEST_CALL(rows_are_read_through_staging_memory, move_by_staging(true, CAPTURED))
TEST_CALL(rows_are_written_through_staging_memory, move_by_staging(false, CAPTURED))
TEST_CALL(rows_are_read_without_kernels, move_by_staging(true, TOO_OLD))
TEST_CALL(rows_are_written_without_kernels, move_by_staging(false, TOO_OLD))
