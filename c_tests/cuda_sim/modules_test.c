// SPDX-License-Identifier: Apache-2.0
// Modules and their kernels, copies of rows, and graphs of captured streams.
#include "driver_test.h"

static const char ptx[] =
    ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry nothing()\n{\nret;\n}\n";

TEST(kernels_of_a_module_are_found_by_name) {
    OPEN_DEVICE(0);
    CU_GET(CUmodule, module, cuModuleLoadData(&module, ptx));
    CU_GET(CUfunction, function, cuModuleGetFunction(&function, module, "nothing"));
    CHECK(function != NULL);
    CU_EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "something"));
    CU(cuModuleUnload(module));
}

TEST(compiled_code_is_loaded) {
    OPEN_DEVICE(0);
    CU_GET(CUlinkState, linker, cuLinkCreate_v2(0, NULL, NULL, &linker));
    CU_EXPECT(CUDA_ERROR_INVALID_PTX,
              cuLinkAddData_v2(linker, CU_JIT_INPUT_PTX, "no code", 8, "test", 0, NULL, NULL));
    CU(cuLinkAddData_v2(linker, CU_JIT_INPUT_PTX, (void *)(uintptr_t)ptx, sizeof(ptx), "test", 0, NULL, NULL));
    void *code = NULL;
    size_t size = 0;
    CU(cuLinkComplete(linker, &code, &size));
    CHECK(size > 0);
    CU_GET(CUmodule, module, cuModuleLoadData(&module, code));
    CU(cuLinkDestroy(linker)); /* the module has a copy */
    CU_GET(CUfunction, function, cuModuleGetFunction(&function, module, "nothing"));
    CU(cuModuleUnload(module));
}

TEST(loading_a_module_needs_a_context) {
    CUmodule module = NULL;
    CU(cuInit(0));
    CU_EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuModuleLoadData(&module, ptx));
}

#define SIZE ((size_t)4096)

/* Rows of 16 bytes with pitches of 64 and 32. */
TEST(copies_of_rows_leave_the_gaps_unchanged) {
    OPEN_DEVICE(0);
    unsigned char *host = test_allocate(SIZE);
    unsigned char *back = test_allocate(SIZE);
    for (size_t i = 0; i < SIZE; i++) host[i] = (unsigned char)(i * 13 + i / 7);
    OWN_MEMORY(device, SIZE, 5);
    OWN_STREAM(stream, CU_STREAM_NON_BLOCKING);
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED, .srcDevice = ADDRESS(host), .srcPitch = 64,
                          .dstMemoryType = CU_MEMORYTYPE_UNIFIED, .dstDevice = device, .dstPitch = 32,
                          .WidthInBytes = 16, .Height = 60};
    CU(cuMemcpy2DAsync_v2(&rows, stream));
    CU(cuStreamSynchronize(stream));
    CU(cuMemcpyDtoH_v2(back, device, SIZE));
    for (size_t row = 0; row < 60; row++) {
        CHECK_BYTES(back + row * 32, host + row * 64, 16);
        CHECK_FILLED(back + row * 32 + 16, 5, 16);
    }
    rows.dstPitch = 8; /* less than a row */
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy2DAsync_v2(&rows, stream));
    free(host);
    free(back);
}

static CUstreamCaptureStatus status_of(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    CU(cuStreamIsCapturing(stream, &status));
    return status;
}

TEST(a_graph_runs_its_work_when_it_is_launched) {
    OPEN_DEVICE(0);
    OWN_MEMORY(from, SIZE, 1);
    OWN_MEMORY(to, SIZE, 2);
    OWN_STREAM(stream, CU_STREAM_NON_BLOCKING);
    CHECK_EQ(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
    CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_EQ(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CU(cuMemcpyDtoDAsync_v2(to, from, SIZE, stream));
    CU_GET(CUgraph, graph, cuStreamEndCapture(stream, &graph));
    check_device_filled(to, 2, SIZE);
    CU_GET(CUgraphExec, executable, cuGraphInstantiateWithFlags(&executable, graph, 0));
    CU(cuGraphDestroy(graph));
    for (unsigned char value = 3; value < 6; value++) {
        CU(cuMemsetD8_v2(from, value, SIZE));
        CU(cuCtxSynchronize());
        CU(cuGraphLaunch(executable, stream));
        CU(cuStreamSynchronize(stream));
        check_device_filled(to, value, SIZE);
    }
    CU(cuGraphExecDestroy(executable));
}

TEST(the_default_stream_is_not_captured) {
    OPEN_DEVICE(0);
    CU_EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
              cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
}

TEST(a_stream_returns_its_context) {
    const CUcontext context = open_device(0);
    CU_GET(CUstream, stream, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU_GET(CUcontext, owner, cuStreamGetCtx(stream, &owner));
    CHECK(owner == context);
    CU(cuStreamGetCtx(NULL, &owner));
    CHECK(owner == context);
    CU(cuStreamDestroy_v2(stream));
    close_device(0);
}
