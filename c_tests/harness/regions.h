// SPDX-License-Identifier: Apache-2.0
// Regions in one call, and a release callback that can be waited for.
#pragma once

#include "infos.h"

#include <kvmem.h>
#include <stddef.h>

/* Memory of the test as a region, without a release callback. */
kvmem_region *region_adopt(void *address, uint64_t size);
/* The same with note_release. */
kvmem_region *region_adopt_noting_release(void *address, uint64_t size);

kvmem_region *region_create_system(uint64_t size, uint64_t flags);
kvmem_region *region_create_disk(const kvmem_disk_options *options);
kvmem_region *region_create_temporary_file(uint64_t size);
/* Requests one huge page of 2 MiB more than are free: the region has ordinary pages, which is logged. */
kvmem_region *region_create_with_fallback(void);

/* Elastic memory of the first GPU, of which the first `committed` bytes are committed. */
kvmem_region *region_create_elastic(uint64_t size, uint64_t extent_size, uint64_t committed);
/* On the first GPU: allocated by the library, and adopted from the test; the callback may be NULL. */
kvmem_region *region_create_on_gpu(uint64_t size);
kvmem_region *region_adopt_on_gpu(uint64_t address, uint64_t size, kvmem_release_callback release);

/* A layout over regions; with an agent, registered with it. */
kvmem_layout *regions_lay_out(const kvmem_layout_config *config, kvmem_region *const *regions, size_t count,
                              kvmem_agent *agent);
/* A layout in system memory that the library allocates. */
kvmem_layout *layout_allocate_system(const kvmem_layout_config *config);
/* A layout of one block of one byte over the region. */
kvmem_layout *region_lay_out(kvmem_region *region);

/* A release callback that increments an int of the caller. */
void count_release(void *count);
/* Checks the count, once all pending callbacks have returned. */
void expect_releases(const int *count, int expected);
/* A release callback that counts for the whole process. */
void note_release(void *user_data);
/* Returns that count, once all pending callbacks have returned. */
int releases_count(void);
/* Waits until the count is reached. Only the deadline of the process limits the wait. */
void await_releases(int count);
/* Waits until every pending release callback has returned. They are called in order, on one thread. */
void finish_releases(void);
