// SPDX-License-Identifier: Apache-2.0
// A move that an engine captures in a graph and launches several times.
#pragma once

#include "moves.h"

/* Compares all bytes after each launch. `start` is ignored. */
kvmem_status move_by_graph(const kvmem_layout *source, const kvmem_layout *destination, uint32_t path,
                           start start);
