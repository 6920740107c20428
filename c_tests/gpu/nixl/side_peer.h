// SPDX-License-Identifier: Apache-2.0
// A peer process with a layout in GPU or pinned memory. After its start it is a kv_peer.
#pragma once

#include "harness.h"
#include "sides.h"

/* The role of the peer process. Each program that starts one needs SIDE_PEER_ROLE. */
void side_peer_role(int socket);
#define SIDE_PEER_ROLE USES_ROLE(side_peer, side_peer_role)

/* Starts the process; its memory is filled from the seed. */
void side_peer_start(kv_peer *peer, const char *name, place place, int device,
                     const kvmem_layout_config *config, uint32_t seed);
/* The same; the peer serves the layout with these options, unless they are NULL. */
void side_peer_start_served(kv_peer *peer, const char *name, place place, int device,
                            const kvmem_layout_config *config, uint32_t seed, const kvmem_serve_options *serve);
