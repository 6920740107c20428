// SPDX-License-Identifier: Apache-2.0
// Calls before cuInit, in a forked child, and without a device; names of results.
#include "driver_test.h"

/* Calls that succeed before cuInit, and examples of calls that fail. */
static void check_uninitialised(void) {
    const char *text = NULL;
    CUcontext context = NULL;
    CUdeviceptr address = 0;
    const CUmemAllocationProp prop = device_prop(0);
    CUmemGenericAllocationHandle handle = 0;
    CU_GET(int, number, cuDriverGetVersion(&number));
    CHECK(number >= 12000);
    CU(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
    CHECK_STR(text, "CUDA_ERROR_OUT_OF_MEMORY");
    CU_EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&number));
    CU_EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuCtxGetCurrent(&context));
    CU_EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuDevicePrimaryCtxRetain(&context, 0));
    CU_EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc_v2(&address, 1));
    CU_EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuMemFree_v2(0));
    CU_EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuMemAddressReserve(&address, GRANULE, 0, 0, 0));
    CU_EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuMemCreate(&handle, GRANULE, &prop, 0));
    CU_EXPECT(CUDA_ERROR_NOT_INITIALIZED,
              cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 1));
}

ROLE(be_uninitialised) {
    (void)socket;
    check_uninitialised();
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuInit(1));
    check_uninitialised();
}

ROLE(be_without_device) {
    (void)socket;
    CU_EXPECT(CUDA_ERROR_NO_DEVICE, cuInit(0));
    check_uninitialised();
}

TEST(nothing_works_before_init) {
    CLEANUP(peer_finish) peer fresh = peer_start("be_uninitialised");
}

TEST(init_without_a_device_fails) {
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    CLEANUP(peer_finish) peer hidden = peer_start("be_without_device");
    unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(init_may_be_repeated) {
    CU(cuInit(0));
    CU(cuInit(0));
}

static void check_without_driver(void) {
    check_uninitialised();
    CU_EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuInit(0));
}

TEST(nothing_works_in_a_forked_child) {
    OPEN_DEVICE(0);
    in_a_forked_child(check_without_driver);
}

TEST(results_have_names_and_descriptions) {
    static const struct {
        CUresult result;
        const char *name;
    } known[] = {
        {CUDA_SUCCESS, "CUDA_SUCCESS"},
        {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
        {CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
        {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN"},
    };
    for (size_t i = 0; i < NUM(known); i++) {
        const char *text = NULL;
        CU(cuGetErrorName(known[i].result, &text));
        CHECK_STR(text, known[i].name);
        CU(cuGetErrorString(known[i].result, &text));
        CHECK(text != NULL && text[0] != '\0');
    }
    const char *text = "untouched";
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)12345, &text));
    CHECK(text == NULL);
}
