// SPDX-License-Identifier: Apache-2.0
// Brokers and clients of different users, forked brokers, and other files at a broker's path.
#include "server.h"

#include <sched.h>
#include <sys/un.h>

CLIENT_ROLE

#define FILE_LIMIT 200

enum { TAG_REQUEST = 10, TAG_TOKEN };

/* Few enough that the user reaches the limit of files in flight, and enough for the broker to run. */
static void limit_open_files(void) {
    const struct rlimit few = {.rlim_cur = FILE_LIMIT, .rlim_max = FILE_LIMIT};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
}

/* Role: a broker that switches to a user, and serves that user and root. */
ROLE(foreign_broker) {
    limit_open_files();
    fetch_request request;
    frame_expect_into(socket, TAG_REQUEST, &request, sizeof(request));
    switch_user(request.user);
    OPENED(sample, sample);
    const uint32_t users[] = {request.user, 0};
    kvmem_broker_options options = WITH(server_options(), it.path = request.path, it.users = users,
                                        it.num_users = NUM(users), it.mode = 0666);
    OWN(kvmem_broker, broker, kvmem_broker_create, &options);
    GET(kvmem_token, token, kvmem_broker_publish, broker, "kv", sample.share, NULL);
    frame_send(socket, TAG_TOKEN, &token, sizeof(token));
    char end = 0;
    CHECK_EQ(recv(socket, &end, 1, 0), 0);
}

static peer start_foreign_broker(const scratch *directory, fetch_request *request) {
    CHECK_EQ(chown(directory->path, NOBODY_UID, NOBODY_UID), 0);
    snprintf(request->path, sizeof(request->path), "%s", scratch_file(directory, "broker"));
    strcpy(request->name, "kv");
    request->user = NOBODY_UID;
    peer peer = peer_start("foreign_broker");
    frame_send(peer.socket, TAG_REQUEST, request, sizeof(*request));
    frame_expect_into(peer.socket, TAG_TOKEN, &request->token, sizeof(request->token));
    return peer;
}

/* A process that listens at the path of a broker is not trusted for that alone. */
TEST(a_broker_of_another_user_is_trusted_only_by_name) {
    require_other_users("a broker of another user");
    SCRATCH(directory);
    fetch_request request = {.flags = 0};
    peer peer = start_foreign_broker(&directory, &request);
    kvmem_fetch_options options = request_options(&request);
    kvmem_share *share = NULL;
    EXPECT_MESSAGE(KVMEM_STATUS_PERMISSION_DENIED, "runs as user 65534, expected user 0",
                   kvmem_share_fetch(&options, PATIENCE, &share, ERR));
    CHECK(share == NULL);
    options.flags = KVMEM_FETCH_BROKER_USER;
    options.broker_user = 1;
    EXPECT_MESSAGE(KVMEM_STATUS_PERMISSION_DENIED, "expected user", kvmem_share_fetch(&options, PATIENCE, &share, ERR));
    options.broker_user = NOBODY_UID;
    EXPECT_OK(kvmem_share_fetch(&options, PATIENCE, &share, ERR));
    kvmem_region *region = sample_import(share);
    sample_mark(region);
    kvmem_region_destroy(region);
    kvmem_share_destroy(share);
    /* A client of the broker's own user trusts it. */
    client_expect(&request, KVMEM_STATUS_OK, "");
    peer_finish(&peer);
    CHECK_EQ(count_directory_entries(directory.path), 0);
}

/* Not even root replaces the socket file of another user. */
TEST(a_socket_that_another_user_left_stays) {
    require_other_users("a socket that another user left");
    SCRATCH(directory);
    CHECK_EQ(chmod(directory.path, 0777), 0);
    fetch_request request = {.flags = 0};
    peer peer = start_foreign_broker(&directory, &request);
    peer_kill(&peer);
    kvmem_broker_options options = WITH(server_options(), it.path = request.path);
    REFUSE(KVMEM_STATUS_ALREADY_EXISTS, "user 65534", kvmem_broker_create, &options);
    CHECK_EQ(count_directory_entries(directory.path), 1);
}

/* The kernel limits how many files of a user are in flight, over all receivers. */
TEST(unread_files_of_one_user_do_not_block_others) {
    require_other_users("files that another user leaves unread");
    SCRATCH(directory);
    fetch_request request = {.flags = 0};
    CLEANUP(peer_finish) peer peer = start_foreign_broker(&directory, &request);
    int clients[FILE_LIMIT / 2 + 10]; /* a reply has two files */
    for (size_t i = 0; i < NUM(clients); i++) {
        clients[i] = ask_raw(request.path, "kv", &request.token, WHOLE_REQUEST); /* its reply is not read */
    }
    struct pollfd readable = {.fd = clients[0], .events = POLLIN};
    CHECK_EQ(poll(&readable, 1, PATIENCE_MS), 1);
    client_expect(&request, KVMEM_STATUS_OK, "");
    for (size_t i = 0; i < NUM(clients); i++) { /* each reply arrives once those before it were read */
        OWNED(kvmem_share) share = NULL;
        EXPECT_OK(kvmem_share_receive(clients[i], PATIENCE, &share, ERR));
    }
    for (size_t i = 0; i < NUM(clients); i++) close(clients[i]);
}

/* A program that changes its working directory, as daemons do. */
TEST(a_relative_path_is_removed_where_it_was_created) {
    SCRATCH(first);
    SCRATCH(second);
    const int before = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    CHECK(before >= 0);
    CHECK_EQ(chdir(first.path), 0);
    const kvmem_broker_options options = WITH(server_options(), it.path = "broker");
    kvmem_broker *broker = MADE(kvmem_broker, kvmem_broker_create, &options);
    CHECK_EQ(chdir(second.path), 0);
    const int other = open("broker", O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(other >= 0);
    close(other);
    kvmem_broker_destroy(broker);
    CHECK_EQ(count_directory_entries(first.path), 0);
    CHECK_EQ(count_directory_entries(second.path), 1);
    CHECK_EQ(fchdir(before), 0);
    close(before);
}

/* ---- user namespaces ---- */

enum { TAG_ENTERED = 20, TAG_MAPPED };

/* Role: as user 65534 of a user namespace that has no other users. The kernel shows every user outside of it
   as 65534, too. */
ROLE(lone_user) {
    fetch_request request;
    frame_expect_into(socket, TAG_REQUEST, &request, sizeof(request));
    const int failure = unshare(CLONE_NEWUSER) == 0 ? 0 : errno;
    frame_send(socket, TAG_ENTERED, &failure, sizeof(failure));
    if (failure != 0) return;
    char mapped;
    frame_expect_into(socket, TAG_MAPPED, &mapped, sizeof(mapped));
    switch_user(NOBODY_UID);
    kvmem_broker_options service = WITH(server_options(), it.path = TEXT("%s-2", request.path));
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "user 65534 cannot be served", kvmem_broker_create, &service);
    const kvmem_fetch_options options = request_options(&request);
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, "no number here", kvmem_share_fetch, &options, PATIENCE);
}

static void map_user(pid_t process, const char *map) {
    const char *path = TEXT("/proc/%d/%s", (int)process, map);
    const int file = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(file >= 0);
    CHECK_EQ(write(file, "65534 65534 1\n", 14), 14);
    close(file);
}

TEST(users_without_a_number_are_neither_served_nor_trusted) {
    require_other_users("a user namespace");
    const uint32_t users[] = {NOBODY_UID};
    kvmem_broker_options options =
        WITH(server_options(), it.users = users, it.num_users = NUM(users), it.mode = 0666);
    OPENED(server, server, &options);
    CHECK_EQ(chmod(server.directory.path, 0777), 0);
    const fetch_request request = request_of(&server);
    CLEANUP(peer_finish) peer lone = peer_start("lone_user");
    frame_send(lone.socket, TAG_REQUEST, &request, sizeof(request));
    int failure;
    frame_expect_into(lone.socket, TAG_ENTERED, &failure, sizeof(failure));
    if (failure != 0) SKIP("user namespaces are not permitted: %s", strerror(failure));
    map_user(lone.pid, "uid_map");
    map_user(lone.pid, "gid_map");
    frame_send(lone.socket, TAG_MAPPED, "m", 1);
}

/* Sockets of other types are in use while they are open. */
TEST(a_path_without_a_broker_is_neither_replaced_nor_trusted) {
    SCRATCH(directory);
    const kvmem_token token = {{0}};
    fetch_request request = {.name = "kv", .token = token};
    snprintf(request.path, sizeof(request.path), "%s", scratch_file(&directory, "broker"));
    const kvmem_fetch_options fetch = request_options(&request);
    kvmem_broker_options options = WITH(server_options(), it.path = request.path);
    kvmem_broker *broker = NULL;
    kvmem_share *share = NULL;

    static const int kinds[] = {SOCK_DGRAM, SOCK_SEQPACKET};
    for (size_t i = 0; i < NUM(kinds); i++) {
        const int other = bind_raw(request.path, kinds[i]);
        if (kinds[i] == SOCK_SEQPACKET) CHECK_EQ(listen(other, 1), 0);
        EXPECT(KVMEM_STATUS_ALREADY_EXISTS, kvmem_broker_create(&options, &broker, ERR));
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "another type", kvmem_share_fetch(&fetch, PATIENCE, &share, ERR));
        close(other);
        EXPECT(KVMEM_STATUS_PEER_LOST, kvmem_share_fetch(&fetch, PATIENCE, &share, ERR));
        /* the file remains, but its socket is closed */
        EXPECT_OK(kvmem_broker_create(&options, &broker, ERR));
        DESTROYED(kvmem_broker, broker);
        CHECK_EQ(count_directory_entries(directory.path), 0);
    }
    const int file = open(request.path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(file >= 0);
    close(file);
    EXPECT_MESSAGE(KVMEM_STATUS_ALREADY_EXISTS, "not a socket", kvmem_broker_create(&options, &broker, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "not a socket", kvmem_share_fetch(&fetch, PATIENCE, &share, ERR));
    CHECK_EQ(unlink(request.path), 0);
    CHECK_EQ(symlink("nowhere", request.path), 0);
    EXPECT(KVMEM_STATUS_ALREADY_EXISTS, kvmem_broker_create(&options, &broker, ERR));
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_share_fetch(&fetch, PATIENCE, &share, ERR));
    CHECK_EQ(unlink(request.path), 0);
    CHECK_EQ(mkdir(request.path, 0700), 0);
    EXPECT(KVMEM_STATUS_ALREADY_EXISTS, kvmem_broker_create(&options, &broker, ERR));
    CHECK(kvmem_share_fetch(&fetch, PATIENCE, &share, ERR) < 0);
    CHECK_EQ(rmdir(request.path), 0);
}

static server forked;

/* Handles of the parent fail in a forked child, and the parent's objects are unchanged. */
static void use_in_child(void) {
    kvmem_token token;
    kvmem_broker_info info;
    EXPECT(KVMEM_STATUS_INVALID_STATE,
           kvmem_broker_publish(forked.broker, "other", forked.sample.share, NULL, &token, ERR));
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_broker_grant(forked.broker, "kv", NULL, &token, ERR));
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_broker_unpublish(forked.broker, "kv", ERR));
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_broker_get_info(forked.broker, &info, ERR));
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_share_send(forked.sample.share, 0, 0, ERR));
    kvmem_broker_destroy(forked.broker);
    /* The child can be a client of the parent's broker. */
    server_check_service(&forked);
    /* The child can create a broker. */
    OPENED(server, own, NULL);
    server_check_service(&own);
}

TEST(handles_of_a_broker_fail_in_a_forked_child) {
    KEEPS_FILES;
    server_open(&forked, NULL);
    in_a_forked_child(use_in_child);
    server_check_service(&forked);
    server_close(&forked);
}
