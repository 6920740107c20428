// SPDX-License-Identifier: Apache-2.0
// Which processes a broker serves, for which tokens, and what the others receive.
#include "server.h"

#include <sys/un.h>

CLIENT_ROLE

/* A user that is neither root nor NOBODY_UID. */
#define OTHER_USER 65533u

static kvmem_publish_options publish_options(void) { return OPTIONS(kvmem_publish_options); }

TEST(another_process_fetches_and_maps_a_region) {
    KEEPS_FILES;
    OPENED(server, server, NULL);
    const fetch_request request = request_of(&server);
    for (int i = 0; i < 3; i++) {
        client_expect(&request, KVMEM_STATUS_OK, "");
        sample_await_mark(&server.sample);
    }
    const kvmem_broker_info info = server_info(&server);
    CHECK_EQ(info.publications, 1);
    CHECK_EQ(info.granted, 3);
    CHECK_EQ(info.refused, 0);
}

TEST(memory_adopted_from_a_file_is_fetched_and_mapped) {
    KEEPS_FILES;
    OPENED(server, server, NULL);
    sample file;
    sample_open_in_file(&file);
    CHECK_EQ(region_info(file.region).origin, KVMEM_ORIGIN_ADOPTED);
    const fetch_request request = request_published(&server, "file", file.share);
    client_expect(&request, KVMEM_STATUS_OK, "");
    sample_await_mark(&file);
    CHECK_EQ(region_holders(file.region).importers, 0); /* the client has ended */
    sample_close(&file);
    client_expect(&request, KVMEM_STATUS_OK, ""); /* the published share stays */
}

TEST(a_published_share_outlives_its_handles) {
    OPENED(server, server, NULL);
    sample other;
    sample_open(&other);
    const fetch_request request = request_published(&server, "other", other.share);
    sample_close(&other);
    client_expect(&request, KVMEM_STATUS_OK, "");
    EXPECT_OK(kvmem_broker_unpublish(server.broker, "other", ERR));
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_broker_unpublish(server.broker, "other", ERR));
    client_expect(&request, KVMEM_STATUS_PERMISSION_DENIED, "not published");
}

TEST(a_name_is_published_once) {
    OPENED(server, server, NULL);
    kvmem_token token;
    EXPECT_MESSAGE(KVMEM_STATUS_ALREADY_EXISTS, "'kv' is published already; make another token by kvmem_broker_grant",
                   kvmem_broker_publish(server.broker, "kv", server.sample.share, NULL, &token, ERR));
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_broker_grant(server.broker, "vk", NULL, &token, ERR));
    EXPECT(KVMEM_STATUS_INVALID_ARGUMENT,
           kvmem_broker_publish(server.broker, "", server.sample.share, NULL, &token, ERR));
}

TEST(a_wrong_used_or_expired_token_is_denied) {
    OPENED(server, server, NULL);
    fetch_request request = request_of(&server);
    request.token.bytes[31] ^= 1;
    client_expect(&request, KVMEM_STATUS_PERMISSION_DENIED, "token is wrong");

    request = request_of(&server);
    strcpy(request.name, "vk");
    client_expect(&request, KVMEM_STATUS_PERMISSION_DENIED, "token is wrong");

    request = request_of(&server);
    request.token = server_grant(&server, REF(WITH(publish_options(), it.max_uses = 1)));
    client_expect(&request, KVMEM_STATUS_OK, "");
    client_expect(&request, KVMEM_STATUS_PERMISSION_DENIED, "used up");

    request.token = server_grant(&server, REF(WITH(publish_options(), it.lifetime_ns = 1)));
    client_expect(&request, KVMEM_STATUS_PERMISSION_DENIED, "expired");
    CHECK_EQ(server_info(&server).refused, 4);
}

TEST(a_read_only_token_denies_writing) {
    OPENED(server, server, NULL);
    kvmem_publish_options reading = WITH(publish_options(), it.flags = KVMEM_PUBLISH_READ_ONLY);
    fetch_request request = WITH(request_of(&server), it.token = server_grant(&server, &reading),
                                 it.flags = KVMEM_FETCH_READ_WRITE);
    client_expect(&request, KVMEM_STATUS_PERMISSION_DENIED, "write");
}

/* Without flags a fetch gets all rights that are granted. With READ_ONLY it gets no more than that; with
   READ_WRITE it fails unless both are granted. */
TEST(a_fetch_gets_the_rights_it_requests) {
    OPENED(server, server, NULL);
    kvmem_publish_options reading = WITH(publish_options(), it.flags = KVMEM_PUBLISH_READ_ONLY);
    fetch_request request = request_of(&server);
    const struct {
        kvmem_token token;
        uint64_t flags;
        uint32_t read_only;
    } asked[] = {
        {server_grant(&server, &reading), 0, 1},
        {server_grant(&server, &reading), KVMEM_FETCH_READ_ONLY, 1},
        {server.token, 0, 0},
        {server.token, KVMEM_FETCH_READ_WRITE, 0},
        {server.token, KVMEM_FETCH_READ_ONLY, 1},
    };
    for (size_t i = 0; i < NUM(asked); i++) {
        request.token = asked[i].token;
        request.flags = asked[i].flags;
        const fetch_result result = client_run(&request);
        CHECK_EQ(result.status, KVMEM_STATUS_OK);
        CHECK_EQ(result.read_only, asked[i].read_only);
    }
    request.flags = KVMEM_FETCH_READ_ONLY | KVMEM_FETCH_READ_WRITE;
    client_expect(&request, KVMEM_STATUS_INVALID_ARGUMENT, "exclude each other");
}

TEST(a_read_only_share_is_never_granted_for_writing) {
    OPENED(server, server, NULL);
    CLEANUP(sample_close) sample other;
    sample_make_read_only(&other);
    fetch_request request = request_published(&server, "other", other.share);
    request.flags = KVMEM_FETCH_READ_WRITE;
    client_expect(&request, KVMEM_STATUS_PERMISSION_DENIED, "");
    static const uint64_t enough[] = {0, KVMEM_FETCH_READ_ONLY};
    for (size_t i = 0; i < NUM(enough); i++) {
        request.flags = enough[i];
        const fetch_result result = client_run(&request);
        CHECK_EQ(result.status, KVMEM_STATUS_OK);
        CHECK_EQ(result.read_only, 1);
    }
}

/* Only root can switch to another user. Without root, the list contains only other users. */
TEST(users_that_are_not_listed_are_denied) {
    const uint32_t other_users[] = {geteuid() == 0 ? NOBODY_UID : (uint32_t)geteuid() + 1};
    OPENED(server, server, REF(WITH(server_options(), it.users = other_users, it.num_users = NUM(other_users),
                                    it.mode = 0666)));
    fetch_request request = request_of(&server);
    /* This holds for root too, if it is not listed. */
    client_expect(&request, KVMEM_STATUS_PERMISSION_DENIED, "may not fetch");
    if (can_test_other_users("clients of two other users")) {
        request.flags = KVMEM_FETCH_BROKER_USER;
        request.user = OTHER_USER;
        client_expect(&request, KVMEM_STATUS_PERMISSION_DENIED, "may not fetch");
        request.user = NOBODY_UID;
        client_expect(&request, KVMEM_STATUS_OK, "");
        /* The listening user is not among the trusted users. */
        request.flags = 0;
        client_expect(&request, KVMEM_STATUS_PERMISSION_DENIED, "expected user 65534");
    }
}

TEST(by_default_other_users_cannot_connect) {
    OPENED(server, server, NULL);
    struct stat found;
    CHECK_EQ(lstat(server.path, &found), 0);
    CHECK_EQ(found.st_mode & 07777, 0600);
    fetch_request request = request_of(&server);
    if (can_test_other_users("a client of another user at a socket of mode 0600")) {
        request.flags = KVMEM_FETCH_BROKER_USER;
        request.user = NOBODY_UID;
        client_expect(&request, KVMEM_STATUS_PERMISSION_DENIED, "may not connect");
        request.user = 0;
    }
    request.flags = KVMEM_FETCH_BROKER_USER;
    request.broker_user = (uint32_t)geteuid() + 1;
    client_expect(&request, KVMEM_STATUS_PERMISSION_DENIED, "expected user");
}

TEST(the_mode_of_the_socket_ignores_the_umask) {
    const mode_t masks[] = {0, 0022, 0177, 0777};
    const uint32_t modes[] = {0600, 0660, 0666};
    const mode_t before = umask(0);
    for (size_t i = 0; i < NUM(masks); i++) {
        for (size_t j = 0; j < NUM(modes); j++) {
            kvmem_broker_options options = WITH(server_options(), it.mode = modes[j]);
            umask(masks[i] & 077);
            OPENED(server, server, &options);
            umask(before);
            struct stat found;
            CHECK_EQ(lstat(server.path, &found), 0);
            CHECK_EQ(found.st_mode & 07777, modes[j]);
        }
    }
}

TEST(an_existing_file_at_the_path_is_unchanged) {
    OPENED(server, server, NULL);
    kvmem_broker_options options = WITH(server_options(), it.path = server.path);
    REFUSE(KVMEM_STATUS_ALREADY_EXISTS, "", kvmem_broker_create, &options);
    server_check_service(&server);

    const char *file = scratch_file(&server.directory, "file");
    write_file(file, "precious", 8);
    options.path = file;
    REFUSE(KVMEM_STATUS_ALREADY_EXISTS, "", kvmem_broker_create, &options);
    struct stat found;
    CHECK_EQ(lstat(file, &found), 0);
    CHECK_EQ(found.st_size, 8);
    unlink(file);
}

TEST(invalid_options_fail) {
    SCRATCH(directory);
    const uint32_t other = (uint32_t)geteuid() + 1;
    kvmem_broker_options options = WITH(server_options(), it.path = scratch_file(&directory, "broker"),
                                        it.users = &other, it.num_users = 1);
    kvmem_broker *broker = NULL;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "0666", kvmem_broker_create(&options, &broker, ERR));
    options = server_options();
    options.mode = 600;
    options.path = scratch_file(&directory, "broker");
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "in octal, such as 0600", kvmem_broker_create(&options, &broker, ERR));
    options.mode = 0;
    options.path = "/nowhere/at/all";
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, "the directory /nowhere/at does not exist",
                   kvmem_broker_create(&options, &broker, ERR));
    CHECK_EQ(count_directory_entries(directory.path), 0);
}
