// SPDX-License-Identifier: Apache-2.0
// Transfers as operations whose driver calls fail on demand. Failures set the error slot, and release
// everything.
#pragma once

#include "contents.h"
#include "cuda_types.h"
#include "harness.h"

/* How a transfer is submitted. */
typedef enum start { WITHOUT_STREAM, ON_A_STREAM } start;

/* Creates and destroys the engine's stream. */
void moves_open(void);
void moves_close(void);
CUstream moves_stream(void);

/* A transfer and its expected result. */
typedef struct moving {
    kvmem_transfer *transfer;
    contents contents;
} moving;

/* Between layouts of kv_config: two blocks, all layers. */
extern const kv_move small_move;
contents small_contents(const kvmem_layout *source, const kvmem_layout *destination);

/* Fills both sides, and creates the transfer. */
kvmem_status create_moving(const contents *contents, const kv_job *options, moving *made);
/* The same for the small move. */
kvmem_status create_move(const kvmem_layout *source, const kvmem_layout *destination, uint32_t path,
                         uint64_t flags, moving *made);
kvmem_status submit_move(kvmem_transfer *transfer, start start);
/* Waits if it was submitted, compares all bytes if it succeeded, and destroys the transfer. */
kvmem_status end_move(moving *moving, kvmem_status submitted);
/* Submits and ends. */
kvmem_status run_move(moving *moving, start start);
/* Creates, submits and ends. */
kvmem_status move_by(const kvmem_layout *source, const kvmem_layout *destination, uint32_t path, start start);

typedef kvmem_status move_function(const kvmem_layout *source, const kvmem_layout *destination, uint32_t path,
                                   start start);
/* From a GPU to pinned memory, with new layouts. */
kvmem_status copy_from_a_device_as(move_function *as, uint32_t path, start start);
kvmem_status copy_from_a_device_by(uint32_t path, start start);
