// SPDX-License-Identifier: Apache-2.0
// Memory to share, filled with known bytes. An importer marks it, so the exporter sees that it is mapped.
#pragma once

#include "harness.h"

#define SAMPLE_SIZE UINT64_C(65536)

/* Filled system memory, and its share. */
typedef struct sample {
    kvmem_region *region;
    kvmem_share *share;
    unsigned char *bytes;
} sample;

void sample_open(sample *sample);
/* The same in a part of an engine's memory file, whose descriptor the engine has closed. */
void sample_open_in_file(sample *sample);
/* The same as sample_open, but read-only for importers. */
void sample_make_read_only(sample *sample);
void sample_close(sample *sample);

/* In another process: opens the share and checks every byte. */
kvmem_region *sample_import(const kvmem_share *share);
void sample_check(const kvmem_region *region);
/* In another process: sets the mark. */
void sample_mark(const kvmem_region *region);
/* In the exporter: waits until another process has set the mark, and clears it. */
void sample_await_mark(sample *sample);

/* A layout, and its share. */
typedef struct large_share {
    kvmem_layout *layout;
    kvmem_share *share;
    uint64_t num_fds;
    uint64_t size;
} large_share;

/* Over this number of regions, with two file descriptors each. */
void large_share_open(large_share *sample, uint64_t regions);
/* Of one region with so many parts that the bytes of the share exceed a socket's buffer. */
void large_share_open_parts(large_share *sample);
void large_share_close(large_share *sample);
