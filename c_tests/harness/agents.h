// SPDX-License-Identifier: Apache-2.0
// NIXL agents, and a peer process that owns a layout and serves requests of the test.
#pragma once

#include "kv.h"
#include "peer.h"

#include <kvmem.h>
#include <kvmem/nixl_raw.h>
#include <stdatomic.h>
#include <stdbool.h>

/* An agent with default options and a UCX backend. The case fails without NIXL. */
kvmem_agent *agent_open(const char *name);
/* Its metadata, copied. */
message agent_metadata(kvmem_agent *agent);
message layout_descriptor(const kvmem_layout *layout);
/* The layout of another agent of this process, imported. */
kvmem_layout *layout_import(kvmem_agent *agent, const kvmem_layout *exported);
/* A list of one descriptor; a list of one range of memory. */
/* Host memory as a raw descriptor. */
kvmem_nixl_descriptor memory_at(const void *address, uint64_t size);
/* The descriptor of a region that has one. */
kvmem_nixl_descriptor region_descriptor(const kvmem_region *region);
void agent_load(kvmem_agent *agent, const message *metadata);
/* Waits for the next notification, and checks its sender and every byte. */
void agent_expect_notification(kvmem_agent *agent, const char *from, const void *data, size_t size);

/* A process with an agent and one registered layout, as this process sees it. */
typedef struct kv_peer {
    peer process;
    char name[32];
    message metadata;
    message descriptor;
    kv_side model; /* the expected bytes; model.layout is the imported layout */
} kv_peer;

/* The peer's side. Each program that starts a peer has this line. */
void kv_peer_role(int socket);
#define KV_PEER_ROLE USES_ROLE(kv_peer, kv_peer_role)

/* Starts the process. Its memory is filled from the seed. */
void kv_peer_open(kv_peer *peer, const char *name, const kvmem_layout_config *config, uint32_t seed);
/* The same with a layout that its owner serves by these options; NULL: not served. */
void kv_peer_open_served(kv_peer *peer, const char *name, const kvmem_layout_config *config, uint32_t seed,
                         const kvmem_serve_options *serve);
/* Exchanges metadata with `agent`, and imports the peer's layout there. */
void kv_peer_meet(kv_peer *peer, kvmem_agent *agent);
/* Reads every byte of the peer's memory, and compares it with the model. */
void kv_peer_check(kv_peer *peer);
/* The peer waits for a notification, which must be this one. */
void kv_peer_expect_notification(kv_peer *peer, const char *from, const void *data, size_t size);
/* The peer sends a notification. */
void kv_peer_notify(kv_peer *peer, const char *to, const void *data, size_t size);
/* The peer invalidates the metadata of an agent. */
void kv_peer_invalidate(kv_peer *peer, const char *name);
/* Kills the process, as a crash would. */
void kv_peer_crash(kv_peer *peer);
/* A transfer that a thread repeats until a run fails, or until `stops` is set. */
typedef struct repeated {
    kvmem_transfer *transfer;
    uint64_t patience; /* timeout of each wait */
    atomic_bool stops;
    atomic_uint rounds;
    atomic_bool is_over;
    kvmem_status last; /* read after the thread was joined */
} repeated;
void *repeat_transfer(void *repeated);
/* Kills the peer while two transfers are repeated, after `rounds` runs of each. Both must end with
   KVMEM_STATUS_PEER_LOST within `time`. Destroys the transfers. */
void kv_peer_crash_under(kv_peer *peer, kvmem_transfer *const transfers[2], unsigned rounds, uint64_t time);
/* Ends the process normally, unless it was killed, and frees the handles for it. */
void kv_peer_close(kv_peer *peer);
/* Calls `check` for each kind of layout of a peer, whose metadata the agent has, and each kind of side
   here. */
void kv_peer_each_kind(void (*check)(kv_side *local, kv_peer *peer));

/* An agent with a layout, and a peer that it has exchanged metadata with. Most cases start with one. */
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
/* Loads the metadata of one agent of this process into another, as between two processes. */
void agents_introduce(kvmem_agent *agent, kvmem_agent *other);
