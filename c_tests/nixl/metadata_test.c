// SPDX-License-Identifier: Apache-2.0
// Metadata between agents, by bytes and by address, and its blobs.
#include "harness.h"

#include <dlfcn.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <time.h>

TEST(a_blob_is_followed_by_a_nul) {
    kvmem_agent *agent = agent_open("blob");
    OWN(kvmem_blob, blob, kvmem_agent_get_local_metadata, agent);
    kvmem_agent_destroy(agent); /* the blob does not need the agent */
    const unsigned char *bytes = kvmem_blob_data(blob);
    CHECK(kvmem_blob_size(blob) > 0);
    CHECK_EQ(bytes[kvmem_blob_size(blob)], 0);
    CHECK(memmem(bytes, kvmem_blob_size(blob), "blob", 4) != NULL);
}

TEST(loading_makes_a_peer_known_until_it_is_invalidated) {
    OWNED(kvmem_agent) near = agent_open("near");
    OWNED(kvmem_agent) far = agent_open("far");
    CLEANUP(message_free) message metadata = agent_metadata(far);
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, "far", kvmem_agent_check_remote_metadata(near, "far", ERR));
    GET(kvmem_blob *, name, kvmem_agent_load_remote_metadata, near, metadata.data, metadata.size);
    CHECK_STR((const char *)kvmem_blob_data(name), "far");
    CHECK_EQ(kvmem_blob_size(name), 3);
    kvmem_blob_destroy(name);
    EXPECT_OK(kvmem_agent_check_remote_metadata(near, "far", ERR));
    EXPECT_OK(kvmem_agent_load_remote_metadata(near, metadata.data, metadata.size, NULL, ERR)); /* again */
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(near, "far", NULL, ERR));
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_agent_check_remote_metadata(near, "far", ERR));
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_agent_invalidate_remote_metadata(near, "far", NULL, ERR));
    agent_load(near, &metadata); /* in the other direction */
    EXPECT_OK(kvmem_agent_check_remote_metadata(near, "far", ERR));
}

/* NIXL also has an agent's own metadata, and does not remove it. */
TEST(the_agents_own_metadata_is_not_invalidated) {
    OWNED(kvmem_agent) agent = agent_open("one");
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "'one' is the agent itself",
                   kvmem_agent_invalidate_remote_metadata(agent, "one", NULL, ERR));
}

TEST(invalid_bytes_are_not_loaded) {
    OWNED(kvmem_agent) near = agent_open("near");
    OWNED(kvmem_agent) far = agent_open("far");
    CLEANUP(message_free) message metadata = agent_metadata(far);
    static const unsigned char zeroes[64];
    kvmem_blob *name = (kvmem_blob *)&near;
    CHECK(kvmem_agent_load_remote_metadata(near, zeroes, sizeof(zeroes), &name, ERR) < 0);
    CHECK(name == NULL);
    CHECK(kvmem_agent_load_remote_metadata(near, "garbage", 7, NULL, ERR) < 0);
    EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_agent_load_remote_metadata(near, "", 0, NULL, ERR));
    CHECK(kvmem_agent_load_remote_metadata(near, metadata.data, metadata.size / 2, NULL, ERR) < 0);
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_agent_check_remote_metadata(near, "far", ERR));
    agent_load(near, &metadata); /* the failed call has loaded nothing */
    OWN(kvmem_agent, bare, kvmem_agent_create, "bare", NULL);
    EXPECT_MESSAGE(KVMEM_STATUS_NIXL, "agent 'far' is reached by UCX, and agent 'bare' has no backend",
                   kvmem_agent_load_remote_metadata(bare, metadata.data, metadata.size, NULL, ERR));
}

/* Afterwards the loader knows the plugin by this path, too, and opens no file to find it. */
static void open_plugin_by_path(void) {
    const char *library = getenv("KVMEM_NIXL_LIBRARY");
    const char *file = strrchr(library, '/');
    CHECK(file != NULL);
    void *plugin = dlopen(TEXT("%.*s/plugins/libplugin_UCX.so", (int)(file - library), library),
                          RTLD_NOW | RTLD_NOLOAD);
    CHECK(plugin != NULL);
    dlclose(plugin);
}

enum { METADATA = 1 };

ROLE(far) {
    OWNED(kvmem_agent) agent = agent_open("far");
    CLEANUP(message_free) message metadata = agent_metadata(agent);
    frame_send(socket, METADATA, metadata.data, metadata.size);
    CHECK(!frame_arrives(socket));
}

/* Otherwise UCX breaks its connection to the peer, and the peer cannot be used again. The peer is another process: UCX closes the
   socket at which it listens if it accepts a connection while there are no file descriptors. */
TEST(a_peer_is_not_loaded_without_free_file_descriptors_and_later_is) {
    OWNED(kvmem_agent) near = agent_open("near");
    peer far = peer_start("far");
    open_plugin_by_path();
    CLEANUP(message_free) message metadata = frame_expect(far.socket, METADATA);
    const struct rlimit before = forbid_open_files();
    const kvmem_status status = kvmem_agent_load_remote_metadata(near, metadata.data, metadata.size, NULL,
                                                                 ERR);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    CHECK_EQ(status, KVMEM_STATUS_OUT_OF_MEMORY);
    CHECK_HAS(test_last_message(), "RLIMIT_NOFILE");
    agent_load(near, &metadata);
    peer_finish(&far);
}

/* NIXL uses a memory type in metadata as an index without a check. */
TEST(metadata_with_an_impossible_memory_type_is_not_loaded) {
    OWNED(kvmem_agent) near = agent_open("near");
    OWNED(kvmem_agent) far = agent_open("far");
    unsigned char memory[64];
    const kvmem_nixl_descriptor all = memory_at(memory, sizeof(memory));
    OWN(kvmem_segments, segments, kvmem_segments_register, far, &all, 1, NULL);
    CLEANUP(message_free) message metadata = agent_metadata(far);
    static const char before[] = "nixlSDList|t\4\0\0\0\0\0\0";
    unsigned char *found = memmem(metadata.data, metadata.size, before, sizeof(before));
    CHECK(found != NULL);
    const uint32_t types[] = {5, 0x7FFFFFFF, UINT32_MAX};
    for (size_t i = 0; i < NUM(types); i++) {
        memcpy(found + sizeof(before), &types[i], sizeof(types[i]));
        EXPECT_MESSAGE(KVMEM_STATUS_NIXL, TEXT("memory type %u", types[i]),
                       kvmem_agent_load_remote_metadata(near, metadata.data, metadata.size, NULL, ERR));
    }
    memset(found + sizeof(before), 0, sizeof(uint32_t));
    agent_load(near, &metadata);
}

/* Names are compared, and not found anywhere in the bytes. */
TEST(metadata_with_a_loaded_name_in_it_is_not_that_agent) {
    OWNED(kvmem_agent) near = agent_open("decode");
    OWNED(kvmem_agent) letter = agent_open("e");
    OWNED(kvmem_agent) one = agent_open("prefill-1");
    OWNED(kvmem_agent) twelve = agent_open("prefill-12");
    OWNED(kvmem_agent) seven = agent_open("decode-7");
    agents_introduce(near, letter);
    agents_introduce(near, one);
    EXPECT_MESSAGE(KVMEM_STATUS_NIXL, "not NIXL metadata",
                   kvmem_agent_load_remote_metadata(near, "hello", 5, NULL, ERR));
    kvmem_agent *others[] = {twelve, seven};
    for (size_t i = 0; i < NUM(others); i++) {
        CLEANUP(message_free) message metadata = agent_metadata(others[i]);
        EXPECT_MESSAGE(KVMEM_STATUS_NIXL, "damaged",
                       kvmem_agent_load_remote_metadata(near, metadata.data, metadata.size / 2, NULL, ERR));
        EXPECT_OK(kvmem_agent_check_remote_metadata(near, "prefill-1", ERR));
        agent_load(near, &metadata);
    }
}

TEST(a_namesake_is_not_the_agent_itself) {
    OWNED(kvmem_agent) one = agent_open("same");
    OWNED(kvmem_agent) other = agent_open("same");
    CLEANUP(message_free) message metadata = agent_metadata(other);
    EXPECT_MESSAGE(KVMEM_STATUS_ALREADY_EXISTS, "another agent that is named 'same'",
                   kvmem_agent_load_remote_metadata(one, metadata.data, metadata.size, NULL, ERR));
}

TEST(an_agents_own_metadata_is_recognized) {
    OWNED(kvmem_agent) agent = agent_open("alice");
    CLEANUP(message_free) message metadata = agent_metadata(agent);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "the metadata of agent 'alice' itself",
                   kvmem_agent_load_remote_metadata(agent, metadata.data, metadata.size, NULL, ERR));
}

/* A TCP socket bound to a free port of these addresses. */
static int bound_socket(in_addr_t addresses, uint32_t *port) {
    const int socket_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(socket_fd >= 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(addresses)};
    CHECK_EQ(bind(socket_fd, (struct sockaddr *)&address, sizeof(address)), 0);
    socklen_t size = sizeof(address);
    CHECK_EQ(getsockname(socket_fd, (struct sockaddr *)&address, &size), 0);
    *port = ntohs(address.sin_port);
    return socket_fd;
}

/* A port of the loopback interface that was just free. */
static uint32_t free_port(void) {
    uint32_t port = 0;
    close(bound_socket(INADDR_LOOPBACK, &port));
    return port;
}

/* Another process may take the port before the agent listens on it; then another one is tried. */
static kvmem_agent *listening_agent(const char *name, uint32_t *port) {
    kvmem_agent_options options = OPTIONS(kvmem_agent_options, it.flags = KVMEM_AGENT_LISTEN_THREAD,
                                          it.listen_delay_ns = 1000000);
    kvmem_agent *agent = NULL;
    kvmem_status status = KVMEM_STATUS_NIXL;
    for (int i = 0; i < 10 && status == KVMEM_STATUS_NIXL; i++) {
        options.listen_port = *port = free_port();
        status = kvmem_agent_create(name, &options, &agent, NULL);
    }
    CHECK_EQ(status, KVMEM_STATUS_OK);
    EXPECT_OK(kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
    return agent;
}

/* Two agents that listen; the port is that of the far one. */
typedef struct listeners {
    kvmem_agent *near, *far;
    uint32_t port, near_port;
} listeners;

static void listeners_open(listeners *both) {
    both->far = listening_agent("far", &both->port);
    both->near = listening_agent("near", &both->near_port);
}

static void listeners_close(listeners *both) {
    kvmem_agent_destroy(both->near);
    kvmem_agent_destroy(both->far);
}

static kvmem_status fetch_far(const listeners *both, const char *host, uint64_t timeout) {
    return kvmem_agent_fetch_remote_metadata(both->near, "far", host, both->port, timeout, ERR);
}

/* Polls until NIXL's thread of the peer has processed the request. Only the deadline of the test limits
   this. */
static void await_metadata(kvmem_agent *agent, const char *name, kvmem_status status) {
    const struct timespec pause = {0, 1000000};
    while (kvmem_agent_check_remote_metadata(agent, name, NULL) != status) nanosleep(&pause, NULL);
}

TEST(metadata_is_fetched_by_address) {
    OPENED(listeners, both);
    EXPECT_OK(fetch_far(&both, "127.0.0.1", PATIENCE));
    EXPECT_OK(kvmem_agent_check_remote_metadata(both.near, "far", ERR));
}

TEST(a_peer_is_reached_by_its_host_name) {
    OPENED(listeners, both);
    EXPECT_OK(fetch_far(&both, "localhost", PATIENCE));
    EXPECT_OK(kvmem_agent_check_remote_metadata(both.near, "far", ERR));
    EXPECT_OK(kvmem_agent_send_local_metadata(both.near, "localhost", both.port, ERR));
    /* A name that no name server knows. */
    const kvmem_status status = fetch_far(&both, "no-such-host.invalid", SECONDS(3));
    CHECK(status == KVMEM_STATUS_NOT_FOUND || status == KVMEM_STATUS_TIMED_OUT);
    CHECK_HAS(test_last_message(), "no-such-host.invalid");
}

/* Loaded metadata does not prove that the peer still listens. */
TEST(a_loaded_peer_that_no_longer_listens_is_not_fetched) {
    OPENED(listeners, both);
    for (int i = 0; i < 2; i++) EXPECT_OK(fetch_far(&both, "127.0.0.1", PATIENCE));
    DESTROYED(kvmem_agent, both.far);
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, "nothing listens at 127.0.0.1",
                   fetch_far(&both, "127.0.0.1", PATIENCE));
    EXPECT(KVMEM_STATUS_NOT_FOUND, fetch_far(&both, "127.0.0.1", 0));
    EXPECT_OK(kvmem_agent_check_remote_metadata(both.near, "far", ERR)); /* the older metadata stays */
}

TEST(an_agent_does_not_fetch_its_own_metadata) {
    uint32_t port = 0;
    OWNED(kvmem_agent) agent = listening_agent("one", &port);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "'one' is the agent itself",
                   kvmem_agent_fetch_remote_metadata(agent, "one", "127.0.0.1", port, KVMEM_TIMEOUT_FOREVER,
                                                     ERR));
}

TEST(metadata_is_sent_by_address) {
    OPENED(listeners, both);
    EXPECT_OK(kvmem_agent_send_local_metadata(both.near, "127.0.0.1", both.port, ERR));
    await_metadata(both.far, "near", KVMEM_STATUS_OK);
}

/* NIXL does not list what its listen thread has loaded. Only a message contains the name of the peer. */
TEST(all_peers_include_those_that_have_sent_messages) {
    OPENED(listeners, both);
    EXPECT_OK(fetch_far(&both, "127.0.0.1", PATIENCE));
    EXPECT_OK(kvmem_agent_notify(both.near, "far", "here", 4, ERR));
    OWN(kvmem_notifications, taken, kvmem_agent_take_notifications, both.far, PATIENCE);
    EXPECT_OK(kvmem_agent_send_local_metadata(both.near, "127.0.0.1", both.port, ERR));
    const struct timespec pause = {0, 1000000};
    size_t count = 0;
    while (count == 0) { /* it arrives later; only the deadline of the test limits this */
        nanosleep(&pause, NULL);
        EXPECT_OK(kvmem_agent_invalidate_remote_metadata(both.far, NULL, &count, ERR));
    }
    CHECK_EQ(count, 1);
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_agent_check_remote_metadata(both.far, "near", ERR));
}

/* The listen thread loads a peer that the agent has asked for in vain. */
TEST(all_peers_include_those_that_were_asked_for) {
    OPENED(listeners, both);
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_agent_check_remote_metadata(both.far, "near", ERR));
    EXPECT_OK(kvmem_agent_send_local_metadata(both.near, "127.0.0.1", both.port, ERR));
    const struct timespec pause = {0, 1000000};
    size_t count = 0;
    while (count == 0) {
        nanosleep(&pause, NULL);
        EXPECT_OK(kvmem_agent_invalidate_remote_metadata(both.far, NULL, &count, ERR));
    }
    CHECK_EQ(count, 1);
}

TEST(partial_metadata_is_of_some_memory) {
    static unsigned char memory[2][4096];
    OWNED(kvmem_agent) near = agent_open("near");
    OWNED(kvmem_agent) far = agent_open("far");
    kvmem_nixl_descriptor parts[2];
    kvmem_segments *segments[2];
    for (size_t i = 0; i < 2; i++) {
        parts[i] = memory_at(memory[i], sizeof(memory[i]));
        EXPECT_OK(kvmem_segments_register(far, &parts[i], 1, NULL, &segments[i], ERR));
    }
    REFUSE(KVMEM_STATUS_NOT_FOUND, "must be registered", kvmem_agent_get_partial_metadata, near, &parts[0], 1,
           NULL);
    OWN(kvmem_blob, connection, kvmem_agent_get_partial_metadata, far, NULL, 0, NULL);
    OWN(kvmem_blob, first, kvmem_agent_get_partial_metadata, far, &parts[0], 1, NULL);
    EXPECT_OK(kvmem_agent_load_remote_metadata(near, kvmem_blob_data(connection),
                                               kvmem_blob_size(connection), NULL, ERR));
    REFUSE(KVMEM_STATUS_NOT_FOUND, "", kvmem_prepared_create, near, "far", &parts[0], 1, NULL);
    EXPECT_OK(kvmem_agent_load_remote_metadata(near, kvmem_blob_data(first), kvmem_blob_size(first), NULL,
                                               ERR));
    OWN(kvmem_prepared, reachable, kvmem_prepared_create, near, "far", &parts[0], 1, NULL);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "", kvmem_prepared_create, near, "far", &parts[1], 1, NULL);
    for (size_t i = 0; i < 2; i++) kvmem_segments_destroy(segments[i]);
}

TEST(partial_metadata_is_sent_and_withdrawn_by_address) {
    static unsigned char memory[4096];
    OPENED(listeners, both);
    kvmem_agent *near = both.near, *far = both.far;
    const uint32_t port = both.port;
    EXPECT_OK(kvmem_agent_send_partial_metadata(near, NULL, 0, "127.0.0.1", port, ERR)); /* how to connect */
    await_metadata(far, "near", KVMEM_STATUS_OK);
    const kvmem_nixl_descriptor one = memory_at(memory, sizeof(memory));
    OWN(kvmem_segments, segments, kvmem_segments_register, near, &one, 1, NULL);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "", kvmem_prepared_create, far, "near", &one, 1, NULL);
    EXPECT_OK(kvmem_agent_send_partial_metadata(near, &one, 1, "127.0.0.1", port, ERR));
    const struct timespec pause = {0, 1000000};
    OWNED(kvmem_prepared) prepared = NULL;
    while (kvmem_prepared_create(far, "near", &one, 1, NULL, &prepared, NULL) != KVMEM_STATUS_OK)
        nanosleep(&pause, NULL);
    const uint32_t nowhere = free_port();
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, "nothing listens",
                   kvmem_agent_send_partial_metadata(near, &one, 1, "127.0.0.1", nowhere, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, "nothing listens",
                   kvmem_agent_invalidate_local_metadata(near, "127.0.0.1", nowhere, ERR));
    EXPECT_OK(kvmem_agent_invalidate_local_metadata(near, "127.0.0.1", port, ERR));
    while (kvmem_agent_connect(far, "near", NULL, KVMEM_TIMEOUT_FOREVER, NULL) == KVMEM_STATUS_OK) {
        nanosleep(&pause, NULL); /* NIXL removes it on its own thread */
    }
}

/* A layout of the far agent of two that listen, and transfers of it by two methods: one prepares its lists,
   the other lists memory for each request. */
typedef struct meeting {
    listeners both;
    kv_side near, far;
    kvmem_layout *remote;
    kvmem_transfer *transfers[2];
} meeting;

static const kv_move move = KV_MOVE(3, {6, 0}, {0, 5}, {3, 3});

static void meeting_open(meeting *meeting) {
    static const uint32_t methods[] = {KVMEM_METHOD_NIXL, KVMEM_METHOD_NIXL_STAGED};
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    listeners_open(&meeting->both);
    kv_side_open(&meeting->near, &config, meeting->both.near, 1);
    kv_side_open(&meeting->far, &config, meeting->both.far, 2);
    EXPECT_OK(fetch_far(&meeting->both, "127.0.0.1", PATIENCE));
    meeting->remote = layout_import(meeting->both.near, meeting->far.layout);
    for (size_t i = 0; i < NUM(methods); i++) {
        meeting->transfers[i] = MADE(kvmem_transfer, kv_prepare, meeting->remote, meeting->near.layout,
                                     KV_JOB(&move, it.transfer.method = methods[i]));
        RUN(meeting->transfers[i]);
    }
}

static void meeting_close(meeting *meeting) {
    for (size_t i = 0; i < NUM(meeting->transfers); i++) kvmem_transfer_destroy(meeting->transfers[i]);
    kvmem_layout_destroy(meeting->remote);
    kv_side_close(&meeting->far);
    kv_side_close(&meeting->near);
    listeners_close(&meeting->both);
}

static void withdraw_far(const meeting *meeting, uint32_t near_port) {
    EXPECT_OK(kvmem_agent_invalidate_local_metadata(meeting->both.far, "127.0.0.1", near_port, ERR));
    await_metadata(meeting->both.near, "far", KVMEM_STATUS_NOT_FOUND);
}

static void expect_stale(const meeting *meeting) {
    for (size_t i = 0; i < NUM(meeting->transfers); i++) {
        EXPECT(KVMEM_STATUS_STALE, submit_and_wait(meeting->transfers[i], PATIENCE));
        CHECK_HAS(test_last_message(), "far");
    }
    REFUSE(KVMEM_STATUS_STALE, "far", kv_prepare, meeting->remote, meeting->near.layout, KV_JOB(&move));
}

/* NIXL's thread removes the metadata, and loads it again. */
TEST(layouts_of_a_peer_that_withdrew_are_stale_after_it_came_back) {
    OPENED(meeting, meeting);
    withdraw_far(&meeting, meeting.both.near_port);
    EXPECT_OK(fetch_far(&meeting.both, "127.0.0.1", PATIENCE));
    /* the call has waited for it */
    EXPECT_OK(kvmem_agent_check_remote_metadata(meeting.both.near, "far", ERR));
    expect_stale(&meeting);
    OWNED(kvmem_layout) again = layout_import(meeting.both.near, meeting.far.layout);
    kv_run(again, meeting.near.layout, &move);
}

/* Nothing asks for the peer while it is away. */
TEST(a_peer_that_withdrew_and_came_back_unseen_is_another) {
    OPENED(meeting, meeting);
    EXPECT_OK(kvmem_agent_invalidate_local_metadata(meeting.both.far, "127.0.0.1", meeting.both.near_port,
                                                    ERR));
    EXPECT_OK(kvmem_agent_send_local_metadata(meeting.both.far, "127.0.0.1", meeting.both.near_port, ERR));
    CLEANUP(message_free) message descriptor = layout_descriptor(meeting.far.layout);
    const struct timespec pause = {0, 1000000};
    kvmem_layout *again = NULL; /* until NIXL's thread has done both */
    while (kvmem_layout_import(meeting.both.near, descriptor.data, descriptor.size, &again,
                               NULL) != KVMEM_STATUS_OK)
        nanosleep(&pause, NULL);
    expect_stale(&meeting);
    kv_run(again, meeting.near.layout, &move);
    kvmem_layout_destroy(again);
}

/* NIXL does not report the reason. */
TEST(a_port_in_use_is_named) {
    uint32_t port = 0;
    CLEANUP(test_close) const int listener = bound_socket(INADDR_ANY, &port);
    CHECK_EQ(listen(listener, 1), 0);
    REFUSE(KVMEM_STATUS_NIXL, TEXT("TCP port %u", port), kvmem_agent_create, "second",
           REF(OPTIONS(kvmem_agent_options, it.flags = KVMEM_AGENT_LISTEN_THREAD, it.listen_port = port)));
    CHECK_HAS(test_last_message(), "set listen_port");
}

TEST(an_address_where_nothing_listens_is_reported_at_once) {
    uint32_t near_port = 0;
    OWNED(kvmem_agent) near = listening_agent("near", &near_port);
    const uint32_t port = free_port();
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, "nothing listens at 127.0.0.1",
                   kvmem_agent_fetch_remote_metadata(near, "far", "127.0.0.1", port, KVMEM_TIMEOUT_FOREVER,
                                                     ERR));
    CHECK_HAS(test_last_message(), "far");
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, "nothing listens at 127.0.0.1",
                   kvmem_agent_send_local_metadata(near, "127.0.0.1", port, ERR));
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_agent_check_remote_metadata(near, "far", ERR));
    CLEANUP(message_free) message metadata = agent_metadata(near); /* the agent still works */
}

/* The listening process is not an agent. */
TEST(a_peer_that_does_not_reply_fails_in_time) {
    uint32_t near_port = 0;
    OWNED(kvmem_agent) near = listening_agent("near", &near_port);
    uint32_t port = 0;
    CLEANUP(test_close) const int listener = bound_socket(INADDR_LOOPBACK, &port);
    CHECK_EQ(listen(listener, 16), 0);
    EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, "agent 'far' from 127.0.0.1",
                   kvmem_agent_fetch_remote_metadata(near, "far", "127.0.0.1", port, MILLISECONDS(700), ERR));
}

/* Its queue of connections is full, so that the kernel ignores further ones, as a machine that is gone does. */
TEST(a_peer_that_does_not_accept_delays_a_send_for_a_time) {
    uint32_t near_port = 0, port = 0;
    OWNED(kvmem_agent) near = listening_agent("near", &near_port);
    const int listener = bound_socket(INADDR_LOOPBACK, &port);
    CHECK_EQ(listen(listener, 0), 0);
    int fillers[4];
    const struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                        .sin_port = htons((uint16_t)port)};
    for (size_t i = 0; i < NUM(fillers); i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        CHECK(connect(fillers[i], (const struct sockaddr *)&address, sizeof(address)) != 0);
        CHECK_EQ(errno, EINPROGRESS);
    }
    EXPECT_OK(kvmem_agent_send_local_metadata(near, "127.0.0.1", port, ERR));
    for (size_t i = 0; i < NUM(fillers); i++) close(fillers[i]);
    close(listener); /* before NIXL's listen thread tries to connect for minutes */
    CLEANUP(message_free) message metadata = agent_metadata(near);
}

TEST(impossible_addresses_fail) {
    const uint64_t forever = KVMEM_TIMEOUT_FOREVER;
    static const char *const texts[] = {"local host", "127.0.0", "127.0.0.256", "::1", ""};
    uint32_t near_port = 0;
    OWNED(kvmem_agent) near = listening_agent("near", &near_port);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "65536",
                   kvmem_agent_fetch_remote_metadata(near, "far", "127.0.0.1", 65536, 0, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "65536",
                   kvmem_agent_send_local_metadata(near, "127.0.0.1", 65536, ERR));
    for (size_t i = 0; i < NUM(texts); i++) {
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "is not an IPv4 address",
                       kvmem_agent_fetch_remote_metadata(near, "far", texts[i], 9, forever, ERR));
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "is not an IPv4 address",
                       kvmem_agent_send_local_metadata(near, texts[i], 9, ERR));
    }
}

TEST(without_a_listen_thread_transfers_by_address_fail) {
    uint32_t port = 0;
    OWNED(kvmem_agent) far = listening_agent("far", &port);
    OWNED(kvmem_agent) near = agent_open("near");
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "KVMEM_AGENT_LISTEN_THREAD",
                   kvmem_agent_fetch_remote_metadata(near, "far", "127.0.0.1", port, KVMEM_TIMEOUT_FOREVER,
                                                     ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "KVMEM_AGENT_LISTEN_THREAD",
                   kvmem_agent_send_local_metadata(near, "127.0.0.1", port, ERR));
}

/* Sockets of this process with this local port: a listening one, and accepted ones. UCX opens others
   meanwhile. */
static size_t count_sockets(uint32_t port) {
    size_t count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        struct sockaddr_in address = {0};
        socklen_t size = sizeof(address);
        count += getsockname(fd, (struct sockaddr *)&address, &size) == 0 && address.sin_family == AF_INET &&
                 ntohs(address.sin_port) == port;
    }
    return count;
}

/* Connections that only test whether a peer listens are closed on both sides. */
TEST(checks_leave_no_connection_open) {
    OPENED(listeners, both);
    const struct timespec pause = {0, 1000000};
    EXPECT_OK(kvmem_agent_send_local_metadata(both.near, "127.0.0.1", both.port, ERR));
    await_metadata(both.far, "near", KVMEM_STATUS_OK); /* then NIXL has its connection */
    const size_t before = count_sockets(both.port);
    for (int i = 0; i < 8; i++)
        EXPECT_OK(kvmem_agent_send_local_metadata(both.near, "127.0.0.1", both.port, ERR));
    while (count_sockets(both.port) > before) {
        nanosleep(&pause, NULL); /* NIXL closes them on its own thread */
    }
}
