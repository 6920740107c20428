// SPDX-License-Identifier: Apache-2.0
// Transfers through an arena, of this side (staged) or of the owner (served): layouts of scattered pieces,
// and the common cases.
#pragma once

#include "harness.h"

#define SMALL_ARENA (8 * 4096)

/* Most blocks, in reverse order: 3000 pieces of 512 bytes. */
extern const kv_move all_layers;
/* Values alone, which are contiguous on neither side. */
extern const kv_outers values;

/* An agent "near" with a layout, and a peer with another one that it serves by these options; NULL: not
   served. */
void arena_open(kv_meeting *fixture, const kv_kind *here, const kv_kind *there, const char *peer,
                const kvmem_serve_options *serve);
kvmem_layout_config arena_config(const kv_kind *kind);

/* Reads every byte of all layers from the peer, or writes it back. The methods are those of the infos. */
kvmem_transfer_info arena_read(kv_meeting *fixture, const kv_job *options);
kvmem_transfer_info arena_write(kv_meeting *fixture, const kv_job *options);
/* Reads after a run that has ended at a limit, and may use the blocks for a while. */
void arena_read_when_free(kv_meeting *fixture, const kv_job *options);

/* The cases. They read with options that select all layers. */
/* Values alone, by this method, from the peer and back. The explanation of the read contains these parts, up
   to NULL. */
void arena_check_values(kv_meeting *fixture, uint32_t method, const char *const *parts);
void arena_check_layers(kv_meeting *fixture, kv_job options);
void arena_check_many(kv_meeting *fixture, size_t count, const kv_job *options);
void arena_check_cancelled(kv_meeting *fixture, const kv_job *options);
void arena_check_stale(kv_meeting *fixture, const kv_job *options);
/* The peer is killed during a read and a write, after `rounds` runs of each. */
void arena_check_killed(kv_meeting *fixture, unsigned rounds, const kv_job *read,
                        const kv_job *write);
/* The peer is stopped: a read and a write with these options end at their deadline. They run again once it
   continues. */
void arena_check_deadline(kv_meeting *fixture, const kv_job *read,
                          const kv_job *write);
