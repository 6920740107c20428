// SPDX-License-Identifier: Apache-2.0
// Cases of every kind of directory: calls of several threads at the same time, and calls that wait for a
// peer.
#include "directory_cases.h"

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
        layouts[i] = (kvmem_named_layout){.name = names[i], .layout = it->layout};
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
        directory_publish(directory, agent, later.layout);
        threads_join(&all);
        OWNED(kvmem_directory_entry) entry = directory_find(directory, "north");
        CLEANUP(message_free) const message metadata = agent_metadata(agent);
        CHECK_EQ(directory_entry_info(entry).metadata_size, metadata.size);
        CHECK_EQ(directory_entry_info(entry).version, 2 * (i + 1));
    }
}

enum { PUBLICATIONS = 25 };

static void *publish_often(void *argument) {
    const long_publication *it = argument;
    for (int i = 0; i < PUBLICATIONS; i++) directory_publish(it->directory, it->agent, NULL);
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
        for (size_t i = 0; i < events->count; i++) {
            const kvmem_directory_event event = events->items[i];
            CHECK(event.kind == KVMEM_DIRECTORY_PUBLISHED || event.kind == KVMEM_DIRECTORY_UPDATED);
            version = event.version;
        }
    }
    EXPECT_OK(kvmem_directory_withdraw(directory, "north", PATIENCE, ERR));
}

static void *wait_for_north(void *argument) {
    kvmem_directory *directory = *(kvmem_directory **)argument;
    OWN(kvmem_directory_entry, entry, kvmem_directory_connect, directory, NULL, "north", PATIENCE);
    CHECK_STR(directory_entry_info(entry).agent, "north");
    return NULL;
}

TEST(calls_wait_for_an_agent_until_it_is_published) {
    OPENED(place, here);
    OWNED(kvmem_agent) agent = agent_open("north");
    OWNED(kvmem_directory) publisher = directory_open(&here);
    OWNED(kvmem_directory) reader = directory_open(&here);
    REFUSE(KVMEM_STATUS_TIMED_OUT, "not published", kvmem_directory_connect, reader, NULL, "north",
           MILLISECONDS(50));
    CHECK_HAS(test_last_message(), "north");
    CHECK(strstr(test_last_message(), "not respond") == NULL);
    kvmem_directory *readers[] = {reader, reader, publisher};
    threads waiting = {0};
    threads_start(&waiting, NUM(readers), wait_for_north, readers, sizeof(readers[0]));
    directory_publish(publisher, agent, NULL);
    threads_join(&waiting);
    OWN(kvmem_directory_entry, at_once, kvmem_directory_connect, reader, NULL, "north", PATIENCE);
    kvmem_directory_events *none = NULL;
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_directory_take_events(reader, 0, &none, ERR));
    place_put(&here, "south", "damage", 6);
    REFUSE(KVMEM_STATUS_CORRUPT, "south", kvmem_directory_connect, reader, NULL, "south", PATIENCE);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "empty", kvmem_directory_connect, reader, NULL, "", PATIENCE);
}

typedef struct connecting {
    kvmem_directory *directory;
    kvmem_agent *agent;
} connecting;

static void *connect_to_north(void *argument) {
    const connecting *it = argument;
    OWN(kvmem_directory_entry, entry, kvmem_directory_connect, it->directory, it->agent, "north", PATIENCE);
    CHECK_STR(directory_entry_info(entry).agent, "north");
    EXPECT_OK(kvmem_agent_check_remote_metadata(it->agent, "north", ERR));
    return NULL;
}

TEST(a_call_waits_for_a_peer_and_loads_its_metadata) {
    OPENED(place, here);
    OWNED(kvmem_agent) north = agent_open("north");
    OWNED(kvmem_agent) south = agent_open("south");
    OWNED(kvmem_directory) publisher = directory_open(&here);
    OWNED(kvmem_directory) reader = directory_open(&here);
    REFUSE(KVMEM_STATUS_TIMED_OUT, "not published", kvmem_directory_connect, reader, south, "north",
           MILLISECONDS(50));
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_agent_check_remote_metadata(south, "north", ERR));
    connecting both[] = {{reader, south}, {publisher, south}};
    threads waiting = {0};
    threads_start(&waiting, NUM(both), connect_to_north, both, sizeof(both[0]));
    directory_publish(publisher, north, NULL);
    threads_join(&waiting);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "", kvmem_directory_connect, reader, north, "north", PATIENCE);
}

/* A timeout of 0 asks once. */
TEST(calls_without_a_timeout_find_what_is_published) {
    OPENED(place, here);
    OWNED(kvmem_agent) agent = agent_open("north");
    OWNED(kvmem_directory) directory = directory_open(&here);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "kvmem_directory_connect", kvmem_directory_look_up, directory, "north", 0);
    REFUSE(KVMEM_STATUS_TIMED_OUT, "not published", kvmem_directory_connect, directory, NULL, "north", 0);
    EXPECT_OK(kvmem_directory_publish(directory, agent, NULL, 0, PATIENCE, ERR));
    OWN(kvmem_directory_entry, found, kvmem_directory_look_up, directory, "north", 0);
    OWN(kvmem_directory_entry, awaited, kvmem_directory_connect, directory, NULL, "north", 0);
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
    directory_publish(publisher, agent, NULL);
    OWN(kvmem_directory_entry, first, kvmem_directory_connect, reader, NULL, "north", PATIENCE);
    directory_publish(publisher, agent, NULL);
    for (uint64_t version = 0; version != 2;) {
        OWN(kvmem_directory_events, events, kvmem_directory_take_events, reader, PATIENCE);
        const kvmem_directory_event event = events->items[0];
        version = event.version;
    }
    EXPECT_OK(kvmem_directory_unwatch(reader, "north", PATIENCE, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, "not watched",
                   kvmem_directory_unwatch(reader, "north", PATIENCE, ERR));
    OWN(kvmem_directory_entry, second, kvmem_directory_connect, reader, NULL, "north", PATIENCE);
    CHECK_EQ(directory_entry_info(second).version, 2);
}
