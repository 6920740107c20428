// SPDX-License-Identifier: Apache-2.0
// Transfers as operations whose driver calls are made to fail: with the error slot, everything given back in
// any case.
#pragma once

#include "contents.h"
#include "cuda_types.h"
#include "harness.h"

/* How a transfer is started. */
typedef enum start { ON_ITS_OWN, ON_A_STREAM } start;

/* What transfers use of the engine's: the stream. */
void moves_open(void);
void moves_close(void);
CUstream moves_stream(void);

/* A transfer and what it must have done. */
typedef struct moving {
    kvmem_transfer *transfer;
    contents contents;
} moving;

/* Between layouts of kv_config: two blocks, all layers. */
extern const kv_move small_move;
contents small_contents(const kvmem_layout *source, const kvmem_layout *destination);

/* Fills both sides first. */
kvmem_status create_moving(const contents *contents, const kvmem_transfer_options *options, moving *made);
/* The same of the small move. */
kvmem_status create_move(const kvmem_layout *source, const kvmem_layout *destination, uint32_t path,
                         uint64_t flags, moving *made);
kvmem_status submit_move(kvmem_transfer *transfer, start start);
/* Once it was submitted: waits, compares all bytes where that is said to be well, and destroys. */
kvmem_status end_move(moving *moving, kvmem_status submitted);
/* Both. */
kvmem_status run_move(moving *moving, start start);
/* All of it. */
kvmem_status move_by(const kvmem_layout *source, const kvmem_layout *destination, uint32_t path, start start);

typedef kvmem_status move_function(const kvmem_layout *source, const kvmem_layout *destination, uint32_t path,
                                   start start);
/* From a GPU to pinned memory, both made for it. */
kvmem_status copy_from_a_device_as(move_function *as, uint32_t path, start start);
kvmem_status copy_from_a_device_by(uint32_t path, start start);
