// SPDX-License-Identifier: Apache-2.0
#include "busy.h"

#include "cuda_sim.h"
#include "engine.h"
#include "patience.h"

#include <pthread.h>
#include <time.h>

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

struct busy_guard {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    volatile uint32_t *words;
    bool is_over, has_ended_it;
};

static void let_end(volatile uint32_t *words) {
    if (driver_is_stand_in()) control("sim_go");
    words[0] = 1;
}

static void *guard_run(void *argument) {
    busy_guard *guard = argument;
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += PATIENCE / SECONDS(1);
    pthread_mutex_lock(&guard->lock);
    while (!guard->is_over && !guard->has_ended_it)
        guard->has_ended_it = pthread_cond_timedwait(&guard->changed, &guard->lock, &end) != 0;
    pthread_mutex_unlock(&guard->lock);
    if (guard->has_ended_it) let_end(guard->words);
    return NULL;
}

static busy_guard *guard_start(volatile uint32_t *words) {
    busy_guard *guard = calloc(1, sizeof(*guard));
    CHECK(guard != NULL);
    guard->words = words;
    pthread_condattr_t attributes;
    CHECK_EQ(pthread_condattr_init(&attributes), 0);
    CHECK_EQ(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC), 0);
    CHECK_EQ(pthread_cond_init(&guard->changed, &attributes), 0);
    CHECK_EQ(pthread_mutex_init(&guard->lock, NULL), 0);
    CHECK_EQ(pthread_create(&guard->thread, NULL, guard_run, guard), 0);
    return guard;
}

/* Returns whether it has ended the kernel. */
static bool guard_end(busy_guard *guard) {
    pthread_mutex_lock(&guard->lock);
    guard->is_over = true;
    pthread_cond_signal(&guard->changed);
    pthread_mutex_unlock(&guard->lock);
    CHECK_EQ(pthread_join(guard->thread, NULL), 0);
    const bool has_ended_it = guard->has_ended_it;
    free(guard);
    return has_ended_it;
}

void busy_begin(busy *busy, unsigned ctas) {
    stream_open(&busy->stream, 0);
    busy->words = engine_allocate_host(0, 4096);
    busy->words[0] = busy->words[1] = 0;
    busy->guard = guard_start(busy->words);
    enter_device(0);
    if (driver_is_stand_in()) {
        control("sim_hold");
        CU(cuMemsetD8Async((uint64_t)(uintptr_t)busy->words, 1, 4, busy->stream.handle));
    } else {
        CU(cuModuleLoadData(&busy->module, kernel));
        CU_GET(CUfunction, function, cuModuleGetFunction(&function, busy->module, "wait_for_host"));
        uint64_t address = (uint64_t)(uintptr_t)busy->words;
        void *parameters[] = {&address};
        CU(cuLaunchKernel(function, ctas, 1, 1, ctas == BUSY_ONE ? 32 : 1024, 1, 1, 0, busy->stream.handle,
                          parameters, NULL));
        const uint64_t end = patience_end();
        while (busy->words[1] == 0) patience_wait(end, "the kernel of the engine to run");
    }
    leave_device(0);
}

void busy_end(busy *busy) {
    const bool was_ended = guard_end(busy->guard);
    let_end(busy->words);
    stream_await(&busy->stream);
    if (busy->module != NULL) CU_ON(0, cuModuleUnload(busy->module));
    engine_free_host(0, (void *)(uintptr_t)busy->words);
    stream_close(&busy->stream);
    memset(busy, 0, sizeof(*busy));
    if (was_ended) FAIL("a call waited for the kernel of the engine, which was ended therefore");
}
