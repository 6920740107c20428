// SPDX-License-Identifier: Apache-2.0
// Calls on shares and brokers. Sockets exist only during one call of the fuzzer.
#include "options.h"
#include "owned.h"
#include "table.h"

#define MAX_FDS 24
#define NUM_TOKENS 3

/* Tokens of all brokers. */
static pthread_mutex_t token_lock = PTHREAD_MUTEX_INITIALIZER;
static kvmem_token tokens[NUM_TOKENS];

static kvmem_token some_token(fuzz *fuzz) {
    pthread_mutex_lock(&token_lock);
    const kvmem_token token = random_of(fuzz, tokens);
    pthread_mutex_unlock(&token_lock);
    return token;
}

static void keep_token(fuzz *fuzz, const kvmem_token *token) {
    pthread_mutex_lock(&token_lock);
    random_of(fuzz, tokens) = *token;
    pthread_mutex_unlock(&token_lock);
}

void shares_forget_tokens(void) { memset(tokens, 0, sizeof(tokens)); }

static kvmem_share_options share_options(fuzz *fuzz) {
    FUZZ_OPTIONS(kvmem_share_options, options);
    options.flags = random_flags(fuzz, KVMEM_SHARE_READ_ONLY) |
                    (random_one_in(fuzz, 5) ? KVMEM_SHARE_WRITE_SEALED : 0);
    options.transport = random_one_in(fuzz, 4) ? (uint32_t)random_below(fuzz, 6) : KVMEM_SHARE_AUTO;
    options_spoil(fuzz, &options.reserved);
    options.struct_size = random_struct_size(fuzz, sizeof(options));
    return options;
}

CREATES_WITH(share_region, SHARES, kvmem_share_create_region, REGIONS, kvmem_share_options, share_options)
CREATES_WITH(share_layout, SHARES, kvmem_share_create_layout, LAYOUTS, kvmem_share_options, share_options)

/* The bytes of a share, unchanged or with a few changes. */
static void create_received(fuzz *fuzz) {
    const kvmem_share *share = table_pick(fuzz, SHARES);
    kvmem_share_info info = {0};
    TRY(fuzz, kvmem_share_get_info, share, &info);
    unsigned char copy[4096];
    if (info.data == NULL || info.size > sizeof(copy)) {
        CREATE(fuzz, SHARES, kvmem_share_create_received, info.data, info.size, info.fds, info.num_fds);
        return;
    }
    int32_t fds[MAX_FDS];
    const size_t size = info.size, num_fds = info.num_fds < MAX_FDS ? info.num_fds : MAX_FDS;
    memcpy(copy, info.data, size);
    if (num_fds > 0) memcpy(fds, info.fds, num_fds * sizeof(*fds));
    for (uint64_t i = random_one_in(fuzz, 2) ? random_below(fuzz, 4) : 0; i > 0 && size > 0; i--)
        copy[random_below(fuzz, size)] = (unsigned char)random_next(fuzz);
    if (num_fds > 0 && random_one_in(fuzz, 20)) fds[random_below(fuzz, num_fds)] = -1;
    CREATE(fuzz, SHARES, kvmem_share_create_received, copy,
           random_one_in(fuzz, 20) ? random_below(fuzz, size + 1) : size,
           or_null(fuzz, fds), random_one_in(fuzz, 20) ? random_below(fuzz, num_fds + 1) : num_fds);
}


static kvmem_open_options open_options(fuzz *fuzz) {
    const uint64_t known =
        KVMEM_OPEN_READ_ONLY | KVMEM_OPEN_PIN | KVMEM_OPEN_MAPPED_ONLY | KVMEM_OPEN_REMOTE |
                           KVMEM_OPEN_REGISTER | KVMEM_OPEN_FOR_DEVICE | KVMEM_OPEN_READ_WRITE;
    FUZZ_OPTIONS(kvmem_open_options, options);
    options.flags = random_flags(fuzz, known);
    options.agent = random_one_in(fuzz, 3) ? table_pick(fuzz, AGENTS) : NULL;
    const bool names_device = (options.flags & (KVMEM_OPEN_PIN | KVMEM_OPEN_FOR_DEVICE)) != 0;
    options.device = names_device || random_one_in(fuzz, 40) ? random_device(fuzz) : 0;
    options_spoil(fuzz, &options.reserved);
    options.struct_size = random_struct_size(fuzz, sizeof(options));
    return options;
}

CREATES_WITH(open_region, REGIONS, kvmem_share_open_region, SHARES, kvmem_open_options, open_options)
CREATES_WITH(open_layout, LAYOUTS, kvmem_share_open_layout, SHARES, kvmem_open_options, open_options)

/* Over a socket pair, complete or truncated. */
static void send_and_receive(fuzz *fuzz) {
    int ends[2];
    const int type = random_one_in(fuzz, 2) ? SOCK_STREAM : SOCK_SEQPACKET;
    if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) != 0) fuzz_fail(fuzz, "no socket pair");
    if (random_one_in(fuzz, 8)) {
        unsigned char invalid[64];
        for (size_t i = 0; i < sizeof(invalid); i++) invalid[i] = (unsigned char)random_next(fuzz);
        if (send(ends[0], invalid, sizeof(invalid), MSG_NOSIGNAL) < 0) fuzz_fail(fuzz, "nothing can be sent");
    }
    const int closed = random_one_in(fuzz, 20) ? close(ends[1]), -1 : ends[1];
    TRY(fuzz, kvmem_share_send, table_pick(fuzz, SHARES), random_one_in(fuzz, 30) ? -1 : ends[0],
        random_timeout(fuzz));
    CREATE(fuzz, SHARES, kvmem_share_receive, closed, random_timeout(fuzz));
    close(ends[0]);
    if (closed >= 0) close(closed);
}

DESTROYS(destroy_share, SHARES)

static void create_broker(fuzz *fuzz) {
    const uint32_t users[] = {(uint32_t)getuid(), 12345};
    FUZZ_OPTIONS(kvmem_broker_options, options);
    options.path = random_one_in(fuzz, 30) ? "/nowhere/socket" : or_null(fuzz, owned_socket_path(fuzz));
    options.users = random_one_in(fuzz, 4) ? users : NULL;
    options.num_users = options.users != NULL || random_one_in(fuzz, 40) ? 1 + random_below(fuzz, 2) : 0;
    options.client_timeout_ns = random_one_in(fuzz, 3) ? 1000000 : 0;
    options.max_bytes_per_user = random_one_in(fuzz, 6) ? random_below(fuzz, 2000) : 0;
    options.mode = random_one_in(fuzz, 3) ? 0666 : 0;
    options.max_clients = random_one_in(fuzz, 6) ? (uint32_t)random_below(fuzz, 3) : 0;
    options.max_clients_per_user = random_one_in(fuzz, 6) ? (uint32_t)random_below(fuzz, 3) : 0;
    options_spoil(fuzz, &options.reserved);
    options.struct_size = random_struct_size(fuzz, sizeof(options));
    CREATE(fuzz, BROKERS, kvmem_broker_create, or_null(fuzz, &options));
}

static const char *share_name(fuzz *fuzz) {
    static const char *const names[] = {"kv", "kv", "kv", "kv", "kv", "other", "", NULL};
    return random_of(fuzz, names);
}

static kvmem_publish_options publish_options(fuzz *fuzz) {
    FUZZ_OPTIONS(kvmem_publish_options, options);
    options.flags = random_flags(fuzz, KVMEM_PUBLISH_READ_ONLY);
    options.max_uses = random_below(fuzz, 3);
    options.lifetime_ns = random_one_in(fuzz, 6) ? random_timeout(fuzz) : 0;
    options.struct_size = random_struct_size(fuzz, sizeof(options));
    return options;
}

static void publish(fuzz *fuzz) {
    const kvmem_publish_options options = publish_options(fuzz);
    kvmem_token token;
    kvmem_broker *broker = table_pick(fuzz, BROKERS);
    const kvmem_share *share = table_pick(fuzz, SHARES);
    if (TRY(fuzz, kvmem_broker_publish, broker, share_name(fuzz), share, or_null(fuzz, &options), &token) ==
        KVMEM_STATUS_OK) {
        keep_token(fuzz, &token);
    }
}

static void grant(fuzz *fuzz) {
    const kvmem_publish_options options = publish_options(fuzz);
    kvmem_token token;
    kvmem_broker *broker = table_pick(fuzz, BROKERS);
    if (TRY(fuzz, kvmem_broker_grant, broker, share_name(fuzz), or_null(fuzz, &options),
            &token) == KVMEM_STATUS_OK)
        keep_token(fuzz, &token);
}

TRIES_WITH(unpublish, kvmem_broker_unpublish, BROKERS, share_name(fuzz))

static void fetch(fuzz *fuzz) {
    const kvmem_token token = some_token(fuzz);
    FUZZ_OPTIONS(kvmem_fetch_options, options);
    options.flags =
        random_one_in(fuzz, 3) ? random_flags(fuzz, KVMEM_FETCH_READ_ONLY | KVMEM_FETCH_READ_WRITE) : 0;
    options.flags |= random_one_in(fuzz, 10) ? KVMEM_FETCH_BROKER_USER : 0;
    options.path = owned_socket_path(fuzz);
    options.name = share_name(fuzz);
    options.token = or_null(fuzz, &token);
    options.broker_user =
        (options.flags & KVMEM_FETCH_BROKER_USER) != 0 ? (uint32_t)random_below(fuzz, 2) : 0;
    options_spoil(fuzz, &options.reserved);
    options.struct_size = random_struct_size(fuzz, sizeof(options));
    CREATE(fuzz, SHARES, kvmem_share_fetch, or_null(fuzz, &options),
           random_one_in(fuzz, 4) ? random_timeout(fuzz) : MILLISECONDS(100));
}

DESTROYS(destroy_broker, BROKERS)

/* A new broker and its client. Random choices seldom combine a matching name, token and path. */
static void fetch_from_new_broker(fuzz *fuzz) {
    const kvmem_broker_options options = OPTIONS(kvmem_broker_options, it.path = owned_socket_path(fuzz));
    kvmem_fetch_options order = OPTIONS(kvmem_fetch_options, it.path = options.path, it.name = "kv");
    kvmem_token token;
    OWNED(kvmem_broker) broker = NULL;
    TRY(fuzz, kvmem_broker_create, &options, &broker);
    TRY(fuzz, kvmem_broker_publish, broker, "kv", table_pick_one(fuzz, SHARES), NULL, &token);
    if (TRY(fuzz, kvmem_broker_grant, broker, "kv", NULL, &token) == KVMEM_STATUS_OK) {
        order.token = &token;
        CREATE(fuzz, SHARES, kvmem_share_fetch, &order, MILLISECONDS(100));
        TRY(fuzz, kvmem_broker_unpublish, broker, "kv");
    }
}

const operation share_operations[] = {
    OPERATION_WITH(14, share_region, BIT(REGIONS), BIT(SHARES)),
    OPERATION_WITH(8, share_layout, BIT(LAYOUTS), BIT(SHARES)),
    OPERATION_WITH(10, create_received, BIT(SHARES), 0),
    OPERATION_WITH(14, open_region, BIT(SHARES), 0),
    OPERATION_WITH(10, open_layout, BIT(SHARES), 0),
    OPERATION_WITH(6, send_and_receive, BIT(SHARES), 0),
    OPERATION_WITH(12, destroy_share, BIT(SHARES), 0),
    OPERATION_WITH(4, create_broker, 0, BIT(BROKERS)),
    OPERATION_WITH(8, publish, BIT(BROKERS) | BIT(SHARES), 0),
    OPERATION_WITH(2, grant, BIT(BROKERS), 0),
    OPERATION_WITH(2, unpublish, BIT(BROKERS), 0),
    OPERATION_WITH(8, fetch, BIT(BROKERS), 0),
    OPERATION_WITH(3, destroy_broker, BIT(BROKERS), 0),
    OPERATION_WITH(2, fetch_from_new_broker, BIT(SHARES), 0),
    {0},
};
