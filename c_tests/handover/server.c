// SPDX-License-Identifier: Apache-2.0
// Runs a broker, and the processes of its clients.
#include "server.h"

#include <sys/prctl.h>

enum { TAG_REQUEST = 1, TAG_RESULT };

kvmem_broker_options server_options(void) {
    return OPTIONS(kvmem_broker_options, it.client_timeout_ns = PATIENCE);
}

void server_open(server *server, const kvmem_broker_options *options) {
    server->directory = scratch_create(temporary_directory());
    CHECK_EQ(chmod(server->directory.path, 0755), 0);
    snprintf(server->path, sizeof(server->path), "%s", scratch_file(&server->directory, "broker"));
    kvmem_broker_options here = options != NULL ? *options : server_options();
    here.path = server->path;
    EXPECT_OK(kvmem_broker_create(&here, &server->broker, ERR));
    sample_open(&server->sample);
    EXPECT_OK(kvmem_broker_publish(server->broker, "kv", server->sample.share, NULL, &server->token, ERR));
}

void server_close(server *server) {
    kvmem_broker_destroy(server->broker);
    sample_close(&server->sample);
    CHECK_EQ(count_directory_entries(server->directory.path), 0);
    scratch_remove(&server->directory);
}

kvmem_broker_info server_info(const server *server) {
    GET(kvmem_broker_info, info, kvmem_broker_get_info, server->broker);
    return info;
}

void server_await_clients(const server *server, uint64_t count) {
    while (server_info(server).clients != count) sched_yield();
}

void server_check_service(const server *server) {
    const fetch_request request = request_of(server);
    OWN(kvmem_share, share, kvmem_share_fetch, REF(request_options(&request)), PATIENCE);
    OWNED(kvmem_region) region = sample_import(share);
}

fetch_request request_of(const server *server) {
    fetch_request made = {.name = "kv", .token = server->token};
    memcpy(made.path, server->path, sizeof(made.path));
    return made;
}

fetch_request request_published(const server *server, const char *name, const kvmem_share *share) {
    fetch_request made = request_of(server);
    strcpy(made.name, name);
    EXPECT_OK(kvmem_broker_publish(server->broker, name, share, NULL, &made.token, ERR));
    return made;
}

kvmem_token server_grant(const server *server, const kvmem_publish_options *options) {
    GET(kvmem_token, token, kvmem_broker_grant, server->broker, "kv", options);
    return token;
}

int server_connect(const server *server, size_t size) { return ask_raw(server->path, "kv", &server->token,
                                                                       size); }

kvmem_fetch_options request_options(const fetch_request *request) {
    return OPTIONS(kvmem_fetch_options, it.path = request->path, it.name = request->name,
                   it.token = &request->token, it.flags = request->flags, it.broker_user = request->broker_user);
}

/* setuid clears the dumpable flag, which hides this process in /proc, and the signal that the parent's death
   sends. Both are set again. */
void switch_user(uint32_t user) {
    CHECK_EQ(setgid(user), 0);
    CHECK_EQ(setuid(user), 0);
    CHECK_EQ(prctl(PR_SET_DUMPABLE, 1), 0);
    CHECK_EQ(prctl(PR_SET_PDEATHSIG, SIGKILL), 0);
}

static kvmem_region *open_sample(const kvmem_share *share, fetch_result *result) {
    kvmem_region *region = sample_import(share);
    result->read_only = (region_info(region).flags & KVMEM_REGION_READ_ONLY) != 0;
    if (!result->read_only) sample_mark(region);
    return region;
}

void fetching_client(int socket) {
    fetch_request request;
    frame_expect_into(socket, TAG_REQUEST, &request, sizeof(request));
    if (request.user != 0) switch_user(request.user);
    const kvmem_fetch_options options = request_options(&request);
    OWNED(kvmem_share) share = NULL;
    OWNED(kvmem_region) region = NULL;
    fetch_result result = {.status = kvmem_share_fetch(&options, PATIENCE, &share, ERR)};
    snprintf(result.message, sizeof(result.message), "%s", test_last_message());
    if (result.status == KVMEM_STATUS_OK) region = open_sample(share, &result);
    frame_send(socket, TAG_RESULT, &result, sizeof(result));
    char end = 0;
    CHECK_EQ(recv(socket, &end, 1, 0), 0);
    if (region != NULL) sample_check(region);
}

peer client_start(const fetch_request *request, fetch_result *result) {
    peer peer = peer_start("fetching_client");
    frame_send(peer.socket, TAG_REQUEST, request, sizeof(*request));
    frame_expect_into(peer.socket, TAG_RESULT, result, sizeof(*result));
    return peer;
}

fetch_result client_run(const fetch_request *request) {
    fetch_result result;
    CLEANUP(peer_finish) peer peer = client_start(request, &result);
    return result;
}

void client_expect(const fetch_request *request, kvmem_status status, const char *part) {
    const fetch_result result = client_run(request);
    if (result.status != status)
        FAIL("expected %s, got %s: %s", kvmem_status_name(status), kvmem_status_name(result.status),
             result.message);
    CHECK_HAS(result.message, part);
}
