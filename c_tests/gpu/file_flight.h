// SPDX-License-Identifier: Apache-2.0
// A GPU's memory and a file, both known to an agent, and transfers between the two.
#pragma once

#include "harness.h"
#include "sides.h"

typedef struct file_flight {
    const kv_move *move;
    kvmem_agent *agent; /* knows both sides; NULL for none */
    scratch directory;
    side device;
    file_side file;
} file_flight;

/* The agent is the flight's from here on. `flags` are the file's. */
void file_flight_open(file_flight *flight, const kv_move *move, kvmem_agent *agent, place place,
                      const kvmem_layout_config *config, uint64_t flags);
void file_flight_close(file_flight *flight);
/* The path by which NIXL goes that way. */
uint32_t file_flight_nixl_path(bool to_file);
/* Creates a transfer with KVMEM_TRANSFER_* flags. */
kvmem_status file_flight_create(const file_flight *flight, bool to_file, uint32_t path, uint64_t flags,
                                kvmem_transfer **transfer);
/* Runs it twice, looks at every byte of both sides each time, and destroys it. */
void file_flight_run(file_flight *flight, bool to_file, kvmem_transfer *transfer);
