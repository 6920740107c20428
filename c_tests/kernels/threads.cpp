// SPDX-License-Identifier: Apache-2.0
#include "threads.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <ucontext.h>

// Last: it defines names that the headers of the system use.
#include "cuda_as_cpp.h"

index3 threadIdx, blockIdx, gridDim;

namespace {

constexpr unsigned warp = 32;
constexpr size_t stack_size = 64 << 10;

// A thread: its stack, and the barrier that it waits at.
struct fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack{new char[stack_size]};
    bool has_ended = false;
    bool waits = false;
    unsigned barrier = 0;
};

struct barrier {
    unsigned expected = 0, arrived = 0;
};

fiber fibers[KVMEM_COPY_THREADS];
barrier barriers[KVMEM_COPY_THREADS / warp];
ucontext_t scheduler;
kernel running;
const kvmem_copy *parameter;

void enter()
{
    running(*parameter);
    fibers[threadIdx.x].has_ended = true;
}

void begin(fiber &thread)
{
    thread.has_ended = thread.waits = false;
    getcontext(&thread.context);
    thread.context.uc_stack = {};
    thread.context.uc_stack.ss_sp = thread.stack.get();
    thread.context.uc_stack.ss_size = stack_size;
    thread.context.uc_link = &scheduler;
    makecontext(&thread.context, enter, 0);
}

// Lets the threads continue that wait at a barrier where all have arrived.
void release(unsigned number)
{
    barriers[number] = {};
    for (fiber &thread : fibers)
        if (thread.waits && thread.barrier == number)
            thread.waits = false;
}

void run_cta()
{
    for (fiber &thread : fibers)
        begin(thread);
    for (bool progresses = true; progresses;) {
        progresses = false;
        for (unsigned index = 0; index < KVMEM_COPY_THREADS; ++index) {
            if (fibers[index].has_ended || fibers[index].waits)
                continue;
            threadIdx.x = index;
            swapcontext(&scheduler, &fibers[index].context);
            progresses = true;
        }
    }
    for (const fiber &thread : fibers)
        if (!thread.has_ended) {
            std::printf("FAILED  threads wait at barrier %u for others that have ended\n", thread.barrier);
            std::exit(EXIT_FAILURE);
        }
}

} // namespace

void __barrier_sync_count(unsigned number, unsigned threads)
{
    fiber &own = fibers[threadIdx.x];
    barrier &at = barriers[number];
    if (at.expected != 0 && at.expected != threads) {
        std::printf("FAILED  barrier %u is for %u and for %u threads\n", number, at.expected, threads);
        std::exit(EXIT_FAILURE);
    }
    at.expected = threads;
    own.waits = true;
    own.barrier = number;
    if (++at.arrived == threads)
        release(number);
    swapcontext(&own.context, &scheduler);
}

void launch(kernel run, unsigned ctas, const kvmem_copy &asked)
{
    running = run;
    parameter = &asked;
    gridDim.x = ctas;
    for (blockIdx.x = 0; blockIdx.x < ctas; ++blockIdx.x)
        run_cta();
}
