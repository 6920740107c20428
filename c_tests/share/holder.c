// SPDX-License-Identifier: Apache-2.0
// The test's side of a holder: sends requests, and unpacks the replies.
#include "holder.h"

#include "holder_wire.h"

peer holder_start(void) { return peer_start("holder"); }

peer holder_shared(void) { return peer_shared("holder"); }

void holder_clear(const peer *holder) {
    holder_end_shares(holder);
    holder_close(holder);
    holder_destroy(holder);
}

static void send_request(const peer *holder, uint32_t tag, const holder_request *request) {
    frame_send(holder->socket, tag, request, sizeof(*request));
}

static kvmem_status receive_status(const peer *holder, uint32_t tag) {
    kvmem_status status = KVMEM_STATUS_OK;
    frame_expect_into(holder->socket, tag, &status, sizeof(status));
    return status;
}

static kvmem_status ask(const peer *holder, uint32_t tag, const holder_request *request) {
    send_request(holder, tag, request);
    return receive_status(holder, tag);
}

static void ask_ok(const peer *holder, uint32_t tag, const holder_request *request) {
    CHECK_EQ(ask(holder, tag, request), KVMEM_STATUS_OK);
}

static void put_text(char *to, size_t capacity, const char *text) {
    if (text != NULL) {
        CHECK(strlen(text) < capacity);
        strcpy(to, text);
    }
}

void holder_make(const peer *holder, memory_kind kind, const char *path, uint32_t seed) {
    holder_request request = {.kind = kind, .seed = seed};
    put_text(request.path, sizeof(request.path), path);
    ask_ok(holder, HOLDER_MAKE, &request);
}

void holder_build(const peer *holder, memory_kind kind, size_t layout_kind, blocks_placement placement,
                  const char *agent, uint32_t seed) {
    holder_request request = {.kind = kind, .layout_kind = layout_kind, .which = placement, .seed = seed};
    put_text(request.agent, sizeof(request.agent), agent);
    ask_ok(holder, HOLDER_BUILD, &request);
}

static kvmem_status share(const peer *holder, const holder_request *request, parcel *parcel) {
    const kvmem_status status = ask(holder, HOLDER_SHARE, request);
    if (status == KVMEM_STATUS_OK) *parcel = parcel_receive(holder->socket);
    return status;
}

static holder_request share_request(const kvmem_share_options *options) {
    return (holder_request){.flags = options ? options->flags : 0,
                            .transport = options ? options->transport : 0};
}

parcel holder_share(const peer *holder, const kvmem_share_options *options) {
    const holder_request request = share_request(options);
    parcel parcel;
    CHECK_EQ(share(holder, &request, &parcel), KVMEM_STATUS_OK);
    return parcel;
}

parcel holder_share_part(const peer *holder, uint64_t offset, uint64_t size) {
    const holder_request request = {.offset = offset, .size = size};
    parcel parcel;
    CHECK_EQ(share(holder, &request, &parcel), KVMEM_STATUS_OK);
    return parcel;
}

kvmem_status holder_refuse_share(const peer *holder, const kvmem_share_options *options) {
    const holder_request request = share_request(options);
    parcel parcel;
    const kvmem_status status = share(holder, &request, &parcel);
    CHECK(status != KVMEM_STATUS_OK);
    return status;
}

void holder_end_shares(const peer *holder) {
    ask_ok(holder, HOLDER_END_SHARES, &(holder_request){0});
}

void holder_destroy(const peer *holder) { ask_ok(holder, HOLDER_DESTROY, &(holder_request){0}); }

kvmem_status holder_open(const peer *holder, const parcel *parcel, uint64_t flags) {
    send_request(holder, HOLDER_OPEN, &(holder_request){.flags = flags});
    parcel_send(holder->socket, parcel);
    return receive_status(holder, HOLDER_OPEN);
}

char *holder_message(const peer *holder) {
    send_request(holder, HOLDER_MESSAGE, &(holder_request){0});
    return (char *)frame_expect(holder->socket, HOLDER_MESSAGE).data; /* with its NUL */
}

kvmem_status holder_open_layout(const peer *holder, const parcel *parcel) {
    send_request(holder, HOLDER_OPEN_LAYOUT, &(holder_request){0});
    parcel_send(holder->socket, parcel);
    return receive_status(holder, HOLDER_OPEN_LAYOUT);
}

void holder_close(const peer *holder) { ask_ok(holder, HOLDER_CLOSE, &(holder_request){0}); }

void holder_check(const peer *holder, holding which, uint32_t seed) {
    ask_ok(holder, HOLDER_CHECK, &(holder_request){.which = which, .seed = seed});
}

void holder_fill(const peer *holder, holding which, uint32_t seed) {
    ask_ok(holder, HOLDER_FILL, &(holder_request){.which = which, .seed = seed});
}

void holder_check_model(const peer *holder, const kv_side *model) {
    send_request(holder, HOLDER_MODEL, &(holder_request){0});
    frame_send(holder->socket, HOLDER_MODEL, model->expected, model->size);
    CHECK_EQ(receive_status(holder, HOLDER_MODEL), KVMEM_STATUS_OK);
}

kvmem_region_info holder_info(const peer *holder, holding which) {
    kvmem_region_info info;
    send_request(holder, HOLDER_INFO, &(holder_request){.which = which});
    frame_expect_into(holder->socket, HOLDER_INFO, &info, sizeof(info));
    return info;
}

kvmem_region_holders holder_holders(const peer *holder, holding which) {
    kvmem_region_holders holders;
    send_request(holder, HOLDER_HOLDERS, &(holder_request){.which = which});
    frame_expect_into(holder->socket, HOLDER_HOLDERS, &holders, sizeof(holders));
    return holders;
}

kvmem_status holder_check_owner(const peer *holder) {
    return ask(holder, HOLDER_OWNER, &(holder_request){0});
}

kvmem_status holder_commit(const peer *holder, uint64_t offset, uint64_t size) {
    return ask(holder, HOLDER_COMMIT, &(holder_request){.offset = offset, .size = size});
}

kvmem_status holder_decommit(const peer *holder, uint64_t offset, uint64_t size) {
    return ask(holder, HOLDER_DECOMMIT, &(holder_request){.offset = offset, .size = size});
}

kvmem_status holder_resize(const peer *holder, uint64_t num_blocks) {
    return ask(holder, HOLDER_RESIZE, &(holder_request){.size = num_blocks});
}

void holder_fork(const peer *holder, bool by_clone) {
    ask_ok(holder, HOLDER_FORK, &(holder_request){.which = by_clone});
}

uint64_t holder_free_memory(const peer *holder) {
    uint64_t bytes = 0;
    send_request(holder, HOLDER_MEMORY, &(holder_request){0});
    frame_expect_into(holder->socket, HOLDER_MEMORY, &bytes, sizeof(bytes));
    return bytes;
}
