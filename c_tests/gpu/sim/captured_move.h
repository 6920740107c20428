// SPDX-License-Identifier: Apache-2.0
// A move that an engine captures into a graph and launches, more than once.
#ifndef KVMEM_TEST_GPU_SIM_CAPTURED_MOVE_H
#define KVMEM_TEST_GPU_SIM_CAPTURED_MOVE_H

#include "moves.h"

/* Compares all bytes after each launch. `start` says nothing here. */
kvmem_status move_by_graph(const kvmem_layout *source, const kvmem_layout *destination, uint32_t path, start start);

#endif
