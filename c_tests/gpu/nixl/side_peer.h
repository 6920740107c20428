// SPDX-License-Identifier: Apache-2.0
// A peer process whose layout lies in GPU or pinned memory; past its start it is a kv_peer like any other.
#pragma once

#include "harness.h"
#include "sides.h"

/* What the peer runs: each program that starts one has this line. */
void side_peer_role(int socket);
#define SIDE_PEER_ROLE USES_ROLE(side_peer, side_peer_role)

/* Starts the process; its memory is filled from the seed. */
void side_peer_start(kv_peer *peer, const char *name, place place, int device,
                     const kvmem_layout_config *config, uint32_t seed);
/* The same with a layout that its owner serves by these options; NULL: not. */
void side_peer_start_served(kv_peer *peer, const char *name, place place, int device,
                            const kvmem_layout_config *config, uint32_t seed, const kvmem_serve_options *serve);
