// SPDX-License-Identifier: Apache-2.0
// Regions in one line, and a release callback that can be waited for.
#pragma once

#include "infos.h"

#include <kvmem.h>
#include <stddef.h>

/* Memory of the test's as a region, without a release callback. */
kvmem_region *region_adopt(void *address, uint64_t size);
/* The same with note_release. */
kvmem_region *region_adopt_noting_release(void *address, uint64_t size);

kvmem_region *region_create_system(uint64_t size, uint64_t flags);
kvmem_region *region_create_disk(const kvmem_disk_options *options);
kvmem_region *region_create_temporary_file(uint64_t size);
/* Asks for one huge page of 2 MiB more than are ready: the region has ordinary pages, which is logged. */
kvmem_region *region_create_with_fallback(void);

/* Elastic memory of the first GPU, of which the first `committed` bytes are there. */
kvmem_region *region_create_elastic(uint64_t size, uint64_t extent_size, uint64_t committed);
/* Of the first GPU: memory of the library's, and of the test's; the callback may be NULL. */
kvmem_region *region_create_on_gpu(uint64_t size);
kvmem_region *region_adopt_on_gpu(uint64_t address, uint64_t size, kvmem_release_callback release);

/* A layout over regions; with an agent, which they are registered with. */
kvmem_layout *regions_lay_out(const kvmem_layout_config *config, kvmem_region *const *regions, size_t count,
                              kvmem_agent *agent);
/* A layout in system memory that the library allocates. */
kvmem_layout *layout_allocate_system(const kvmem_layout_config *config);
/* One block of one byte, over the region. */
kvmem_layout *region_lay_out(kvmem_region *region);

/* A release callback that counts its calls, in an int of the caller's. */
void count_release(void *count);
/* The count, once the callbacks that are due have returned. */
void expect_releases(const int *count, int expected);
/* One that counts for all of the process. */
void note_release(void *user_data);
/* The count, once the callbacks that are due have returned. */
int releases_so_far(void);
/* Waits until there were so many. The process's deadline bounds the wait. */
void await_releases(int count);
/* Waits until every release callback that is due has returned. They are called in order, on one thread. */
void finish_releases(void);
