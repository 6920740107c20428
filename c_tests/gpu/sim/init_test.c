// SPDX-License-Identifier: Apache-2.0
// A driver whose initialisation fails: the error contains the cause, and the next call tries again.
#include "cuda_sim.h"
#include "harness.h"

#include <dlfcn.h>

/* Returns a symbol of the stand-in, which is loaded here before kvmem loads it. */
static void *stand_in(const char *name) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(library != NULL);
    void *symbol = dlsym(library, name);
    CHECK(symbol != NULL);
    return symbol;
}

static void fail_next(const char *function, CUresult result) {
    __typeof__(sim_fail) *fail = NULL;
    void *symbol = stand_in("sim_fail");
    memcpy(&fail, &symbol, sizeof(fail));
    fail(function, 1, result);
}

static void expect_failure(const char *function, CUresult result, kvmem_status status, const char *part) {
    kvmem_cuda_info info;
    memset(&info, 0xEE, sizeof(info));
    fail_next(function, result);
    EXPECT_MESSAGE(status, part, kvmem_cuda_get_info(&info, ERR));
    CHECK_FILLED(&info, 0xEE, sizeof(info));
}

static void check_cause(CUresult result, const char *name) {
    kvmem_error_cause cause;
    CHECK_EQ(kvmem_error_get_cause(test_last_error(), &cause), KVMEM_STATUS_OK);
    CHECK_EQ(cause.domain, KVMEM_DOMAIN_CUDA);
    CHECK_EQ(cause.code, result);
    CHECK_STR(cause.name, name);
}

TEST(each_failure_is_reported_and_the_next_call_tries_again) {
    const kvmem_status unavailable = KVMEM_STATUS_UNAVAILABLE_CUDA;
    expect_failure("cuInit", CUDA_ERROR_NO_DEVICE, unavailable, "no device");
    expect_failure("cuInit", CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, unavailable, "DRIVER_MISMATCH");
    check_cause(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH");
    expect_failure("cuInit", CUDA_ERROR_UNKNOWN, unavailable, "CUDA_ERROR_UNKNOWN");
    check_cause(CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN");
    expect_failure("cuDriverGetVersion", CUDA_ERROR_UNKNOWN, KVMEM_STATUS_CUDA, "version");
    check_cause(CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN");
    expect_failure("cuDeviceGetCount", CUDA_ERROR_UNKNOWN, KVMEM_STATUS_CUDA, "count");
    check_cause(CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN");
    GET(kvmem_cuda_info, info, kvmem_cuda_get_info);
    CHECK(info.device_count >= 1);
}
TEST_MAIN_ONCE
