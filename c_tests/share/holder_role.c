// SPDX-License-Identifier: Apache-2.0
// The holder's side: serves requests until the test closes its socket.
#include "driver.h"
#include "holder.h"
#include "holder_wire.h"

#define MAX_SHARES 64
#define MAX_OPENED 16

static kvmem_region *own;
static uint32_t own_transport; /* used for KVMEM_SHARE_AUTO */
static kvmem_layout *own_layout;
static kv_side own_model; /* only its geometry is used; the test has the bytes */
static kvmem_agent *own_agent;
static kvmem_share *shares[MAX_SHARES];
static size_t num_shares;
static kvmem_region *opened[MAX_OPENED];
static size_t num_opened;

static void send_status(int socket, uint32_t tag, kvmem_status status) {
    frame_send(socket, tag, &status, sizeof(status));
}

static const kvmem_region *region_of(uint32_t which) {
    if (which == HOLDING_OWN) return own;
    CHECK(num_opened > 0);
    return opened[num_opened - 1];
}

static void make(const holder_request *request) {
    own = memory_create((memory_kind)request->kind, MEMORY_SIZE, request->path);
    own_transport = memory_transport((memory_kind)request->kind);
    memory_fill(own, request->seed);
}

static void build(const holder_request *request) {
    const kvmem_layout_config config = blocks_config(&kv_kinds[request->layout_kind]);
    if (request->agent[0] != '\0') {
        own_agent = agent_open(request->agent);
        if (request->kind == MEMORY_DISK)
            EXPECT_OK(kvmem_agent_create_backend(own_agent, "POSIX", NULL, 0, ERR));
    }
    kv_side_close(&own_model); /* of the previous layout */
    kv_model_open(&own_model, &config, request->seed);
    own_transport = memory_transport((memory_kind)request->kind);
    own_layout = blocks_build((memory_kind)request->kind, &config, (blocks_placement)request->which,
                              own_agent);
    blocks_write(own_layout, &own_model);
}

static kvmem_status make_share(const holder_request *request, kvmem_share **share) {
    const uint32_t transport = request->transport == KVMEM_SHARE_AUTO ? own_transport : request->transport;
    kvmem_share_options options = OPTIONS(kvmem_share_options, it.flags = request->flags,
                                          it.transport = transport);
    if (own_layout != NULL) return kvmem_share_create_layout(own_layout, &options, share, ERR);
    if (request->size == 0) return kvmem_share_create_region(own, &options, share, ERR);
    OWN(kvmem_region, part, kvmem_region_create_view, own, request->offset, request->size);
    return kvmem_share_create_region(part, &options, share, ERR);
}

static void serve_share(int socket, const holder_request *request) {
    kvmem_share *share = NULL;
    const kvmem_status status = make_share(request, &share);
    send_status(socket, HOLDER_SHARE, status);
    if (status == KVMEM_STATUS_OK) {
        CHECK(num_shares < MAX_SHARES);
        shares[num_shares++] = share;
        CLEANUP(parcel_close) parcel parcel = parcel_of(share);
        parcel_send(socket, &parcel);
    }
}

static void end_shares(void) {
    while (num_shares > 0) kvmem_share_destroy(shares[--num_shares]);
}

static void destroy_own(void) {
    kvmem_region_destroy(own);
    kvmem_layout_destroy(own_layout);
    own = NULL;
    own_layout = NULL;
}

static kvmem_status open_shared(int socket, const holder_request *request) {
    kvmem_open_options options = OPTIONS(kvmem_open_options);
    /* some kinds of memory may have reserved huge pages */
    options.flags = request->flags | KVMEM_OPEN_TRUST_OWNER;
    parcel parcel = parcel_receive(socket);
    kvmem_share *share = NULL;
    CHECK(num_opened < MAX_OPENED);
    kvmem_status status = parcel_read(&parcel, &share);
    parcel_close(&parcel);
    THEN(status, kvmem_share_open_region(share, &options, &opened[num_opened], ERR));
    kvmem_share_destroy(share);
    num_opened += status == KVMEM_STATUS_OK;
    return status;
}

static kvmem_status open_shared_layout(int socket) {
    parcel parcel = parcel_receive(socket);
    OWNED(kvmem_share) share = parcel_share(&parcel);
    parcel_close(&parcel);
    return TRIED(kvmem_layout, kvmem_share_open_layout, share,
                 REF(OPTIONS(kvmem_open_options, it.flags = KVMEM_OPEN_TRUST_OWNER)));
}

static void close_opened(void) {
    while (num_opened > 0) kvmem_region_destroy(opened[--num_opened]);
}

static void check(const holder_request *request) {
    if (own_layout == NULL || request->which == HOLDING_OPENED) {
        memory_check(region_of(request->which), request->seed);
        return;
    }
    CLEANUP(kv_side_close) kv_side model;
    kv_model_open(&model, &own_model.config, request->seed);
    blocks_check(own_layout, &model);
}

static void check_model(int socket) {
    frame_expect_into(socket, HOLDER_MODEL, own_model.expected, own_model.size);
    blocks_check(own_layout, &own_model);
}

static void serve_holders(int socket, const holder_request *request) {
    GET(kvmem_region_holders, holders, kvmem_region_get_holders, region_of(request->which));
    frame_send(socket, HOLDER_HOLDERS, &holders, sizeof(holders));
}

static void serve_info(int socket, const holder_request *request) {
    const kvmem_region_info info = region_info(region_of(request->which));
    frame_send(socket, HOLDER_INFO, &info, sizeof(info));
}

static void serve_memory(int socket) {
    const uint64_t bytes = free_memory(0);
    frame_send(socket, HOLDER_MEMORY, &bytes, sizeof(bytes));
}

/* Requests whose reply is a status. */
static kvmem_status serve_status(int socket, uint32_t tag, const holder_request *request) {
    switch (tag) {
    case HOLDER_MAKE: make(request); break;
    case HOLDER_BUILD: build(request); break;
    case HOLDER_END_SHARES: end_shares(); break;
    case HOLDER_DESTROY: destroy_own(); break;
    case HOLDER_OPEN: return open_shared(socket, request);
    case HOLDER_OPEN_LAYOUT: return open_shared_layout(socket);
    case HOLDER_CLOSE: close_opened(); break;
    case HOLDER_CHECK: check(request); break;
    case HOLDER_FILL: memory_fill(region_of(request->which), request->seed); break;
    case HOLDER_MODEL: check_model(socket); break;
    case HOLDER_OWNER: return kvmem_region_check_owner(region_of(HOLDING_OPENED), ERR);
    case HOLDER_FORK: child_start(socket, request->which != 0); break;
    case HOLDER_COMMIT: return kvmem_region_commit(own, request->offset, request->size, ERR);
    case HOLDER_DECOMMIT: return kvmem_region_decommit(own, request->offset, request->size, ERR);
    case HOLDER_RESIZE: return kvmem_layout_resize(own_layout, request->size, ERR);
    default: FAIL("no such request: %u", tag);
    }
    return KVMEM_STATUS_OK;
}

static void serve(int socket, uint32_t tag, const holder_request *request) {
    switch (tag) {
    case HOLDER_SHARE: serve_share(socket, request); break;
    case HOLDER_INFO: serve_info(socket, request); break;
    case HOLDER_HOLDERS: serve_holders(socket, request); break;
    case HOLDER_MESSAGE:
        frame_send(socket, HOLDER_MESSAGE, test_last_message(), strlen(test_last_message()) + 1);
        break;
    case HOLDER_MEMORY: serve_memory(socket); break;
    default: send_status(socket, tag, serve_status(socket, tag, request));
    }
}

void holder_role(int socket) {
    uint32_t tag = 0;
    for (holder_request request; frame_next_into(socket, &tag, &request, sizeof(request));)
        serve(socket, tag, &request);
    end_shares();
    close_opened();
    destroy_own();
    kv_side_close(&own_model);
    kvmem_agent_destroy(own_agent);
}
