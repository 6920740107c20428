// SPDX-License-Identifier: Apache-2.0
// The agent helpers, and the test's side of a peer process.
#include "agents.h"

#include "harness.h"
#include "kv_peer_wire.h"

kvmem_agent *agent_open(const char *name) {
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    GET(kvmem_agent *, agent, kvmem_agent_create, name, NULL);
    EXPECT_OK(kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
    return agent;
}

static message take_blob(kvmem_blob *blob) {
    const size_t size = kvmem_blob_size(blob);
    message bytes = {test_allocate(size), size};
    memcpy(bytes.data, kvmem_blob_data(blob), size);
    kvmem_blob_destroy(blob);
    return bytes;
}

message agent_metadata(kvmem_agent *agent) {
    GET(kvmem_blob *, blob, kvmem_agent_get_local_metadata, agent);
    return take_blob(blob);
}

message layout_descriptor(const kvmem_layout *layout) {
    GET(kvmem_blob *, blob, kvmem_layout_export, layout);
    return take_blob(blob);
}

kvmem_layout *layout_import(kvmem_agent *agent, const kvmem_layout *exported) {
    CLEANUP(message_free) message descriptor = layout_descriptor(exported);
    return MADE(kvmem_layout, kvmem_layout_import, agent, descriptor.data, descriptor.size);
}

kvmem_nixl_descriptor memory_at(const void *address, uint64_t size) {
    return (kvmem_nixl_descriptor){.address = (uintptr_t)address, .size = size,
                                   .memory_type = KVMEM_MEMORY_DRAM};
}

kvmem_nixl_descriptor region_descriptor(const kvmem_region *region) {
    kvmem_nixl_descriptor one;
    size_t count;
    EXPECT_OK(kvmem_region_get_descriptors(region, &one, 1, &count, ERR));
    CHECK_EQ(count, 1);
    return one;
}

void agent_load(kvmem_agent *agent, const message *metadata) {
    EXPECT_OK(kvmem_agent_load_remote_metadata(agent, metadata->data, metadata->size, NULL, ERR));
}

void agent_expect_notification(kvmem_agent *agent, const char *from, const void *data, size_t size) {
    OWN(kvmem_notifications, taken, kvmem_agent_take_notifications, agent, PATIENCE);
    CHECK_EQ(taken->count, 1);
    const kvmem_notification notification = taken->items[0];
    CHECK_STR(notification.agent, from);
    CHECK_EQ(notification.size, size);
    CHECK_BYTES(notification.data, data, size);
}

void kv_peer_open(kv_peer *peer, const char *name, const kvmem_layout_config *config, uint32_t seed) {
    kv_peer_open_served(peer, name, config, seed, NULL);
}

void kv_peer_open_served(kv_peer *peer, const char *name, const kvmem_layout_config *config, uint32_t seed,
                         const kvmem_serve_options *serve) {
    memset(peer, 0, sizeof(*peer));
    CHECK(strlen(name) < sizeof(peer->name));
    strcpy(peer->name, name);
    kv_model_open(&peer->model, config, seed);
    peer->process = peer_start("kv_peer");
    kv_peer_setup setup = {.shape = kv_sent(config), .seed = seed, .is_served = serve != NULL};
    if (serve != NULL) setup.serve = *serve;
    strcpy(setup.name, name);
    frame_send(peer->process.socket, KV_PEER_OPEN, &setup, sizeof(setup));
    peer->metadata = frame_expect(peer->process.socket, KV_PEER_OPEN);
    peer->descriptor = frame_expect(peer->process.socket, KV_PEER_OPEN);
}

/* Sends a request whose reply is empty. */
static void request(kv_peer *peer, uint32_t tag, const void *data, size_t size) {
    frame_send(peer->process.socket, tag, data, size);
    free(frame_expect(peer->process.socket, tag).data);
}

void kv_peer_meet(kv_peer *peer, kvmem_agent *agent) {
    agent_load(agent, &peer->metadata);
    message mine = agent_metadata(agent);
    request(peer, KV_PEER_LOAD, mine.data, mine.size);
    free(mine.data);
    const message *descriptor = &peer->descriptor;
    EXPECT_OK(kvmem_layout_import(agent, descriptor->data, descriptor->size, &peer->model.layout, ERR));
}

void kv_peer_check(kv_peer *peer) {
    frame_send(peer->process.socket, KV_PEER_IMAGE, NULL, 0);
    CLEANUP(message_free) message image = frame_expect(peer->process.socket, KV_PEER_IMAGE);
    CHECK_EQ(image.size, peer->model.size);
    CHECK_BYTES(image.data, peer->model.expected, image.size);
}

void kv_peer_expect_notification(kv_peer *peer, const char *from, const void *data, size_t size) {
    frame_send(peer->process.socket, KV_PEER_TAKE, NULL, 0);
    CLEANUP(message_free) message sender = frame_expect(peer->process.socket, KV_PEER_TAKE);
    CLEANUP(message_free) message bytes = frame_expect(peer->process.socket, KV_PEER_TAKE);
    CHECK_STR((const char *)sender.data, from);
    CHECK_EQ(bytes.size, size);
    CHECK_BYTES(bytes.data, data, size);
}

void kv_peer_notify(kv_peer *peer, const char *to, const void *data, size_t size) {
    frame_send(peer->process.socket, KV_PEER_NOTIFY, to, strlen(to) + 1);
    request(peer, KV_PEER_NOTIFY, data, size);
}

void kv_peer_invalidate(kv_peer *peer, const char *name) {
    request(peer, KV_PEER_INVALIDATE, name, strlen(name) + 1);
}

void kv_peer_close(kv_peer *peer) {
    peer_finish(&peer->process);
    kv_side_close(&peer->model);
    free(peer->metadata.data);
    free(peer->descriptor.data);
    memset(peer, 0, sizeof(*peer));
}

void kv_peer_each_kind(void (*check)(kv_side *local, kv_peer *peer)) {
    OWNED(kvmem_agent) agent = agent_open("near");
    EACH_KV_KIND(there) {
        kv_peer peer;
        kv_peer_open(&peer, there->name, REF(kv_config(there)), 100);
        kv_peer_meet(&peer, agent);
        EACH_KV_KIND(here) {
            const kvmem_layout_config config =
                WITH(kv_config(here), it.alignment = here == kv_kinds ? 64 : 1);
            OPENED(kv_side, local, &config, agent, (uint32_t)(here - kv_kinds));
            check(&local, &peer);
        }
        kv_peer_close(&peer);
        EXPECT_OK(kvmem_agent_invalidate_remote_metadata(agent, there->name, NULL, ERR));
    }
}

void kv_peer_crash(kv_peer *peer) { peer_kill(&peer->process); }

void *repeat_transfer(void *argument) {
    repeated *run = argument;
    while (run->last == KVMEM_STATUS_OK && !run->stops) {
        run->last = kvmem_transfer_submit(run->transfer, NULL, NULL);
        THEN(run->last, kvmem_transfer_wait(run->transfer, run->patience, NULL));
        run->rounds++;
    }
    run->is_over = true;
    return NULL;
}

void kv_peer_crash_under(kv_peer *peer, kvmem_transfer *const transfers[2], unsigned rounds, uint64_t time) {
    repeated streams[] = {{.transfer = transfers[0], .patience = time},
                          {.transfer = transfers[1], .patience = time}};
    threads threads;
    threads_start(&threads, NUM(streams), repeat_transfer, streams, sizeof(streams[0]));
    while (streams[0].rounds < rounds || streams[1].rounds < rounds) sched_yield();
    kv_peer_crash(peer);
    threads_join(&threads);
    for (size_t i = 0; i < NUM(streams); i++) {
        CHECK_EQ(streams[i].last, KVMEM_STATUS_PEER_LOST);
        kvmem_transfer_destroy(streams[i].transfer);
    }
}

void kv_meeting_open(kv_meeting *met, const char *name, const char *peer_name,
                     const kvmem_layout_config *here, const kvmem_layout_config *there) {
    kv_meeting_open_served(met, name, peer_name, here, there, NULL);
}

void kv_meeting_open_served(kv_meeting *met, const char *name, const char *peer_name,
                            const kvmem_layout_config *here, const kvmem_layout_config *there,
                            const kvmem_serve_options *serve) {
    met->agent = agent_open(name);
    kv_side_open(&met->side, here, met->agent, 1);
    kv_peer_open_served(&met->peer, peer_name, there, 2, serve);
    kv_peer_meet(&met->peer, met->agent);
}

void kv_meeting_close(kv_meeting *met) {
    kv_peer_close(&met->peer);
    kv_side_close(&met->side);
    kvmem_agent_destroy(met->agent);
}

void agents_introduce(kvmem_agent *agent, kvmem_agent *other) {
    CLEANUP(message_free) message metadata = agent_metadata(other);
    agent_load(agent, &metadata);
}
