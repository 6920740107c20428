// SPDX-License-Identifier: Apache-2.0
// The cases that every kind of directory passes.
#include "directory_cases.h"

#define UCX_NAME_LIMIT 200

kvmem_directory *directory_open(const place *place) {
    return MADE(kvmem_directory, kvmem_directory_create, &place->options);
}

kvmem_directory_event directory_await(kvmem_directory *directory, uint32_t kind, const char *agent) {
    for (;;) {
        OWN(kvmem_directory_events, events, kvmem_directory_take_events, directory, PATIENCE);
        for (size_t i = 0; i < kvmem_directory_events_count(events); i++) {
            GET(kvmem_directory_event, event, kvmem_directory_events_get, events, i);
            if (event.kind == kind && strcmp(event.agent, agent) == 0) {
                event.agent = TEXT("%s", event.agent);
                event.message = TEXT("%s", event.message);
                return event;
            }
        }
    }
}

static void publish(kvmem_directory *directory, kvmem_agent *agent, const kvmem_layout *layout) {
    const kvmem_named_layout layouts[] = {{"cache", layout}};
    EXPECT_OK(kvmem_directory_publish(directory, agent, layouts, layout != NULL, PATIENCE, ERR));
}

static kvmem_directory_entry *find(kvmem_directory *directory, const char *name) {
    return MADE(kvmem_directory_entry, kvmem_directory_look_up, directory, name, PATIENCE);
}

static kvmem_directory_entry_info info_of(const kvmem_directory_entry *entry) {
    GET(kvmem_directory_entry_info, info, kvmem_directory_entry_get_info, entry);
    return info;
}

static void expect_absent(kvmem_directory *directory, const char *name) {
    REFUSE(KVMEM_STATUS_NOT_FOUND, name, kvmem_directory_look_up, directory, name, PATIENCE);
}

TEST(an_agent_is_found_by_name_with_its_layouts) {
    OPENED(place, here);
    OWNED(kvmem_agent) agent = agent_open("north/1");
    OPENED(kv_side, side, REF(kv_config(&kv_kinds[0])), agent, 1);
    OWNED(kvmem_directory) publisher = directory_open(&here);
    OWNED(kvmem_directory) reader = directory_open(&here);
    expect_absent(reader, "north/1");
    const kvmem_named_layout layouts[] = {{"cache", side.layout}, {"the same: \xC3\xA9/%", side.layout}};
    EXPECT_OK(kvmem_directory_publish(publisher, agent, layouts, 2, PATIENCE, ERR));

    OWNED(kvmem_directory_entry) entry = find(reader, "north/1");
    const kvmem_directory_entry_info info = info_of(entry);
    CLEANUP(message_free) const message metadata = agent_metadata(agent);
    CLEANUP(message_free) const message descriptor = layout_descriptor(side.layout);
    CHECK_STR(info.agent, "north/1");
    CHECK(info.incarnation != 0);
    CHECK_EQ(info.version, 1);
    CHECK_EQ(info.metadata_size, metadata.size);
    CHECK_BYTES(info.metadata, metadata.data, metadata.size);
    CHECK_EQ(info.layout_count, 2);
    for (size_t i = 0; i < 2; i++) {
        GET(kvmem_published_layout, layout, kvmem_directory_entry_get_layout, entry, i);
        CHECK_STR(layout.name, layouts[i].name);
        CHECK_EQ(layout.size, descriptor.size);
        CHECK_BYTES(layout.descriptor, descriptor.data, descriptor.size);
    }
    kvmem_published_layout none;
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_RANGE, "2", kvmem_directory_entry_get_layout(entry, 2, &none, ERR));
}

/* An entry is current, then out of date, then of an agent that is gone. Each has a different status. */
TEST(stale_and_not_found_are_distinct) {
    OPENED(place, here);
    OWNED(kvmem_agent) agent = agent_open("north");
    OWNED(kvmem_directory) publisher = directory_open(&here);
    OWNED(kvmem_directory) reader = directory_open(&here);
    publish(publisher, agent, NULL);
    OWNED(kvmem_directory_entry) first = find(reader, "north");
    EXPECT_OK(kvmem_directory_check(reader, first, PATIENCE, ERR));

    publish(publisher, agent, NULL);
    EXPECT_MESSAGE(KVMEM_STATUS_STALE, "version 2", kvmem_directory_check(reader, first, PATIENCE, ERR));
    OWNED(kvmem_directory_entry) second = find(reader, "north");
    CHECK_EQ(info_of(second).version, 2);
    CHECK(info_of(second).incarnation == info_of(first).incarnation);
    EXPECT_OK(kvmem_directory_check(reader, second, PATIENCE, ERR));

    OWNED(kvmem_agent) successor = agent_open("north");
    publish(publisher, successor, NULL);
    EXPECT_MESSAGE(KVMEM_STATUS_STALE, "restarted", kvmem_directory_check(reader, second, PATIENCE, ERR));
    OWNED(kvmem_directory_entry) third = find(reader, "north");
    CHECK(info_of(third).incarnation != info_of(first).incarnation);

    EXPECT_OK(kvmem_directory_withdraw(publisher, "north", PATIENCE, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, "north", kvmem_directory_check(reader, third, PATIENCE, ERR));
    expect_absent(reader, "north");
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, "not published",
                   kvmem_directory_withdraw(publisher, "north", PATIENCE, ERR));
}

TEST(changes_are_events) {
    OPENED(place, here);
    OWNED(kvmem_agent) agent = agent_open("north");
    OWNED(kvmem_agent) other = agent_open("south");
    OWNED(kvmem_directory) one = directory_open(&here);
    OWNED(kvmem_directory) all = directory_open(&here);
    kvmem_directory *publisher = directory_open(&here);
    publish(publisher, other, NULL);
    EXPECT_OK(kvmem_directory_watch(one, "north", PATIENCE, ERR));
    EXPECT_OK(kvmem_directory_watch(all, NULL, PATIENCE, ERR));
    directory_await(all, KVMEM_DIRECTORY_PUBLISHED, "south");

    publish(publisher, agent, NULL);
    const kvmem_directory_event first = directory_await(one, KVMEM_DIRECTORY_PUBLISHED, "north");
    CHECK_EQ(first.version, 1);
    CHECK_EQ(first.status, KVMEM_STATUS_OK);
    CHECK(directory_await(all, KVMEM_DIRECTORY_PUBLISHED, "north").incarnation == first.incarnation);
    publish(publisher, agent, NULL);
    CHECK_EQ(directory_await(one, KVMEM_DIRECTORY_UPDATED, "north").version, 2);
    OWNED(kvmem_agent) successor = agent_open("north");
    publish(publisher, successor, NULL);
    const kvmem_directory_event restarted = directory_await(one, KVMEM_DIRECTORY_RESTARTED, "north");
    CHECK(restarted.incarnation != first.incarnation);

    kvmem_directory_destroy(publisher); /* withdraws */
    CHECK(directory_await(one, KVMEM_DIRECTORY_WITHDRAWN, "north").incarnation == restarted.incarnation);
    directory_await(all, KVMEM_DIRECTORY_WITHDRAWN, "south");
    kvmem_directory_events *none = NULL;
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_directory_take_events(one, 0, &none, ERR));
    CHECK(none == NULL);
    EXPECT_OK(kvmem_directory_unwatch(one, "north", PATIENCE, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, "north", kvmem_directory_unwatch(one, "north", PATIENCE, ERR));
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_directory_unwatch(one, NULL, PATIENCE, ERR));
}

TEST(a_queue_reports_events_once_until_they_are_read) {
    OPENED(place, here);
    OWNED(kvmem_agent) agent = agent_open("north");
    OWNED(kvmem_directory) publisher = directory_open(&here);
    OWNED(kvmem_directory) watcher = directory_open(&here);
    OWN(kvmem_queue, queue, kvmem_queue_create);
    EXPECT_OK(kvmem_directory_watch(watcher, NULL, PATIENCE, ERR));
    EXPECT_OK(kvmem_directory_report_events(watcher, queue, 77, ERR));
    for (uint64_t version = 1; version <= 3; version++) {
        publish(publisher, agent, NULL);
        const kvmem_completion completion = next_completion(queue);
        CHECK_EQ(completion.user_data, 77);
        CHECK_EQ(completion.status, KVMEM_STATUS_OK);
        OWN(kvmem_directory_events, events, kvmem_directory_take_events, watcher, 0);
        CHECK_EQ(kvmem_directory_events_count(events), 1);
        GET(kvmem_directory_event, event, kvmem_directory_events_get, events, 0);
        CHECK_EQ(event.version, version);
        kvmem_directory_event past;
        EXPECT(KVMEM_STATUS_OUT_OF_RANGE, kvmem_directory_events_get(events, 1, &past, ERR));
    }
    EXPECT_OK(kvmem_directory_report_events(watcher, NULL, 0, ERR));
}

/* ---- a peer in another process ---- */

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
    publish(directory, agent, side.layout);
    frame_send(socket, PUBLISHED, NULL, 0);
    for (uint32_t tag = AGAIN; tag != END && frame_arrives(socket);) {
        CLEANUP(message_free) const message request = frame_receive(socket, &tag);
        if (tag == EVENT) directory_await(directory, *(const uint32_t *)(const void *)request.data, (const char *)name.data);
        if (tag == AGAIN) publish(directory, agent, side.layout);
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
    EXPECT_OK(kvmem_directory_entry_load(entry, agent, ERR));
    OWN(kvmem_layout, remote, kvmem_directory_entry_import_layout, entry, agent, "cache");
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
    OWNED(kvmem_directory_entry) first = find(directory, "phoenix");
    pull(first, agent, &side, 2);
    OWN(kvmem_layout, stale, kvmem_directory_entry_import_layout, first, agent, "cache");
    REFUSE(KVMEM_STATUS_NOT_FOUND, "cache", kvmem_directory_entry_import_layout, first, agent, "other");

    peer_kill(&old);
    directory_await(directory, KVMEM_DIRECTORY_WITHDRAWN, "phoenix");
    expect_absent(directory, "phoenix");
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_directory_check(directory, first, PATIENCE, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_PEER_LOST, "of agent 'phoenix', which published the entry, has ended",
                   kvmem_directory_entry_load(first, agent, ERR));

    peer restarted = start_publisher(&here, "phoenix", 3);
    directory_await(directory, KVMEM_DIRECTORY_PUBLISHED, "phoenix");
    EXPECT_MESSAGE(KVMEM_STATUS_STALE, "restarted", kvmem_directory_check(directory, first, PATIENCE, ERR));
    OWNED(kvmem_directory_entry) second = find(directory, "phoenix");
    pull(second, agent, &side, 3);
    const kv_move move = KV_MOVE(3, {1, 1});
    const kv_job options = kv_job_of(&move);
    REFUSE(KVMEM_STATUS_STALE, "phoenix", kv_prepare, stale, side.layout, &options);
    /* A thread that kept the entry of the previous peer does not affect the others. */
    OWN(kvmem_layout, current, kvmem_directory_entry_import_layout, second, agent, "cache");
    EXPECT_MESSAGE(KVMEM_STATUS_STALE, "restarted after this entry was looked up", kvmem_directory_entry_load(first, agent, ERR));
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
    publish(first, agent, NULL);
    peer second = start_publisher(&here, "twin", 5);
    const kvmem_directory_event event = directory_await(first, KVMEM_DIRECTORY_SUPERSEDED, "twin");
    CHECK_EQ(event.status, KVMEM_STATUS_STALE);
    OWNED(kvmem_directory_entry) entry = find(first, "twin");
    CHECK_EQ(info_of(entry).layout_count, 1);
    EXPECT_MESSAGE(KVMEM_STATUS_STALE, "another process", kvmem_directory_withdraw(first, "twin", PATIENCE, ERR));
    EXPECT_OK(kvmem_directory_check(first, entry, PATIENCE, ERR));
    publish(first, agent, NULL); /* it takes the name back */
    EXPECT_MESSAGE(KVMEM_STATUS_STALE, "restarted", kvmem_directory_check(first, entry, PATIENCE, ERR));
    publisher_ends(&second);
    OWNED(kvmem_directory_entry) own = find(first, "twin");
    CHECK_EQ(info_of(own).layout_count, 0);
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
    OWNED(kvmem_directory_entry) entry = find(directory, "sleeper");
    peer_freeze(&sleeper);
    if (has_lease) {
        directory_await(directory, KVMEM_DIRECTORY_WITHDRAWN, "sleeper");
        expect_absent(directory, "sleeper");
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
    OWNED(kvmem_directory_entry) entry = find(directory, "sleeper");
    peer_thaw(&sleeper);
    publisher_await_event(&sleeper, KVMEM_DIRECTORY_SUPERSEDED);
    EXPECT_OK(kvmem_directory_check(directory, entry, PATIENCE, ERR));
    publisher_publishes(&sleeper);
    publisher_await_event(&successor, KVMEM_DIRECTORY_SUPERSEDED);
    EXPECT_MESSAGE(KVMEM_STATUS_STALE, "restarted", kvmem_directory_check(directory, entry, PATIENCE, ERR));
    publisher_ends(&successor);
    publisher_ends(&sleeper);
    expect_absent(directory, "sleeper");
}

/* ---- entries of other programs ---- */

static void expect_refused(kvmem_directory *directory, const char *name) {
    REFUSE(KVMEM_STATUS_CORRUPT, name, kvmem_directory_look_up, directory, name, PATIENCE);
}

TEST(invalid_entries_fail_and_do_not_affect_others) {
    OPENED(place, here);
    OWNED(kvmem_directory) directory = directory_open(&here);
    OWNED(kvmem_agent) agent = agent_open("good");
    publish(directory, agent, NULL);
    EXPECT_OK(kvmem_directory_watch(directory, NULL, PATIENCE, ERR));
    directory_await(directory, KVMEM_DIRECTORY_PUBLISHED, "good");
    const size_t large = 1100000; /* larger than any entry, and smaller than etcd's limit */
    unsigned char *bytes = test_allocate(large);
    kv_fill(bytes, large, 9);
    const struct {
        const char *name;
        size_t size;
    } garbage[] = {{"empty", 0}, {"short", 5}, {"random", 4096}, {"large", large}};
    for (size_t i = 0; i < NUM(garbage); i++) {
        place_put(&here, garbage[i].name, bytes, garbage[i].size);
        const kvmem_directory_event event =
            directory_await(directory, KVMEM_DIRECTORY_INVALID, garbage[i].name);
        CHECK_EQ(event.status, KVMEM_STATUS_CORRUPT);
        CHECK(event.message[0] != '\0');
        expect_refused(directory, garbage[i].name);
        OWNED(kvmem_directory_entry) good = find(directory, "good");
        place_erase(&here, garbage[i].name);
        directory_await(directory, KVMEM_DIRECTORY_WITHDRAWN, garbage[i].name);
        expect_absent(directory, garbage[i].name);
    }
    free(bytes);
}

/* An entry that another program removes or overwrites is published again. */
TEST(an_entry_that_is_damaged_is_published_again) {
    OPENED(place, here);
    OWNED(kvmem_directory) directory = directory_open(&here);
    OWNED(kvmem_directory) watcher = directory_open(&here);
    OWNED(kvmem_agent) agent = agent_open("north");
    publish(directory, agent, NULL);
    OWNED(kvmem_directory_entry) before = find(watcher, "north");
    for (int round = 0; round < 2; round++) {
        if (round == 0) {
            place_erase(&here, "north");
        } else {
            place_put(&here, "north", "garbage", 7);
        }
        kvmem_status status;
        do {
            status = kvmem_directory_check(watcher, before, PATIENCE, ERR);
            CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_NOT_FOUND || status == KVMEM_STATUS_CORRUPT);
        } while (status != KVMEM_STATUS_OK);
        /* The publisher gets an event, though it watches nothing. */
        CHECK_EQ(directory_await(directory, KVMEM_DIRECTORY_RESTORED, "north").status, KVMEM_STATUS_OK);
    }
}

/* ---- calls at the same time ---- */

/* A publication that takes long, because it exports many layouts. */
typedef struct long_publication {
    kvmem_directory *directory;
    kvmem_agent *agent;
    const kvmem_layout *layout;
} long_publication;

static void *publish_many(void *argument) {
    const long_publication *it = argument;
    enum { LAYOUTS = 500 };
    kvmem_named_layout layouts[LAYOUTS];
    char names[LAYOUTS][16];
    for (int i = 0; i < LAYOUTS; i++) {
        snprintf(names[i], sizeof(names[i]), "%d", i);
        layouts[i] = (kvmem_named_layout){names[i], it->layout};
    }
    EXPECT_OK(kvmem_directory_publish(it->directory, it->agent, layouts, LAYOUTS, PATIENCE, ERR));
    return NULL;
}

/* Memory that was registered before a publication began is in the entry once that has returned, whatever
   another thread publishes at the same time. */
TEST(concurrent_publications_lose_no_registration) {
    OPENED(place, here);
    OWNED(kvmem_agent) agent = agent_open("north");
    OPENED(kv_side, side, REF(kv_config(&kv_kinds[0])), agent, 1);
    OWNED(kvmem_directory) directory = directory_open(&here);
    for (int i = 0; i < 10; i++) {
        long_publication other = {directory, agent, side.layout};
        threads all = {0};
        threads_start(&all, 1, publish_many, &other, sizeof(other));
        OPENED(kv_side, later, REF(kv_config(&kv_kinds[0])), agent, 1);
        publish(directory, agent, later.layout);
        threads_join(&all);
        OWNED(kvmem_directory_entry) entry = find(directory, "north");
        CLEANUP(message_free) const message metadata = agent_metadata(agent);
        CHECK_EQ(info_of(entry).metadata_size, metadata.size);
        CHECK_EQ(info_of(entry).version, 2 * (i + 1));
    }
}

enum { PUBLICATIONS = 25 };

static void *publish_often(void *argument) {
    const long_publication *it = argument;
    for (int i = 0; i < PUBLICATIONS; i++) publish(it->directory, it->agent, NULL);
    return NULL;
}

/* The publisher takes no event of its own for damage by another process. */
TEST(publications_by_several_threads_are_not_reported_as_restored) {
    OPENED(place, here);
    OWNED(kvmem_agent) agent = agent_open("north");
    OWNED(kvmem_directory) directory = directory_open(&here);
    EXPECT_OK(kvmem_directory_watch(directory, "north", PATIENCE, ERR));
    long_publication all[4];
    for (size_t i = 0; i < NUM(all); i++) all[i] = (long_publication){directory, agent, NULL};
    threads_run(NUM(all), publish_often, all, sizeof(all[0]));
    for (uint64_t version = 0; version < NUM(all) * PUBLICATIONS;) {
        OWN(kvmem_directory_events, events, kvmem_directory_take_events, directory, PATIENCE);
        for (size_t i = 0; i < kvmem_directory_events_count(events); i++) {
            GET(kvmem_directory_event, event, kvmem_directory_events_get, events, i);
            CHECK(event.kind == KVMEM_DIRECTORY_PUBLISHED || event.kind == KVMEM_DIRECTORY_UPDATED);
            version = event.version;
        }
    }
    EXPECT_OK(kvmem_directory_withdraw(directory, "north", PATIENCE, ERR));
}

static void *wait_for_north(void *argument) {
    kvmem_directory *directory = *(kvmem_directory **)argument;
    OWN(kvmem_directory_entry, entry, kvmem_directory_wait_for, directory, "north", PATIENCE);
    CHECK_STR(info_of(entry).agent, "north");
    return NULL;
}

TEST(calls_wait_for_an_agent_until_it_is_published) {
    OPENED(place, here);
    OWNED(kvmem_agent) agent = agent_open("north");
    OWNED(kvmem_directory) publisher = directory_open(&here);
    OWNED(kvmem_directory) reader = directory_open(&here);
    REFUSE(KVMEM_STATUS_TIMED_OUT, "not published", kvmem_directory_wait_for, reader, "north", MILLISECONDS(50));
    CHECK_HAS(test_last_message(), "north");
    CHECK(strstr(test_last_message(), "not respond") == NULL);
    kvmem_directory *readers[] = {reader, reader, publisher};
    threads waiting = {0};
    threads_start(&waiting, NUM(readers), wait_for_north, readers, sizeof(readers[0]));
    publish(publisher, agent, NULL);
    threads_join(&waiting);
    OWN(kvmem_directory_entry, at_once, kvmem_directory_wait_for, reader, "north", PATIENCE);
    kvmem_directory_events *none = NULL;
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_directory_take_events(reader, 0, &none, ERR));
    place_put(&here, "south", "damage", 6);
    REFUSE(KVMEM_STATUS_CORRUPT, "south", kvmem_directory_wait_for, reader, "south", PATIENCE);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "empty", kvmem_directory_wait_for, reader, "", PATIENCE);
}

typedef struct connecting {
    kvmem_directory *directory;
    kvmem_agent *agent;
} connecting;

static void *connect_to_north(void *argument) {
    const connecting *it = argument;
    OWN(kvmem_directory_entry, entry, kvmem_directory_connect, it->directory, it->agent, "north", PATIENCE);
    CHECK_STR(info_of(entry).agent, "north");
    EXPECT_OK(kvmem_agent_check_remote_metadata(it->agent, "north", ERR));
    return NULL;
}

TEST(a_call_waits_for_a_peer_and_loads_its_metadata) {
    OPENED(place, here);
    OWNED(kvmem_agent) north = agent_open("north");
    OWNED(kvmem_agent) south = agent_open("south");
    OWNED(kvmem_directory) publisher = directory_open(&here);
    OWNED(kvmem_directory) reader = directory_open(&here);
    REFUSE(KVMEM_STATUS_TIMED_OUT, "not published", kvmem_directory_connect, reader, south, "north", MILLISECONDS(50));
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_agent_check_remote_metadata(south, "north", ERR));
    connecting both[] = {{reader, south}, {publisher, south}};
    threads waiting = {0};
    threads_start(&waiting, NUM(both), connect_to_north, both, sizeof(both[0]));
    publish(publisher, north, NULL);
    threads_join(&waiting);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "", kvmem_directory_connect, reader, north, "north", PATIENCE);
}

/* A timeout of 0 asks once. */
TEST(calls_without_a_timeout_find_what_is_published) {
    OPENED(place, here);
    OWNED(kvmem_agent) agent = agent_open("north");
    OWNED(kvmem_directory) directory = directory_open(&here);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "north", kvmem_directory_look_up, directory, "north", 0);
    REFUSE(KVMEM_STATUS_TIMED_OUT, "not published", kvmem_directory_wait_for, directory, "north", 0);
    EXPECT_OK(kvmem_directory_publish(directory, agent, NULL, 0, PATIENCE, ERR));
    OWN(kvmem_directory_entry, found, kvmem_directory_look_up, directory, "north", 0);
    OWN(kvmem_directory_entry, awaited, kvmem_directory_wait_for, directory, "north", 0);
    EXPECT_OK(kvmem_directory_check(directory, found, 0, ERR));
    EXPECT_OK(kvmem_directory_watch(directory, "north", 0, ERR));
    EXPECT_OK(kvmem_directory_unwatch(directory, "north", 0, ERR));
    EXPECT_OK(kvmem_directory_withdraw(directory, "north", 0, ERR));
}

/* The end of a wait leaves the watch of the caller as it is. */
TEST(a_wait_does_not_end_a_watch) {
    OPENED(place, here);
    OWNED(kvmem_agent) agent = agent_open("north");
    OWNED(kvmem_directory) publisher = directory_open(&here);
    OWNED(kvmem_directory) reader = directory_open(&here);
    EXPECT_OK(kvmem_directory_watch(reader, "north", PATIENCE, ERR));
    publish(publisher, agent, NULL);
    OWN(kvmem_directory_entry, first, kvmem_directory_wait_for, reader, "north", PATIENCE);
    publish(publisher, agent, NULL);
    for (uint64_t version = 0; version != 2;) {
        OWN(kvmem_directory_events, events, kvmem_directory_take_events, reader, PATIENCE);
        GET(kvmem_directory_event, event, kvmem_directory_events_get, events, 0);
        version = event.version;
    }
    EXPECT_OK(kvmem_directory_unwatch(reader, "north", PATIENCE, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, "not watched",
                   kvmem_directory_unwatch(reader, "north", PATIENCE, ERR));
    OWN(kvmem_directory_entry, second, kvmem_directory_wait_for, reader, "north", PATIENCE);
    CHECK_EQ(info_of(second).version, 2);
}

/* ---- arguments ---- */

TEST(layouts_that_cannot_be_published_are_named_by_their_index) {
    OPENED(place, here);
    OWNED(kvmem_agent) agent = agent_open("north");
    OPENED(kv_side, side, REF(kv_config(&kv_kinds[0])), agent, 1);
    OWNED(kvmem_directory) directory = directory_open(&here);
    const kvmem_named_layout no_layout[] = {{"a", side.layout}, {"b", NULL}}, no_name[] = {{"a", side.layout}, {NULL, side.layout}};
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "layouts[1] of 2",
                   kvmem_directory_publish(directory, agent, no_layout, 2, PATIENCE, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "layouts[1] of 2",
                   kvmem_directory_publish(directory, agent, no_name, 2, PATIENCE, ERR));
}

TEST(names_are_bounded) {
    OPENED(place, here);
    OWNED(kvmem_directory) directory = directory_open(&here);
    char longest[UCX_NAME_LIMIT + 2];
    memset(longest, 'x', sizeof(longest));
    longest[UCX_NAME_LIMIT + 1] = '\0';
    const char *refused[] = {"", longest, "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9"
                             "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9"
                             "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9"
                             "\xC3\xA9\xC3\xA9\xC3\xA9"};
    for (size_t i = 0; i < NUM(refused); i++) {
        REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "name of the agent", kvmem_directory_look_up, directory,
               refused[i], PATIENCE);
        EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_directory_watch(directory, refused[i], PATIENCE, ERR));
        EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_directory_withdraw(directory, refused[i], PATIENCE, ERR));
    }
    longest[UCX_NAME_LIMIT] = '\0';
    const char *accepted[] = {longest, ".", "..", "a/../b", "%2e", " ", "\x01"};
    for (size_t i = 0; i < NUM(accepted); i++) {
        OWNED(kvmem_agent) agent = agent_open(accepted[i]);
        publish(directory, agent, NULL);
        OWNED(kvmem_directory_entry) entry = find(directory, accepted[i]);
        CHECK_STR(info_of(entry).agent, accepted[i]);
    }
}

TEST(layouts_of_other_agents_and_duplicate_names_fail) {
    OPENED(place, here);
    OWNED(kvmem_directory) directory = directory_open(&here);
    OWNED(kvmem_agent) agent = agent_open("north");
    OWNED(kvmem_agent) other = agent_open("south");
    OPENED(kv_side, own, REF(kv_config(&kv_kinds[0])), agent, 1);
    OPENED(kv_side, foreign, REF(kv_config(&kv_kinds[0])), other, 1);
    OPENED(kv_side, local, REF(kv_config(&kv_kinds[0])), NULL, 1);
    const struct {
        kvmem_named_layout layouts[2];
        kvmem_status status;
        const char *part;
    } refused[] = {
        {{{"a", own.layout}, {"a", own.layout}}, KVMEM_STATUS_INVALID_ARGUMENT, "two layouts"},
        {{{"a", own.layout}, {"", own.layout}}, KVMEM_STATUS_INVALID_ARGUMENT, "empty"},
        {{{"a", own.layout}, {NULL, own.layout}}, KVMEM_STATUS_INVALID_ARGUMENT, "NULL"},
        {{{"a", own.layout}, {"b", NULL}}, KVMEM_STATUS_INVALID_ARGUMENT, "layout"},
        {{{"a", own.layout}, {"b", foreign.layout}}, KVMEM_STATUS_INVALID_ARGUMENT, "south"},
        {{{"a", own.layout}, {"b", local.layout}}, KVMEM_STATUS_INVALID_STATE, "'b'"},
    };
    for (size_t i = 0; i < NUM(refused); i++) {
        EXPECT_MESSAGE(refused[i].status, refused[i].part,
                       kvmem_directory_publish(directory, agent, refused[i].layouts, 2, PATIENCE, ERR));
    }
    expect_absent(directory, "north");
    publish(directory, agent, own.layout);
    OWNED(kvmem_directory_entry) entry = find(directory, "north");
    /* the agent itself */
    EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_directory_entry_load(entry, agent, ERR));
}

/* Threads and files of fifty directories end with them. */
TEST(a_destroyed_directory_leaves_nothing) {
    OPENED(place, here);
    OWNED(kvmem_agent) agent = agent_open("north");
    size_t threads = 0;
    size_t files = 0;
    for (int i = 0; i < 50; i++) {
        if (i == 1) { /* after the objects that the process creates once */
            threads = count_directory_entries("/proc/self/task");
            files = count_open_files();
        }
        OWNED(kvmem_directory) directory = directory_open(&here);
        publish(directory, agent, NULL);
        EXPECT_OK(kvmem_directory_watch(directory, NULL, PATIENCE, ERR));
        directory_await(directory, KVMEM_DIRECTORY_PUBLISHED, "north");
    }
    /* A thread that was joined is listed until the kernel has ended it. */
    AWAIT(count_directory_entries("/proc/self/task") <= threads);
    CHECK_EQ(count_open_files(), files);
}
