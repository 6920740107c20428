/* SPDX-License-Identifier: Apache-2.0 */
/* Row 24: durations of single calls of C, in nanoseconds. 24_python.py compiles it, and passes it the functions and objects. */
#include <kvmem.h>
#include <stdint.h>
#include <time.h>

typedef kvmem_status submit_function(kvmem_transfer *, const kvmem_submit_options *, kvmem_error **);
typedef kvmem_status poll_function(const kvmem_transfer *, kvmem_error **);

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

uint64_t time_submit(submit_function *submit, kvmem_transfer *transfer, const kvmem_submit_options *options)
{
    const uint64_t begin = now();
    const kvmem_status status = submit(transfer, options, NULL);
    const uint64_t end = now();
    return status == KVMEM_STATUS_OK ? end - begin : UINT64_MAX;
}

/* A poll is shorter than a look at the clock: many are timed at once. */
uint64_t time_polls(poll_function *poll, const kvmem_transfer *transfer, uint64_t count)
{
    const uint64_t begin = now();
    for (uint64_t i = 0; i < count; i++)
        if (poll(transfer, NULL) != KVMEM_STATUS_OK)
            return UINT64_MAX;
    return now() - begin;
}
