// SPDX-License-Identifier: Apache-2.0
// A peer process whose layout lies in GPU or pinned memory; past its start it is a kv_peer like any other.
#ifndef KVMEM_TEST_GPU_SIDE_PEER_H
#define KVMEM_TEST_GPU_SIDE_PEER_H

#include "agents.h"
#include "sides.h"

/* What the peer runs: a table of roles needs this entry. */
void side_peer_role(int socket);
#define SIDE_PEER_ROLE {"side_peer", side_peer_role}

/* Starts the process; its memory is filled from the seed. */
void side_peer_start(kv_peer *peer, const char *name, place place, int device,
                     const kvmem_layout_config *config, uint32_t seed);

#endif
