// SPDX-License-Identifier: Apache-2.0
// Cases of every kind of directory with a publisher in another process, which is killed, stopped or replaced.
#include "directory_cases.h"

enum { PLACE, PUBLISHED, EVENT, AGAIN, END };

ROLE(publisher) {
    const message words = frame_expect(socket, PLACE);
    const message name = frame_expect(socket, PLACE);
    uint32_t seed = 0;
    frame_expect_into(socket, PLACE, &seed, sizeof(seed));
    const kvmem_directory_options options = place_from_words((char *)words.data);
    GET(kvmem_directory *, directory, kvmem_directory_create, &options);
    kvmem_agent *agent = agent_open((const char *)name.data);
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    kv_side side;
    kv_side_open(&side, &config, agent, seed);
    directory_publish(directory, agent, side.layout);
    frame_send(socket, PUBLISHED, NULL, 0);
    for (uint32_t tag = AGAIN; tag != END && frame_arrives(socket);) {
        CLEANUP(message_free) const message request = frame_receive(socket, &tag);
        if (tag == EVENT)
            directory_await(directory, *(const uint32_t *)(const void *)request.data,
                            (const char *)name.data);
        if (tag == AGAIN) directory_publish(directory, agent, side.layout);
        if (tag != END) frame_send(socket, tag, NULL, 0);
    }
    kvmem_directory_destroy(directory);
    kv_side_close(&side);
    kvmem_agent_destroy(agent);
}

static peer start_publisher(const place *place, const char *name, uint32_t seed) {
    const peer started = peer_start("publisher");
    frame_send(started.socket, PLACE, place->words, strlen(place->words) + 1);
    frame_send(started.socket, PLACE, name, strlen(name) + 1);
    frame_send(started.socket, PLACE, &seed, sizeof(seed));
    frame_await(started.socket, PUBLISHED);
    return started;
}

/* The publisher reads events until there is one of this kind. */
static void publisher_await_event(const peer *publisher, uint32_t kind) {
    frame_send(publisher->socket, EVENT, &kind, sizeof(kind));
    frame_await(publisher->socket, EVENT);
}

static void publisher_publishes(const peer *publisher) {
    frame_send(publisher->socket, AGAIN, NULL, 0);
    frame_await(publisher->socket, AGAIN);
}

static void publisher_ends(peer *publisher) {
    frame_send(publisher->socket, END, NULL, 0);
    peer_finish(publisher);
}

/* Reads blocks of the peer that was looked up, and compares them. */
static void pull(const kvmem_directory_entry *entry, kvmem_agent *agent, kv_side *side, uint32_t seed) {
    const kv_move move = KV_MOVE(3, {6, 0}, {0, 5}, {3, 3});
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    const kvmem_open_options remotely = OPTIONS(kvmem_open_options, it.flags = KVMEM_OPEN_REMOTE,
                                                it.agent = agent);
    EXPECT_OK(kvmem_directory_entry_load(entry, agent, ERR));
    OWN(kvmem_layout, remote, kvmem_directory_entry_open_layout, entry, "cache", &remotely, PATIENCE);
    CLEANUP(kv_side_close) kv_side model;
    kv_model_open(&model, &config, seed);
    kv_run(remote, side->layout, &move);
    kv_side_check_moved(side, &model, &move);
}

/* Found by name, killed, gone, and published again under the same name: the whole life of a peer. */
TEST(a_peer_is_found_lost_and_found_again) {
    OPENED(place, here);
    OWNED(kvmem_directory) directory = directory_open(&here);
    EXPECT_OK(kvmem_directory_watch(directory, "phoenix", PATIENCE, ERR));
    OWNED(kvmem_agent) agent = agent_open("near");
    OPENED(kv_side, side, REF(kv_config(&kv_kinds[1])), agent, 1);

    peer old = start_publisher(&here, "phoenix", 2);
    directory_await(directory, KVMEM_DIRECTORY_PUBLISHED, "phoenix");
    OWNED(kvmem_directory_entry) first = directory_find(directory, "phoenix");
    pull(first, agent, &side, 2);
    const kvmem_open_options remotely = OPTIONS(kvmem_open_options, it.flags = KVMEM_OPEN_REMOTE,
                                                it.agent = agent);
    OWN(kvmem_layout, stale, kvmem_directory_entry_open_layout, first, "cache", &remotely, PATIENCE);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "cache", kvmem_directory_entry_open_layout, first, "other",
           &remotely, PATIENCE);

    peer_kill(&old);
    directory_await(directory, KVMEM_DIRECTORY_WITHDRAWN, "phoenix");
    directory_expect_absent(directory, "phoenix");
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_directory_check(directory, first, PATIENCE, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_PEER_LOST, "of agent 'phoenix', which published the entry, has ended",
                   kvmem_directory_entry_load(first, agent, ERR));

    peer restarted = start_publisher(&here, "phoenix", 3);
    directory_await(directory, KVMEM_DIRECTORY_PUBLISHED, "phoenix");
    EXPECT_MESSAGE(KVMEM_STATUS_STALE, "restarted", kvmem_directory_check(directory, first, PATIENCE, ERR));
    OWNED(kvmem_directory_entry) second = directory_find(directory, "phoenix");
    pull(second, agent, &side, 3);
    const kv_move move = KV_MOVE(3, {1, 1});
    const kv_job options = kv_job_of(&move);
    REFUSE(KVMEM_STATUS_STALE, "phoenix", kv_prepare, stale, side.layout, &options);
    /* A thread that kept the entry of the previous peer does not affect the others. */
    OWN(kvmem_layout, current, kvmem_directory_entry_open_layout, second, "cache", &remotely, PATIENCE);
    EXPECT_MESSAGE(KVMEM_STATUS_STALE, "restarted after this entry was looked up",
                   kvmem_directory_entry_load(first, agent, ERR));
    OWN(kvmem_transfer, unharmed, kv_prepare, current, side.layout, &options);
    EXPECT_OK(kvmem_directory_entry_load(second, agent, ERR));

    publisher_ends(&restarted);
    directory_await(directory, KVMEM_DIRECTORY_WITHDRAWN, "phoenix");
}

/* A process that publishes a name that is in use replaces the entry. The previous publisher gets an event,
   and does not change the entry. */
TEST(a_second_publisher_replaces_the_first) {
    OPENED(place, here);
    OWNED(kvmem_directory) first = directory_open(&here);
    OWNED(kvmem_agent) agent = agent_open("twin");
    directory_publish(first, agent, NULL);
    peer second = start_publisher(&here, "twin", 5);
    const kvmem_directory_event event = directory_await(first, KVMEM_DIRECTORY_SUPERSEDED, "twin");
    CHECK_EQ(event.status, KVMEM_STATUS_STALE);
    CHECK_HAS(event.message, "give each agent a name of its own, or publish again");
    OWNED(kvmem_directory_entry) entry = directory_find(first, "twin");
    CHECK_EQ(directory_entry_info(entry).layout_count, 1);
    EXPECT_MESSAGE(KVMEM_STATUS_STALE, "another process",
                   kvmem_directory_withdraw(first, "twin", PATIENCE, ERR));
    EXPECT_OK(kvmem_directory_check(first, entry, PATIENCE, ERR));
    directory_publish(first, agent, NULL); /* it takes the name back */
    EXPECT_MESSAGE(KVMEM_STATUS_STALE, "restarted", kvmem_directory_check(first, entry, PATIENCE, ERR));
    publisher_ends(&second);
    OWNED(kvmem_directory_entry) own = directory_find(first, "twin");
    CHECK_EQ(directory_entry_info(own).layout_count, 0);
}

/* Stopped for longer than its lease: its entry is removed until it continues. It gets an event, and publishes
   again. In a folder there is no lease, and the entry remains. */
TEST(a_stopped_publisher_loses_its_lease_and_publishes_again) {
    OPENED(place, here);
    const bool has_lease = here.options.lease_seconds != 0;
    OWNED(kvmem_directory) directory = directory_open(&here);
    EXPECT_OK(kvmem_directory_watch(directory, "sleeper", PATIENCE, ERR));
    peer sleeper = start_publisher(&here, "sleeper", 4);
    const uint64_t incarnation = directory_await(directory, KVMEM_DIRECTORY_PUBLISHED, "sleeper").incarnation;
    OWNED(kvmem_directory_entry) entry = directory_find(directory, "sleeper");
    peer_freeze(&sleeper);
    if (has_lease) {
        directory_await(directory, KVMEM_DIRECTORY_WITHDRAWN, "sleeper");
        directory_expect_absent(directory, "sleeper");
    } else {
        EXPECT_OK(kvmem_directory_check(directory, entry, PATIENCE, ERR));
    }
    peer_thaw(&sleeper);
    if (has_lease) {
        publisher_await_event(&sleeper, KVMEM_DIRECTORY_RESTORED);
        CHECK(directory_await(directory, KVMEM_DIRECTORY_PUBLISHED, "sleeper").incarnation == incarnation);
    }
    EXPECT_OK(kvmem_directory_check(directory, entry, PATIENCE, ERR));
    publisher_publishes(&sleeper);
    CHECK_EQ(directory_await(directory, KVMEM_DIRECTORY_UPDATED, "sleeper").version, 2);
    publisher_ends(&sleeper);
    directory_await(directory, KVMEM_DIRECTORY_WITHDRAWN, "sleeper");
}

/* Stopped, and another process publishes its name meanwhile: it gets an event, does not change the entry, and
   can publish again. */
TEST(a_stopped_publisher_that_was_replaced_gets_an_event) {
    OPENED(place, here);
    OWNED(kvmem_directory) directory = directory_open(&here);
    EXPECT_OK(kvmem_directory_watch(directory, "sleeper", PATIENCE, ERR));
    peer sleeper = start_publisher(&here, "sleeper", 4);
    directory_await(directory, KVMEM_DIRECTORY_PUBLISHED, "sleeper");
    peer_freeze(&sleeper);
    if (here.options.lease_seconds != 0) directory_await(directory, KVMEM_DIRECTORY_WITHDRAWN, "sleeper");
    peer successor = start_publisher(&here, "sleeper", 5);
    OWNED(kvmem_directory_entry) entry = directory_find(directory, "sleeper");
    peer_thaw(&sleeper);
    publisher_await_event(&sleeper, KVMEM_DIRECTORY_SUPERSEDED);
    EXPECT_OK(kvmem_directory_check(directory, entry, PATIENCE, ERR));
    publisher_publishes(&sleeper);
    publisher_await_event(&successor, KVMEM_DIRECTORY_SUPERSEDED);
    EXPECT_MESSAGE(KVMEM_STATUS_STALE, "restarted", kvmem_directory_check(directory, entry, PATIENCE, ERR));
    publisher_ends(&successor);
    publisher_ends(&sleeper);
    directory_expect_absent(directory, "sleeper");
}
