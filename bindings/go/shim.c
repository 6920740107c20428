/* SPDX-License-Identifier: Apache-2.0 */
#include "shim.h"

/* Go functions of callback.go. */
extern void kvmemGoLog(uint32_t level, char *target, char *message, uintptr_t handle);
extern int32_t kvmemGoProgress(uint64_t done, uint64_t total, uintptr_t handle);
extern void kvmemGoRelease(uintptr_t handle);

static void on_log(uint32_t level, const char *target, const char *message, void *user_data)
{
    kvmemGoLog(level, (char *)target, (char *)message, (uintptr_t)user_data);
}

static int32_t on_progress(uint64_t done, uint64_t total, void *user_data)
{
    return kvmemGoProgress(done, total, (uintptr_t)user_data);
}

static void on_release(void *user_data) { kvmemGoRelease((uintptr_t)user_data); }

kvmem_status kvmem_go_set_log(uint32_t level, uintptr_t handle, kvmem_error **error)
{
    return kvmem_log_set_callback(level, handle ? on_log : NULL, (void *)handle, error);
}

void kvmem_go_set_progress(kvmem_pinned_options *options, uintptr_t handle)
{
    options->progress = on_progress;
    options->user_data = (void *)handle;
}

void kvmem_go_set_release(kvmem_adopt_options *options, uint64_t address, uintptr_t handle)
{
    options->address = (void *)(uintptr_t)address;
    options->release = on_release;
    options->user_data = (void *)handle;
}

void kvmem_go_set_file_release(kvmem_adopt_memfd_options *options, uint64_t address, uintptr_t handle)
{
    options->address = (void *)(uintptr_t)address;
    options->release = on_release;
    options->user_data = (void *)handle;
}
