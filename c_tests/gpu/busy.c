// SPDX-License-Identifier: Apache-2.0
#include "busy.h"

#include "cuda_sim.h"
#include "engine.h"
#include "patience.h"

static const char kernel[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                             ".visible .entry wait_for_host(.param .u64 words) {\n"
                             ".reg .u64 %a; .reg .u32 %v; .reg .pred %p;\n"
                             "ld.param.u64 %a, [words];\n"
                             "mov.u32 %v, 1;\n"
                             "st.volatile.global.u32 [%a+4], %v;\n"
                             "again: ld.volatile.global.u32 %v, [%a];\n"
                             "setp.eq.u32 %p, %v, 0;\n@%p bra again;\nret;\n}\n";

static void control(const char *function) {
    void (*call)(void);
    void *symbol = driver_symbol(function);
    memcpy(&call, &symbol, sizeof(call));
    call();
}

void busy_begin(busy *busy, unsigned ctas) {
    stream_open(&busy->stream, 0);
    busy->words = engine_allocate_host(0, 4096);
    busy->words[0] = busy->words[1] = 0;
    enter_device(0);
    if (driver_is_stand_in()) {
        control("sim_hold");
        CU(cuMemsetD8Async((uint64_t)(uintptr_t)busy->words, 1, 4, busy->stream.handle));
    } else {
        CU(cuModuleLoadData(&busy->module, kernel));
        CU_GET(CUfunction, function, cuModuleGetFunction(&function, busy->module, "wait_for_host"));
        uint64_t address = (uint64_t)(uintptr_t)busy->words;
        void *parameters[] = {&address};
        CU(cuLaunchKernel(function, ctas, 1, 1, ctas == BUSY_ONE ? 32 : 1024, 1, 1, 0, busy->stream.handle, parameters, NULL));
        const uint64_t end = patience_end();
        while (busy->words[1] == 0) patience_wait(end, "the kernel of the engine to run");
    }
    leave_device(0);
}

void busy_end(busy *busy) {
    if (driver_is_stand_in()) control("sim_go");
    busy->words[0] = 1;
    stream_await(&busy->stream);
    if (busy->module != NULL) CU_ON(0, cuModuleUnload(busy->module));
    engine_free_host(0, (void *)(uintptr_t)busy->words);
    stream_close(&busy->stream);
    memset(busy, 0, sizeof(*busy));
}
