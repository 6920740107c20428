// SPDX-License-Identifier: Apache-2.0
// NIXL agents to test with, and a peer process that owns a layout and does what it is told.
#pragma once

#include "kv.h"
#include "peer.h"

#include <kvmem.h>
#include <kvmem_nixl.h>
#include <stdatomic.h>
#include <stdbool.h>

/* An agent with default options and a UCX backend. NIXL must be there: without it the case fails. */
kvmem_agent *agent_open(const char *name);
/* Its metadata, as bytes of the test's own. */
message agent_metadata(kvmem_agent *agent);
message layout_descriptor(const kvmem_layout *layout);
/* A list of one descriptor; and of memory. */
kvmem_descriptors *descriptors_of(uint32_t memory_type, kvmem_descriptor one);
kvmem_descriptors *descriptors_of_memory(const void *address, uint64_t size);
void agent_load(kvmem_agent *agent, const message *metadata);
/* Waits for the next notification and checks who sent it and every byte of it. */
void agent_expect_notification(kvmem_agent *agent, const char *from, const void *data, size_t size);

/* A process with an agent and one registered layout, seen from this side. */
typedef struct kv_peer {
    peer process;
    char name[32];
    message metadata;
    message descriptor;
    kv_side model; /* its bytes as they must be; model.layout is the imported layout */
} kv_peer;

/* What the peer runs: each program that starts one has this line. */
void kv_peer_role(int socket);
#define KV_PEER_ROLE USES_ROLE(kv_peer, kv_peer_role)

/* Starts the process; its memory is filled from the seed. */
void kv_peer_open(kv_peer *peer, const char *name, const kvmem_layout_config *config, uint32_t seed);
/* The same with a layout that its owner serves by these options; NULL: not. */
void kv_peer_open_served(kv_peer *peer, const char *name, const kvmem_layout_config *config, uint32_t seed,
                         const kvmem_serve_options *serve);
/* Exchanges metadata with `agent` and imports the peer's layout there. */
void kv_peer_meet(kv_peer *peer, kvmem_agent *agent);
/* Fetches every byte of the peer's memory and compares it with the model. */
void kv_peer_check(kv_peer *peer);
/* The peer waits for a notification, which must be this one. */
void kv_peer_expect_notification(kv_peer *peer, const char *from, const void *data, size_t size);
/* The peer sends one. */
void kv_peer_notify(kv_peer *peer, const char *to, const void *data, size_t size);
/* The peer forgets what it knows of an agent. */
void kv_peer_invalidate(kv_peer *peer, const char *name);
/* Kills the process, as a crash would. */
void kv_peer_crash(kv_peer *peer);
/* A transfer that a thread runs again and again, until it fails or shall stop. */
typedef struct repeated {
    kvmem_transfer *transfer;
    uint64_t patience; /* of each wait */
    atomic_bool stops;
    atomic_uint rounds;
    atomic_bool is_over;
    kvmem_status last; /* read after the join */
} repeated;
void *repeat_transfer(void *repeated);
/* Kills it while two transfers run again and again, after each has run that often: both end as KVMEM_STATUS_PEER_LOST in
   this time. Destroys them. */
void kv_peer_crash_under(kv_peer *peer, kvmem_transfer *const transfers[2], unsigned rounds, uint64_t time);
/* Ends the process in good order, unless it was killed, and frees this side's view of it. */
void kv_peer_close(kv_peer *peer);
/* Calls `check` for each kind of layout of a peer, which the agent has met, and each kind of side here. */
void kv_peer_each_kind(void (*check)(kv_side *local, kv_peer *peer));

/* An agent with a layout of its own, and a peer that it knows: what most cases begin with. */
typedef struct kv_meeting {
    kvmem_agent *agent;
    kv_side side;
    kv_peer peer;
} kv_meeting;
void kv_meeting_open(kv_meeting *met, const char *name, const char *peer_name,
                     const kvmem_layout_config *here,
                     const kvmem_layout_config *there);
void kv_meeting_open_served(kv_meeting *met, const char *name, const char *peer_name,
                            const kvmem_layout_config *here, const kvmem_layout_config *there,
                            const kvmem_serve_options *serve);
void kv_meeting_close(kv_meeting *met);
/* An agent of this process knows another, as if each had a process of its own. */
void agents_introduce(kvmem_agent *agent, kvmem_agent *other);
