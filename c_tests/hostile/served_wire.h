// SPDX-License-Identifier: Apache-2.0
// Messages to an owner that serves transfers, as bytes, and an agent of NIXL that sends them. docs/served-transfers.md defines them.
#pragma once

#include "harness.h"

#define SERVED_SLOTS 8

/* A request for blocks in the order of all bytes of a block. */
typedef struct served_open {
    uint64_t session;
    bool writes;
    uint64_t bytes, chunk_size;
    uint64_t first_layer, num_layers, of_heads;
    uint64_t tokens, element_size;
    uint32_t block, token, blocks; /* of each span */
    size_t spans;
} served_open;
/* A possible request for one block of a layout. */
served_open served_open_for(const kvmem_layout_config *config, uint64_t session);

/* The largest message with its prefix, and some bytes more. */
#define SERVED_MAX (300 << 10)
typedef struct served_message {
    unsigned char bytes[SERVED_MAX];
    size_t size;
} served_message;
void served_write_open(served_message *message, const unsigned char service[16], const served_open *request);
void served_write_progress(served_message *message, const unsigned char service[16], uint64_t session, uint64_t chunks);
void served_write_close(served_message *message, const unsigned char service[16], uint64_t session);
/* A request for a lease of blocks, or for another end of it if it has no spans. */
typedef struct served_lease {
    uint64_t session, number, milliseconds;
    bool writes;
    uint32_t block, blocks; /* of each span */
    size_t spans;
} served_lease;
void served_write_lease(served_message *message, const unsigned char service[16], const served_lease *lease);

/* What a descriptor says of the service. */
const unsigned char *served_id(const message *descriptor);
/* The address of its arena, in the process of its owner. */
uint64_t served_arena(const message *descriptor);

/* An agent of NIXL without the library, which knows one peer. */
void raw_agent_open(const char *name, const message *metadata);
/* Sends bytes as a notification. */
void raw_agent_send(const void *bytes, size_t size);
