/* SPDX-License-Identifier: Apache-2.0 */
/* What cgo cannot express: C callbacks that call Go, and addresses that are numbers. */
#ifndef KVMEM_GO_SHIM_H
#define KVMEM_GO_SHIM_H

#include <kvmem.h>
#include <kvmem/cuda.h>
#include <kvmem/directory.h>
#include <kvmem/nixl_raw.h>
#include <kvmem/statistics.h>
#include <kvmem/store.h>
#include <stdlib.h>
#include <string.h>

/* Handles are those of runtime/cgo: numbers, which Go never uses as pointers. */
kvmem_status kvmem_go_set_log(uint32_t level, uintptr_t handle, kvmem_error **error);
void kvmem_go_set_progress(kvmem_pinned_options *options, uintptr_t handle);
void kvmem_go_set_release(kvmem_adopt_options *options, uint64_t address, uintptr_t handle);
void kvmem_go_set_file_release(kvmem_adopt_memfd_options *options, uint64_t address, uintptr_t handle);

static inline void *kvmem_go_pointer(uint64_t address) { return (void *)(uintptr_t)address; }

#endif
