// SPDX-License-Identifier: Apache-2.0
// Directories in etcd: the cases of every kind of directory, and faults of the server: it stops, is slow,
// loses its data, or requires certificates and passwords.
#include "directory_cases.h"
#include "etcd_server.h"
#include "slow_link.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#define LEASE 2 /* seconds; the minimum */
#define PASSWORD "correct-horse-battery-staple"

/* Shared by the cases that do not disturb it, each with its own prefix. */
static etcd_server shared;
static int places;

static etcd_server *shared_server(void) {
    if (shared.pid == 0) {
        etcd_server_open(&shared, false);
    }
    return &shared;
}

/* Options from "endpoint|prefix". */
kvmem_directory_options place_from_words(char *words) {
    static __thread const char *endpoints[1];
    char *prefix = strchr(words, '|');
    CHECK(prefix != NULL);
    *prefix = '\0';
    endpoints[0] = words;
    return OPTIONS(kvmem_directory_options, it.endpoints = endpoints, it.endpoint_count = 1,
                   it.prefix = prefix + 1,
                   it.lease_seconds = LEASE);
}

void place_open(place *place) {
    static char words[512];
    snprintf(place->words, sizeof(place->words), "%.63s|kvmem-test/%d-%d", shared_server()->endpoint,
             (int)getpid(),
             places++);
    snprintf(words, sizeof(words), "%s", place->words);
    place->options = place_from_words(words);
}

void place_close(place *place) {
    ETCD_CONTROL(&shared, "del", "--prefix", place->options.prefix);
}

/* The names in the cases need no encoding. */
void place_put(const place *place, const char *name, const void *data, size_t size) {
    const char *keys[] = {"entries", "agents"};
    for (size_t i = 0; i < NUM(keys); i++) {
        /* etcdctl reads the value from its input, unless the value is empty. */
        const char *put[] = {"put", TEXT("%s/%s/%s", place->options.prefix, keys[i], name),
                             size == 0 ? "" : NULL, NULL};
        etcd_control(&shared, put, data, size);
    }
}

void place_erase(const place *place, const char *name) {
    ETCD_CONTROL(&shared, "del", TEXT("%s/agents/%s", place->options.prefix, name));
    ETCD_CONTROL(&shared, "del", TEXT("%s/entries/%s", place->options.prefix, name));
}

/* ---- faults of the server ---- */

static kvmem_directory_options options_at(const char *const *endpoint) {
    return OPTIONS(kvmem_directory_options, it.endpoints = endpoint, it.endpoint_count = 1,
                   it.lease_seconds = LEASE);
}

/* A server, an agent that is published there, and a watcher that has received the event. */
typedef struct watched_server {
    etcd_server server;
    const char *endpoint;
    kvmem_agent *agent;
    kvmem_directory *publisher;
    kvmem_directory *watcher;
    kvmem_directory_entry *entry;
} watched_server;

static void watched_server_open(watched_server *watched_server) {
    etcd_server_open(&watched_server->server, false);
    watched_server->endpoint = watched_server->server.endpoint;
    watched_server->agent = agent_open("north");
    const kvmem_directory_options options = options_at(&watched_server->endpoint);
    EXPECT_OK(kvmem_directory_create(&options, &watched_server->publisher, ERR));
    EXPECT_OK(kvmem_directory_create(&options, &watched_server->watcher, ERR));
    EXPECT_OK(kvmem_directory_publish(watched_server->publisher, watched_server->agent, NULL, 0, PATIENCE,
                                      ERR));
    EXPECT_OK(kvmem_directory_watch(watched_server->watcher, NULL, PATIENCE, ERR));
    directory_await(watched_server->watcher, KVMEM_DIRECTORY_PUBLISHED, "north");
    EXPECT_OK(kvmem_directory_look_up(watched_server->watcher, "north", PATIENCE, &watched_server->entry,
                                      ERR));
}

static void watched_server_close(watched_server *watched_server) {
    kvmem_directory_entry_destroy(watched_server->entry);
    kvmem_directory_destroy(watched_server->watcher);
    kvmem_directory_destroy(watched_server->publisher);
    kvmem_agent_destroy(watched_server->agent);
    etcd_server_close(&watched_server->server);
}

/* Waits until the publisher has noticed, too. */
static void await_current(const watched_server *watched_server) {
    kvmem_status status;
    do {
        status = kvmem_directory_check(watched_server->watcher, watched_server->entry, PATIENCE, ERR);
        CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_NOT_FOUND || status == KVMEM_STATUS_IO);
    } while (status != KVMEM_STATUS_OK);
}

TEST(a_stopped_server_is_reported_with_the_cause_and_reached_again) {
    OPENED(watched_server, it);
    etcd_server_kill(&it.server);
    const kvmem_directory_event event = directory_await(it.watcher, KVMEM_DIRECTORY_INTERRUPTED, "");
    CHECK(event.status != KVMEM_STATUS_OK);
    CHECK(event.message[0] != '\0');
    kvmem_directory_entry *none;
    EXPECT_MESSAGE(KVMEM_STATUS_IO, "refused",
                   kvmem_directory_look_up(it.watcher, "north", PATIENCE, &none, ERR));
    CHECK_HAS(test_last_message(), it.endpoint);
    EXPECT_MESSAGE(KVMEM_STATUS_IO, "refused",
                   kvmem_directory_publish(it.publisher, it.agent, NULL, 0, PATIENCE, ERR));
    etcd_server_restart(&it.server, true);
    directory_await(it.watcher, KVMEM_DIRECTORY_RESUMED, "");
    EXPECT_OK(kvmem_directory_publish(it.publisher, it.agent, NULL, 0, PATIENCE, ERR));
    OWN(kvmem_directory_entry, found, kvmem_directory_look_up, it.watcher, "north", PATIENCE);
}

TEST(a_server_that_lost_its_data_gets_the_entries_again) {
    OPENED(watched_server, it);
    etcd_server_restart(&it.server, false);
    directory_await(it.watcher, KVMEM_DIRECTORY_RESUMED, "");
    await_current(&it);
    ETCD_CONTROL(&it.server, "del", "--prefix", ""); /* leases and watches survive this */
    await_current(&it);
}

TEST(a_slow_server_fails_calls_at_their_deadline) {
    OPENED(watched_server, it);
    etcd_server_freeze(&it.server);
    kvmem_directory_entry *none;
    EXPECT(KVMEM_STATUS_TIMED_OUT,
           kvmem_directory_look_up(it.watcher, "north", MILLISECONDS(200), &none, ERR));
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_directory_check(it.watcher, it.entry, MILLISECONDS(200), ERR));
    EXPECT(KVMEM_STATUS_TIMED_OUT,
           kvmem_directory_publish(it.publisher, it.agent, NULL, 0, MILLISECONDS(200), ERR));
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_directory_watch(it.watcher, "south", MILLISECONDS(200), ERR));
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_directory_withdraw(it.publisher, "north", MILLISECONDS(200), ERR));
    const kvmem_directory_options options = options_at(&it.endpoint);
    REFUSE(KVMEM_STATUS_TIMED_OUT, it.endpoint, kvmem_directory_create, &options); /* 5 seconds */
    etcd_server_thaw(&it.server);
    OWNED(kvmem_directory_entry) found = NULL;
    kvmem_status status;
    do { /* a connection may have timed out meanwhile */
        status = kvmem_directory_publish(it.publisher, it.agent, NULL, 0, PATIENCE, ERR);
        THEN(status, kvmem_directory_look_up(it.watcher, "north", PATIENCE, &found, ERR));
    } while (status == KVMEM_STATUS_NOT_FOUND || status == KVMEM_STATUS_IO);
    CHECK_EQ(status, KVMEM_STATUS_OK);
    EXPECT_OK(kvmem_directory_withdraw(it.publisher, "north", PATIENCE, ERR));
    REFUSE(KVMEM_STATUS_NOT_FOUND, "north", kvmem_directory_look_up, it.watcher, "north", PATIENCE);
}

/* A port whose connections are accepted by the kernel, and on which nothing ever responds. */
typedef struct silent_port {
    int listener;
    char endpoint[64];
} silent_port;

static void silent_port_open(silent_port *it) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    it->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(it->listener >= 0);
    CHECK_EQ(bind(it->listener, (const struct sockaddr *)&address, sizeof(address)), 0);
    CHECK_EQ(listen(it->listener, 64), 0);
    CHECK_EQ(getsockname(it->listener, (struct sockaddr *)&address, &size), 0);
    snprintf(it->endpoint, sizeof(it->endpoint), "http://127.0.0.1:%d", ntohs(address.sin_port));
}

static void silent_port_close(silent_port *it) { CHECK_EQ(close(it->listener), 0); }

/* A directory begins at any of its servers, so some of these begin at the silent one. */
TEST(a_server_that_never_responds_is_passed_over) {
    OPENED(watched_server, it);
    OPENED(silent_port, silent);
    const char *endpoints[] = {silent.endpoint, it.endpoint};
    const kvmem_directory_options options = WITH(options_at(endpoints), it.endpoint_count = 2);
    for (int i = 0; i < 8; i++) {
        OWN(kvmem_directory, directory, kvmem_directory_create, &options);
        OWN(kvmem_directory_entry, found, kvmem_directory_look_up, directory, "north", PATIENCE);
    }
}

TEST(servers_of_which_none_responds_are_all_named) {
    OPENED(silent_port, one);
    OPENED(silent_port, other);
    const char *endpoints[] = {one.endpoint, other.endpoint};
    const kvmem_directory_options options = WITH(options_at(endpoints), it.endpoint_count = 2);
    REFUSE(KVMEM_STATUS_TIMED_OUT, one.endpoint, kvmem_directory_create, &options); /* 5 seconds */
    CHECK_HAS(test_last_message(), other.endpoint);
}

/* Two servers that know nothing of each other, so that it is visible which one a directory uses. */
TEST(a_server_that_falls_silent_is_left_for_another) {
    OPENED(watched_server, first);
    OPENED(watched_server, second);
    const char *endpoints[] = {first.endpoint, second.endpoint};
    const kvmem_directory_options options = WITH(options_at(endpoints), it.endpoint_count = 2);
    GET(kvmem_directory *, directory, kvmem_directory_create, &options);
    OWNED(kvmem_agent) south = agent_open("south");
    EXPECT_OK(kvmem_directory_publish(directory, south, NULL, 0, PATIENCE, ERR));
    OWNED(kvmem_directory_entry) found = NULL;
    const kvmem_status status = kvmem_directory_look_up(first.watcher, "south", PATIENCE, &found, NULL);
    CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_NOT_FOUND);
    const watched_server *used = status == KVMEM_STATUS_OK ? &first : &second;
    const watched_server *unused = used == &first ? &second : &first;
    REFUSE(KVMEM_STATUS_NOT_FOUND, "south", kvmem_directory_look_up, unused->watcher, "south", PATIENCE);
    etcd_server_freeze(&used->server);
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_directory_publish(directory, south, NULL, 0, SECONDS(2), ERR));
    directory_await(directory, KVMEM_DIRECTORY_INTERRUPTED, "");
    directory_await(directory, KVMEM_DIRECTORY_RESUMED, "");
    directory_await(unused->watcher, KVMEM_DIRECTORY_PUBLISHED, "south");
    for (int i = 0; i < 8; i++)
        EXPECT_OK(kvmem_directory_publish(directory, south, NULL, 0, PATIENCE, ERR));
    kvmem_directory_destroy(directory);
    etcd_server_thaw(&used->server);
}

/* Responses take longer than the timeout of some calls: those calls fail, and nothing else. */
TEST(a_slow_network_delays_calls_with_a_long_timeout) {
    OPENED(watched_server, it);
    slow_link link;
    slow_link_open(&link, it.server.port, 100);
    const char *endpoint = TEXT("http://127.0.0.1:%d", link.port);
    const kvmem_directory_options options = options_at(&endpoint);
    GET(kvmem_directory *, directory, kvmem_directory_create, &options);
    EXPECT_OK(kvmem_directory_watch(directory, NULL, PATIENCE, ERR));
    directory_await(directory, KVMEM_DIRECTORY_PUBLISHED, "north");
    OWNED(kvmem_agent) south = agent_open("south");
    EXPECT_OK(kvmem_directory_publish(directory, south, NULL, 0, PATIENCE, ERR));
    link.delay_ms = 200; /* the lease is still kept alive in time */
    for (int i = 0; i < 3; i++) {
        EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_directory_check(directory, it.entry, MILLISECONDS(50), ERR));
        EXPECT_OK(kvmem_directory_check(directory, it.entry, PATIENCE, ERR));
        EXPECT_OK(kvmem_directory_publish(it.publisher, it.agent, NULL, 0, PATIENCE, ERR));
        CHECK_EQ(directory_await(directory, KVMEM_DIRECTORY_UPDATED, "north").version, i + 2);
        kvmem_directory_entry_destroy(it.entry);
        EXPECT_OK(kvmem_directory_look_up(it.watcher, "north", PATIENCE, &it.entry, ERR));
    }
    OWN(kvmem_directory_entry, other, kvmem_directory_look_up, it.watcher, "south", PATIENCE);
    link.delay_ms = 0;
    kvmem_directory_destroy(directory);
    slow_link_close(&link);
}

/* The watches of all clients at the server. */
static long count_watches(const etcd_server *server) {
    const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)server->port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK_EQ(connect(connection, (const struct sockaddr *)&address, sizeof(address)), 0);
    static const char request[] = "GET /metrics HTTP/1.0\r\n\r\n";
    CHECK_EQ(write(connection, request, sizeof(request) - 1), sizeof(request) - 1);
    FILE *reply = fdopen(connection, "r");
    CHECK(reply != NULL);
    char *line = NULL;
    size_t capacity = 0;
    long count = -1;
    while (getline(&line, &capacity, reply) > 0)
        sscanf(line, "etcd_debugging_mvcc_watcher_total %ld", &count);
    free(line);
    fclose(reply);
    CHECK(count >= 0);
    return count;
}

/* The server adds and cancels watches some time after the call that asks for it. */
static void await_watches(const etcd_server *server, long count) {
    while (count_watches(server) != count) sched_yield();
}

/* A publisher behind a link that can be cut. The watcher reaches the server without it. */
typedef struct cut_server {
    watched_server behind;
    slow_link link;
    kvmem_directory *publisher;
    kvmem_agent *agent; /* "south", published there */
} cut_server;

static void cut_server_open(cut_server *it) {
    watched_server_open(&it->behind);
    slow_link_open(&it->link, it->behind.server.port, 0);
    const char *endpoint = TEXT("http://127.0.0.1:%d", it->link.port);
    const kvmem_directory_options options = options_at(&endpoint);
    EXPECT_OK(kvmem_directory_create(&options, &it->publisher, ERR));
    it->agent = agent_open("south");
    EXPECT_OK(kvmem_directory_publish(it->publisher, it->agent, NULL, 0, PATIENCE, ERR));
    directory_await(it->behind.watcher, KVMEM_DIRECTORY_PUBLISHED, "south");
}

static void cut_server_close(cut_server *it) {
    kvmem_directory_destroy(it->publisher);
    slow_link_close(&it->link);
    kvmem_agent_destroy(it->agent);
    watched_server_close(&it->behind);
}

/* A handle that has nothing published when it connects again keeps its lease alive for the next
   publication. */
TEST(an_entry_that_was_published_after_a_new_connection_lives) {
    OPENED(cut_server, it);
    EXPECT_OK(kvmem_directory_withdraw(it.publisher, "south", PATIENCE, ERR));
    directory_await(it.behind.watcher, KVMEM_DIRECTORY_WITHDRAWN, "south");
    slow_link_cut(&it.link);
    directory_await(it.publisher, KVMEM_DIRECTORY_INTERRUPTED, "");
    slow_link_mend(&it.link);
    directory_await(it.publisher, KVMEM_DIRECTORY_RESUMED, "");
    EXPECT_OK(kvmem_directory_publish(it.publisher, it.agent, NULL, 0, PATIENCE, ERR));
    directory_await(it.behind.watcher, KVMEM_DIRECTORY_PUBLISHED, "south");
    kvmem_directory_events *none = NULL;
    EXPECT(KVMEM_STATUS_TIMED_OUT,
           kvmem_directory_take_events(it.behind.watcher, SECONDS(3 * LEASE), &none, ERR));
}

/* The presence is unchanged, so that watchers notice nothing; the entry is missing. */
TEST(an_entry_that_was_removed_during_an_interruption_is_published_again) {
    OPENED(cut_server, it);
    for (int i = 0; i < 2; i++) {
        slow_link_cut(&it.link);
        directory_await(it.publisher, KVMEM_DIRECTORY_INTERRUPTED, "");
        if (i == 0) ETCD_CONTROL(&it.behind.server, "del", "kvmem/entries/south");
        else ETCD_CONTROL(&it.behind.server, "put", "kvmem/entries/south", "damage");
        slow_link_mend(&it.link);
        directory_await(it.publisher, KVMEM_DIRECTORY_RESTORED, "south");
        OWN(kvmem_directory_entry, found, kvmem_directory_look_up, it.behind.watcher, "south", PATIENCE);
        /* The connection is complete when a request is executed: the end of the interruption was reported. */
        OWN(kvmem_directory_entry, own, kvmem_directory_look_up, it.publisher, "south", PATIENCE);
        kvmem_directory_events *rest = NULL;
        if (kvmem_directory_take_events(it.publisher, 0, &rest, NULL) == KVMEM_STATUS_OK)
            kvmem_directory_events_destroy(rest);
    }
}

/* The withdrawal fails, and holds nevertheless: the entry is removed when the server is reached again. */
TEST(an_entry_that_was_withdrawn_during_an_interruption_is_removed) {
    OPENED(cut_server, it);
    slow_link_cut(&it.link);
    directory_await(it.publisher, KVMEM_DIRECTORY_INTERRUPTED, "");
    EXPECT(KVMEM_STATUS_IO, kvmem_directory_withdraw(it.publisher, "south", PATIENCE, ERR));
    slow_link_mend(&it.link);
    directory_await(it.publisher, KVMEM_DIRECTORY_RESUMED, "");
    REFUSE(KVMEM_STATUS_NOT_FOUND, "south", kvmem_directory_look_up, it.behind.watcher, "south", PATIENCE);
    EXPECT_OK(kvmem_directory_withdraw(it.publisher, "south", PATIENCE, ERR));
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_directory_withdraw(it.publisher, "south", PATIENCE, ERR));
    EXPECT_OK(kvmem_directory_publish(it.publisher, it.agent, NULL, 0, PATIENCE, ERR));
    OWN(kvmem_directory_entry, found, kvmem_directory_look_up, it.behind.watcher, "south", PATIENCE);
}

TEST(a_watch_that_was_ended_during_an_interruption_is_not_restored) {
    OPENED(cut_server, it);
    /* Two keys of each of two agents, and all agents. */
    await_watches(&it.behind.server, 5);
    EXPECT_OK(kvmem_directory_watch(it.publisher, "north", PATIENCE, ERR));
    await_watches(&it.behind.server, 6);
    slow_link_cut(&it.link);
    directory_await(it.publisher, KVMEM_DIRECTORY_INTERRUPTED, "");
    EXPECT_OK(kvmem_directory_unwatch(it.publisher, "north", PATIENCE, ERR));
    slow_link_mend(&it.link);
    directory_await(it.publisher, KVMEM_DIRECTORY_RESUMED, "");
    await_watches(&it.behind.server, 5);
}

/* Calls whose timeout is shorter than connecting: the connection is made nevertheless, and the watches are
   restored. */
TEST(short_timeouts_do_not_prevent_a_new_connection) {
    OPENED(watched_server, it);
    etcd_server_kill(&it.server);
    directory_await(it.watcher, KVMEM_DIRECTORY_INTERRUPTED, "");
    etcd_server_restart(&it.server, true);
    bool is_resumed = false;
    while (!is_resumed) {
        const kvmem_status status = kvmem_directory_check(it.watcher, it.entry, 1000, NULL);
        CHECK(status == KVMEM_STATUS_TIMED_OUT || status == KVMEM_STATUS_IO || status == KVMEM_STATUS_OK);
        kvmem_directory_events *events = NULL;
        if (kvmem_directory_take_events(it.watcher, MILLISECONDS(1), &events, NULL) != KVMEM_STATUS_OK)
            continue;
        for (size_t i = 0; i < events->count; i++) {
            const kvmem_directory_event event = events->items[i];
            is_resumed |= event.kind == KVMEM_DIRECTORY_RESUMED;
        }
        kvmem_directory_events_destroy(events);
    }
    EXPECT_OK(kvmem_directory_publish(it.publisher, it.agent, NULL, 0, PATIENCE, ERR));
    CHECK_EQ(directory_await(it.watcher, KVMEM_DIRECTORY_UPDATED, "north").version, 2);
}

/* A watch that failed is not added, and earlier watches are unchanged. */
TEST(a_watch_that_timed_out_changes_nothing) {
    OPENED(watched_server, it);
    EXPECT_OK(kvmem_directory_unwatch(it.watcher, NULL, PATIENCE, ERR));
    EXPECT_OK(kvmem_directory_watch(it.watcher, "north", PATIENCE, ERR));
    directory_await(it.watcher, KVMEM_DIRECTORY_PUBLISHED, "north");
    OWNED(kvmem_agent) south = agent_open("south");
    EXPECT_OK(kvmem_directory_publish(it.publisher, south, NULL, 0, PATIENCE, ERR));
    etcd_server_freeze(&it.server);
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_directory_watch(it.watcher, "north", MILLISECONDS(50), ERR));
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_directory_watch(it.watcher, "south", MILLISECONDS(50), ERR));
    etcd_server_thaw(&it.server);
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_directory_unwatch(it.watcher, "south", PATIENCE, ERR));
    EXPECT_OK(kvmem_directory_publish(it.publisher, south, NULL, 0, PATIENCE, ERR));
    EXPECT_OK(kvmem_directory_publish(it.publisher, it.agent, NULL, 0, PATIENCE, ERR));
    for (bool is_seen = false; !is_seen;) {
        OWN(kvmem_directory_events, events, kvmem_directory_take_events, it.watcher, PATIENCE);
        for (size_t i = 0; i < events->count; i++) {
            const kvmem_directory_event event = events->items[i];
            CHECK(strcmp(event.agent, "south") != 0);
            is_seen |= event.kind == KVMEM_DIRECTORY_UPDATED;
        }
    }
}

TEST(an_agent_that_is_watched_again_is_watched_once) {
    OPENED(watched_server, it);
    EXPECT_OK(kvmem_directory_watch(it.watcher, "north", PATIENCE, ERR));
    /* The publisher watches the two keys of its agent, the watcher all agents and this one. */
    await_watches(&it.server, 4);
    for (int i = 0; i < 20; i++) EXPECT_OK(kvmem_directory_watch(it.watcher, "north", PATIENCE, ERR));
    /* The server executes them in order: it has 2 watches only after all others are cancelled. */
    EXPECT_OK(kvmem_directory_unwatch(it.watcher, "north", PATIENCE, ERR));
    EXPECT_OK(kvmem_directory_unwatch(it.watcher, NULL, PATIENCE, ERR));
    await_watches(&it.server, 2);
}

/* Keys that are not text, more than fit in a page of a snapshot. */
TEST(keys_that_are_not_text_are_skipped) {
    OPENED(place, here);
    enum { KEYS = 600, OF_ONE = 100 };
    static char requests[128 * OF_ONE];
    for (int first = 0; first < KEYS; first += OF_ONE) {
        size_t size = (size_t)sprintf(requests, "\n");
        for (int i = 0; i < OF_ONE; i++)
            size += (size_t)sprintf(requests + size, "put \"%s/agents/\\xff%d\" \"x\"\n", here.options.prefix,
                                    first + i);
        size += (size_t)sprintf(requests + size, "\n\n");
        etcd_control(&shared, (const char *const[]){"txn", NULL}, requests, size);
    }
    OWNED(kvmem_directory) directory = directory_open(&here);
    OWNED(kvmem_agent) agent = agent_open("north");
    EXPECT_OK(kvmem_directory_publish(directory, agent, NULL, 0, PATIENCE, ERR));
    EXPECT_OK(kvmem_directory_watch(directory, NULL, PATIENCE, ERR));
    directory_await(directory, KVMEM_DIRECTORY_PUBLISHED, "north");
}

/* Destroyed while the server does not respond: the call returns. */
TEST(a_directory_is_destroyed_without_its_server) {
    OPENED(watched_server, it);
    etcd_server_freeze(&it.server);
    kvmem_directory_destroy(it.publisher);
    kvmem_directory_destroy(it.watcher);
    it.publisher = it.watcher = NULL;
    etcd_server_thaw(&it.server);
}

TEST(an_endpoint_without_a_server_fails) {
    const char *endpoint = "http://127.0.0.1:1";
    const kvmem_directory_options options = options_at(&endpoint);
    REFUSE(KVMEM_STATUS_IO, "refused", kvmem_directory_create, &options);
    CHECK_HAS(test_last_message(), endpoint);
}

/* Without the client library, or with another library at its path. In a new process, because the client is
   loaded once. */
ROLE(without_client) {
    const char *endpoint = "http://127.0.0.1:1";
    const kvmem_directory_options options = options_at(&endpoint);
    CHECK_EQ(setenv("KVMEM_ETCD_LIBRARY", "/nowhere/client.so", 1), 0);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "/nowhere/client.so", kvmem_directory_create, &options);
    CHECK_EQ(setenv("KVMEM_ETCD_LIBRARY", "/proc/self/exe", 1), 0);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "load the client of etcd", kvmem_directory_create, &options);
    CHECK_EQ(setenv("KVMEM_ETCD_LIBRARY", KVMEM_TEST_TOO_OLD_LIBRARY, 1), 0);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "kvmem_etcd_api", kvmem_directory_create, &options);
    CHECK_EQ(unsetenv("KVMEM_ETCD_LIBRARY"), 0);
    REFUSE(KVMEM_STATUS_IO, "refused", kvmem_directory_create, &options);
    (void)socket;
}

TEST(a_missing_or_wrong_client_is_reported) {
    peer alone = peer_start("without_client");
    peer_finish(&alone);
}

/* ---- TLS and users ---- */

static _Atomic int leaks;
static void find_password(uint32_t level, const char *target, const char *message, void *user_data) {
    (void)level, (void)target, (void)user_data;
    leaks += strstr(message, PASSWORD) != NULL || strstr(message, "PRIVATE KEY") != NULL;
}

TEST(certificates_and_passwords_are_needed_and_stay_secret) {
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_TRACE, find_password, NULL, ERR));
    OPENED(etcd_server, server, true);
    ETCD_CONTROL(&server, "user", "add", "root:root-" PASSWORD);
    ETCD_CONTROL(&server, "user", "grant-role", "root", "root");
    ETCD_CONTROL(&server, "role", "add", "engine");
    ETCD_CONTROL(&server, "role", "grant-permission", "engine", "--prefix=true", "readwrite", "prod/");
    ETCD_CONTROL(&server, "user", "add", "engine:" PASSWORD);
    ETCD_CONTROL(&server, "user", "grant-role", "engine", "engine");
    ETCD_CONTROL(&server, "auth", "enable");

    const char *endpoint = server.endpoint;
    kvmem_directory_options good =
        WITH(options_at(&endpoint), it.prefix = "prod", it.ca_file = server.authority,
             it.certificate_file = server.certificate, it.key_file = server.key, it.user = "engine",
             it.password = PASSWORD);
    OWNED(kvmem_agent) agent = agent_open("north");
    OWN(kvmem_directory, directory, kvmem_directory_create, &good);
    EXPECT_OK(kvmem_directory_publish(directory, agent, NULL, 0, PATIENCE, ERR));
    OWN(kvmem_directory_entry, entry, kvmem_directory_look_up, directory, "north", PATIENCE);

    kvmem_directory_options options = WITH(good, it.password = "wrong-" PASSWORD);
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, "authentication", kvmem_directory_create, &options);
    CHECK(strstr(test_last_message(), PASSWORD) == NULL);
    options = WITH(good, it.prefix = "other");
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, "permission", kvmem_directory_create, &options);
    options = WITH(good, it.certificate_file = NULL, it.key_file = NULL);
    REFUSE(KVMEM_STATUS_IO, "connect to etcd", kvmem_directory_create, &options);
    options = WITH(good, it.ca_file = server.certificate);
    REFUSE(KVMEM_STATUS_IO, "connect to etcd", kvmem_directory_create, &options);
    options = WITH(good, it.key_file = "/nowhere/key.pem");
    REFUSE(KVMEM_STATUS_NOT_FOUND, "/nowhere/key.pem", kvmem_directory_create, &options);
    options = WITH(good, it.key_file = "/etc/hostname");
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "PEM", kvmem_directory_create, &options);
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, ERR));
    CHECK_EQ(leaks, 0);
}

TEST(contradicting_options_fail) {
    static const char *const plain[] = {"http://127.0.0.1:1", NULL};
    static const char *const with_password[] = {"http://root:" PASSWORD "@127.0.0.1:1"};
    static const char *const without_scheme[] = {"127.0.0.1:1"};
    static const char *const secure[] = {"https://127.0.0.1:1"};
    kvmem_directory_options base = options_at(plain);
    const struct {
        kvmem_directory_options options;
        const char *part;
    } refused[] = {
        {WITH(base, it.folder = "/tmp"), "folder"},
        {WITH(base, it.endpoint_count = 0), "endpoint"},
        {WITH(base, it.endpoint_count = 2), "NULL"},
        {WITH(base, it.endpoint_count = 1000000), "endpoint_count"},
        {WITH(base, it.endpoints = with_password), "'@'"},
        {WITH(base, it.endpoints = without_scheme), "http://"},
        {WITH(base, it.endpoints = secure), "ca_file"},
        {WITH(base, it.ca_file = "/x"), "https://"},
        {WITH(base, it.certificate_file = "/x"), "key_file"},
        {WITH(base, it.user = "x"), "password"},
        {WITH(base, it.password = PASSWORD), "user"},
        {WITH(base, it.lease_seconds = 1), "lease_seconds"},
        {WITH(base, it.prefix = "/"), "prefix"},
        {WITH(OPTIONS(kvmem_directory_options), it.folder = "/tmp", it.prefix = "x"), "prefix"},
        {WITH(OPTIONS(kvmem_directory_options), it.folder = "/tmp", it.lease_seconds = 9), "lease_seconds"},
        {WITH(base, it.reserved = 1), "reserved"},
    };
    for (size_t i = 0; i < NUM(refused); i++) {
        REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, refused[i].part, kvmem_directory_create, &refused[i].options);
        CHECK(strstr(test_last_message(), PASSWORD) == NULL);
    }
}

TEST(the_shared_server_is_closed) {
    if (shared.pid != 0) {
        etcd_server_close(&shared);
    }
}
