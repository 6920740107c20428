// SPDX-License-Identifier: Apache-2.0
// What is handed over: memory that shows whose it is, and how to tell that another process has mapped it.
#pragma once

#include "harness.h"

#define GOODS_SIZE UINT64_C(65536)

/* System memory, filled, and its share. */
typedef struct goods {
    kvmem_region *region;
    kvmem_share *share;
    unsigned char *bytes;
} goods;

void goods_open(goods *goods);
/* The same in a part of an engine's memory file, which the engine has closed. */
void goods_open_in_file(goods *goods);
/* The first, granting importers to read only. */
void goods_make_read_only(goods *goods);
void goods_close(goods *goods);

/* In another process: opens the share and checks every byte. */
kvmem_region *goods_region(const kvmem_share *share);
void goods_check(const kvmem_region *region);
/* In another process: leaves a mark that the exporter can see. */
void goods_mark(const kvmem_region *region);
/* In the exporter: waits for the mark of another process, and takes it away. */
void goods_await_mark(goods *goods);

/* A layout, and a share of it. */
typedef struct many_goods {
    kvmem_layout *layout;
    kvmem_share *share;
    uint64_t num_fds;
    uint64_t size;
} many_goods;

/* Of so many regions: two file descriptors for each. */
void many_goods_open(many_goods *goods, uint64_t regions);
/* Of so many parts of one region that no socket holds the bytes at once. */
void large_goods_make(many_goods *goods);
void many_goods_close(many_goods *goods);
