// SPDX-License-Identifier: Apache-2.0
// The peer process: an agent with one registered layout, which serves requests until the test closes the
// socket.
#include "harness.h"
#include "kv_peer_wire.h"

static kvmem_agent *own_agent;
static kv_side own_side;

static void serve_open(int socket, const message *request) {
    static kv_peer_setup setup; /* the layout refers to it */
    CHECK_EQ(request->size, sizeof(setup));
    memcpy(&setup, request->data, sizeof(setup));
    own_agent = agent_open(setup.name);
    kv_side_open(&own_side, REF(kv_received(&setup.shape)), own_agent, (uint32_t)setup.seed);
    if (setup.is_served) EXPECT_OK(kvmem_layout_serve(own_side.layout, &setup.serve, ERR));
    CLEANUP(message_free) message metadata = agent_metadata(own_agent);
    CLEANUP(message_free) message descriptor = layout_descriptor(own_side.layout);
    frame_send(socket, KV_PEER_OPEN, metadata.data, metadata.size);
    frame_send(socket, KV_PEER_OPEN, descriptor.data, descriptor.size);
}

static void serve_take(int socket) {
    OWN(kvmem_notifications, taken, kvmem_agent_take_notifications, own_agent, PATIENCE);
    CHECK_EQ(taken->count, 1);
    const kvmem_notification notification = taken->items[0];
    frame_send(socket, KV_PEER_TAKE, notification.agent, strlen(notification.agent) + 1);
    frame_send(socket, KV_PEER_TAKE, notification.data, notification.size);
}

static void serve_notify(int socket, const message *name) {
    message data = frame_expect(socket, KV_PEER_NOTIFY);
    EXPECT_OK(kvmem_agent_notify(own_agent, (const char *)name->data, data.data, data.size, ERR));
    free(data.data);
    frame_send(socket, KV_PEER_NOTIFY, NULL, 0);
}

static void serve(int socket, uint32_t tag, const message *request) {
    switch (tag) {
    case KV_PEER_OPEN: serve_open(socket, request); break;
    case KV_PEER_LOAD:
        agent_load(own_agent, request);
        frame_send(socket, tag, NULL, 0);
        break;
    case KV_PEER_IMAGE: frame_send(socket, tag, own_side.memory, own_side.size); break;
    case KV_PEER_TAKE: serve_take(socket); break;
    case KV_PEER_NOTIFY: serve_notify(socket, request); break;
    case KV_PEER_INVALIDATE:
        EXPECT_OK(kvmem_agent_invalidate_remote_metadata(own_agent, (const char *)request->data, NULL, ERR));
        frame_send(socket, tag, NULL, 0);
        break;
    default: FAIL("no such request: %u", tag);
    }
}

void kv_peer_role(int socket) {
    frames_serve(socket, serve);
    kv_side_close(&own_side);
    kvmem_agent_destroy(own_agent);
}
