// SPDX-License-Identifier: Apache-2.0
// Driver calls fail while copies are measured: there are figures all the same, and nothing stays behind.
#include "control.h"
#include "stance.h"

#include <string.h>

#define ALL_FIGURES 15

static kvmem_copy_rates measure(void) {
    kvmem_copy_rates rates;
    kvmem_copy_rates_init(&rates, sizeof(rates));
    EXPECT_OK(kvmem_cuda_set_copy_rates(0, NULL, ERR));
    EXPECT_OK(kvmem_cuda_get_copy_rates(0, &rates, ERR));
    CHECK(rates.to_device.bytes_per_second > 0 && rates.to_host.kernel_bytes_per_second > 0);
    return rates;
}

/* Calls without which nothing can be measured. */
static void what_can_not_be_measured_is_a_default(void) {
    static const char *const needed[] = {
        "cuMemAlloc_v2", "cuMemHostRegister_v2", "cuStreamCreateWithPriority", "cuEventCreate",
        "cuEventRecord", "cuEventSynchronize",   "cuEventElapsedTime",         "cuMemcpyAsync",
    };
    const sim_counts before = sim_live_now();
    for (size_t i = 0; i < NUM(needed); i++) {
        SIM(sim_reset());
        SIM(sim_fail(needed[i], SIM_EVERY_CALL, CUDA_ERROR_OUT_OF_MEMORY));
        const kvmem_copy_rates rates = measure();
        CHECK_EQ(rates.source, KVMEM_RATES_DEFAULT);
        CHECK_EQ(rates.num_defaults, ALL_FIGURES);
        SIM(sim_reset());
        await_live(&before);
    }
}

/* One call fails, now or when its work is done. */
static void one_failure_leaves_figures_and_nothing_else(void) {
    static const struct {
        const char *function;
        uint64_t nth;
        bool later;
    } failures[] = {
        {"cuMemcpyAsync", 1, true},         {"cuMemcpyAsync", 5, false},
        {"cuMemcpyBatchAsync", 2, false},   {"cuMemcpyBatchAsync", 1, true},
        {"cuLaunchKernel", 1, false},       {"cuLaunchKernel", 3, true},
        {"cuModuleLoadData", 1, false},     {"cuModuleGetFunction", 1, false},
        {"cuCtxPushCurrent_v2", 9, false},  {"cuEventSynchronize", 4, false},
        {"cuStreamQuery", 1, false},        {"cuMemFree_v2", 1, false},
    };
    const sim_counts before = sim_live_now();
    for (size_t i = 0; i < NUM(failures); i++) {
        SIM(sim_reset());
        (failures[i].later ? SIM(sim_fail_later) : SIM(sim_fail))(failures[i].function, failures[i].nth,
                                                                   CUDA_ERROR_LAUNCH_FAILED);
        measure();
        SIM(sim_reset());
        await_live(&before);
    }
}

static void without_batches_or_a_kernel_the_rest_is_measured(void) {
    const sim_counts before = sim_live_now();
    SIM(sim_reset());
    SIM(sim_fail("cuModuleLoadData", SIM_EVERY_CALL, CUDA_ERROR_NO_BINARY_FOR_GPU));
    const kvmem_copy_rates rates = measure();
    CHECK(rates.num_defaults >= 7); /* the kernel's */
    SIM(sim_reset());
    await_live(&before);
}

static void measuring_waits_for_nobodys_work(void) {
    SIM(sim_reset());
    measure();
    CHECK_EQ(SIM(sim_calls("cuCtxSynchronize")), 0);
    CHECK_EQ(SIM(sim_calls("cuStreamSynchronize")), 0);
    const uint64_t copies = SIM(sim_calls("cuMemcpyAsync"));
    kvmem_copy_rates rates;
    kvmem_copy_rates_init(&rates, sizeof(rates));
    EXPECT_OK(kvmem_cuda_get_copy_rates(0, &rates, ERR));
    CHECK_EQ(SIM(sim_calls("cuMemcpyAsync")), copies); /* measured once */
}

static const test_case cases[] = {
    CASE(what_can_not_be_measured_is_a_default),
    CASE(one_failure_leaves_figures_and_nothing_else),
    CASE(without_batches_or_a_kernel_the_rest_is_measured),
    CASE(measuring_waits_for_nobodys_work),
};
GPU_MAIN
