// SPDX-License-Identifier: Apache-2.0
// A peer that has memory: its own, which it shares, or a share that it has opened.
#pragma once

#include "blocks.h"
#include "memory.h"
#include "parcel.h"

/* Each program that starts holders has this line. */
#define HOLDER_ROLE USES_ROLE(holder, holder_role)
void holder_role(int socket);

peer holder_start(void);
/* A holder without memory, which may have served earlier cases. Its user calls holder_clear at the end. */
peer holder_shared(void);
void holder_clear(const peer *holder);

/* Which memory of the process: its own region or layout, or the one it opened. */
typedef enum holding { HOLDING_OWN, HOLDING_OPENED } holding;

/* Creates a region of MEMORY_SIZE bytes filled from the seed; `path` is the file of MEMORY_NAMED. */
void holder_make(const peer *holder, memory_kind kind, const char *path, uint32_t seed);
/* Builds a layout of blocks_config, filled like the model of that seed; with a name, registered with an agent
   of that name. */
void holder_build(const peer *holder, memory_kind kind, size_t layout_kind, blocks_placement placement,
                  const char *agent, uint32_t seed);
/* Shares all of the region, or `size` bytes at `offset` through a view, or the layout. Options NULL: all
   rights. */
parcel holder_share(const peer *holder, const kvmem_share_options *options);
parcel holder_share_part(const peer *holder, uint64_t offset, uint64_t size);
/* Returns the status of a share that must fail. */
kvmem_status holder_refuse_share(const peer *holder, const kvmem_share_options *options);
/* Destroys its shares, or its region or layout. */
void holder_end_shares(const peer *holder);
void holder_destroy(const peer *holder);

/* Opens a region, and returns the status. Each call opens it once more. */
kvmem_status holder_open(const peer *holder, const parcel *parcel, uint64_t flags);
/* The message of its last failure. The caller frees it. */
char *holder_message(const peer *holder);
/* Opens a layout, and closes it again. */
kvmem_status holder_open_layout(const peer *holder, const parcel *parcel);
void holder_close(const peer *holder);

/* Checks the bytes of its region or layout against this seed. */
void holder_check(const peer *holder, holding which, uint32_t seed);
void holder_fill(const peer *holder, holding which, uint32_t seed);
/* Checks every block of its layout against the model. */
void holder_check_model(const peer *holder, const kv_side *model);
kvmem_region_info holder_info(const peer *holder, holding which);
kvmem_region_holders holder_holders(const peer *holder, holding which);
kvmem_status holder_check_owner(const peer *holder);
/* On its elastic region, and on its layout. */
kvmem_status holder_commit(const peer *holder, uint64_t offset, uint64_t size);
kvmem_status holder_decommit(const peer *holder, uint64_t offset, uint64_t size);
kvmem_status holder_resize(const peer *holder, uint64_t num_blocks);
/* Creates a child that does nothing until the test closes its end of the socket: by fork, or by a plain clone
   call without the C library's handlers. */
void holder_fork(const peer *holder, bool by_clone);
/* Free bytes of device 0 as that process sees them. */
uint64_t holder_free_memory(const peer *holder);
