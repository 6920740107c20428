// SPDX-License-Identifier: Apache-2.0
// The peer process: an agent with one registered side. It serves requests until the test closes the socket.
#include "side_peer.h"

#include "elastic_side.h"
#include "kv_peer_wire.h"

/* The contents of KV_PEER_OPEN. */
typedef struct setup {
    kv_peer_setup kv;
    int32_t place;
    int32_t device;
} setup;

static kvmem_agent *own_agent;
static side own_side;

void side_peer_start(kv_peer *peer, const char *name, place place, int device,
                     const kvmem_layout_config *config, uint32_t seed) {
    side_peer_start_served(peer, name, place, device, config, seed, NULL);
}

void side_peer_start_served(kv_peer *peer, const char *name, place place, int device,
                            const kvmem_layout_config *config, uint32_t seed, const kvmem_serve_options *serve) {
    *peer = (kv_peer){.process = peer_start("side_peer")};
    CHECK(strlen(name) < sizeof(peer->name));
    strcpy(peer->name, name);
    kvmem_layout_config model = *config;
    if (place_is_elastic(place)) model.alignment = ELASTIC_MODEL_ALIGNMENT;
    kv_model_open(&peer->model, &model, seed);
    setup setup = {.kv = {.shape = kv_sent(config), .seed = seed, .is_served = serve != NULL},
                   .place = (int32_t)place,
                   .device = device};
    if (serve != NULL) setup.kv.serve = *serve;
    strcpy(setup.kv.name, name);
    frame_send(peer->process.socket, KV_PEER_OPEN, &setup, sizeof(setup));
    peer->metadata = frame_expect(peer->process.socket, KV_PEER_OPEN);
    peer->descriptor = frame_expect(peer->process.socket, KV_PEER_OPEN);
}

static void serve_open(int socket, const message *request) {
    static setup setup; /* the layout refers to it */
    CHECK_EQ(request->size, sizeof(setup));
    memcpy(&setup, request->data, sizeof(setup));
    own_agent = agent_open(setup.kv.name);
    side_open(&own_side, (place)setup.place, setup.device, REF(kv_received(&setup.kv.shape)), own_agent,
              (uint32_t)setup.kv.seed);
    if (setup.kv.is_served) EXPECT_OK(kvmem_layout_serve(own_side.model.layout, &setup.kv.serve, ERR));
    CLEANUP(message_free) message metadata = agent_metadata(own_agent);
    CLEANUP(message_free) message descriptor = layout_descriptor(own_side.model.layout);
    frame_send(socket, KV_PEER_OPEN, metadata.data, metadata.size);
    frame_send(socket, KV_PEER_OPEN, descriptor.data, descriptor.size);
}

static void serve(int socket, uint32_t tag, const message *request) {
    switch (tag) {
    case KV_PEER_OPEN: serve_open(socket, request); break;
    case KV_PEER_LOAD:
        agent_load(own_agent, request);
        frame_send(socket, tag, NULL, 0);
        break;
    case KV_PEER_IMAGE:
        side_read(&own_side);
        frame_send(socket, tag, own_side.model.memory, own_side.model.size);
        break;
    default: FAIL("no such request: %u", tag);
    }
}

void side_peer_role(int socket) {
    frames_serve(socket, serve);
    side_close(&own_side);
    kvmem_agent_destroy(own_agent);
}
