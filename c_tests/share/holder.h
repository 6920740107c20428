// SPDX-License-Identifier: Apache-2.0
// Another process that has memory: its own, which it shares, or what it opened of somebody's share.
#pragma once

#include "blocks.h"
#include "memory.h"
#include "parcel.h"

/* Each program that starts holders has this line. */
#define HOLDER_ROLE USES_ROLE(holder, holder_role)
void holder_role(int socket);

peer holder_start(void);
/* One that has nothing, and may have served other cases: whoever is done with it clears it. */
peer holder_in_common(void);
void holder_clear(const peer *holder);

/* What the process has: its own region or layout, or what it opened. */
typedef enum holding { HOLDING_OWN, HOLDING_OPENED } holding;

/* Has it make a region of MEMORY_SIZE bytes filled from the seed; `path` is the file of MEMORY_NAMED. */
void holder_make(const peer *holder, memory_kind kind, const char *path, uint32_t seed);
/* Has it build a layout of blocks_config, filled as the model of that seed is; with a name, registered with
   an agent of that name. */
void holder_build(const peer *holder, memory_kind kind, size_t layout_kind, blocks_lie lie, const char *agent,
                  uint32_t seed);
/* Has it share that: all of the region, or `size` bytes at `offset` by a view, or the layout. Options NULL
   for all. */
parcel holder_share(const peer *holder, const kvmem_share_options *options);
parcel holder_share_part(const peer *holder, uint64_t offset, uint64_t size);
/* What it answers when it can't be shared so. */
kvmem_status holder_refuse_share(const peer *holder, const kvmem_share_options *options);
/* Has it destroy its shares, or what it shared. */
void holder_end_shares(const peer *holder);
void holder_destroy(const peer *holder);

/* Has it open a region, and answers what came of that. Opened again without being closed, it has it twice. */
kvmem_status holder_open(const peer *holder, const parcel *parcel, uint64_t flags);
/* What it was told when it last failed: free it. */
char *holder_message(const peer *holder);
/* The same with a layout, which it closes again. */
kvmem_status holder_open_layout(const peer *holder, const parcel *parcel);
void holder_close(const peer *holder);

/* The bytes of a region or of a layout there are those of this seed. */
void holder_check(const peer *holder, holding which, uint32_t seed);
void holder_fill(const peer *holder, holding which, uint32_t seed);
/* Every block of its layout is as the model expects. */
void holder_check_model(const peer *holder, const kv_side *model);
kvmem_region_info holder_info(const peer *holder, holding which);
kvmem_region_holders holder_holders(const peer *holder, holding which);
kvmem_status holder_check_owner(const peer *holder);
/* Of its elastic region, and of its layout there. */
kvmem_status holder_commit(const peer *holder, uint64_t offset, uint64_t size);
kvmem_status holder_decommit(const peer *holder, uint64_t offset, uint64_t size);
kvmem_status holder_resize(const peer *holder, uint64_t num_blocks);
/* Has it make a child that does nothing until the test closes its end of the socket: by fork, or by clone
   alone as programs do that go around the C library. */
void holder_fork(const peer *holder, bool by_clone);
/* Bytes free on device 0, as that process is told. */
uint64_t holder_free_memory(const peer *holder);
