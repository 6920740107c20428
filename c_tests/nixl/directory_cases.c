// SPDX-License-Identifier: Apache-2.0
// Cases of every kind of directory: what is published, its entries and its events.
#include "directory_cases.h"

#define UCX_NAME_LIMIT 200
/* A layout that is published without a broker. */
#define NAMED(of_layout, it) {.name = (of_layout), .layout = (it)}

kvmem_directory *directory_open(const place *place) {
    return MADE(kvmem_directory, kvmem_directory_create, &place->options);
}

kvmem_directory_event directory_await(kvmem_directory *directory, uint32_t kind, const char *agent) {
    for (;;) {
        OWN(kvmem_directory_events, events, kvmem_directory_take_events, directory, PATIENCE);
        for (size_t i = 0; i < events->count; i++) {
            kvmem_directory_event event = events->items[i];
            if (event.kind == kind && strcmp(event.agent, agent) == 0) {
                event.agent = TEXT("%s", event.agent);
                event.message = TEXT("%s", event.message);
                return event;
            }
        }
    }
}

void directory_publish(kvmem_directory *directory, kvmem_agent *agent, const kvmem_layout *layout) {
    const kvmem_named_layout layouts[] = {NAMED("cache", layout)};
    EXPECT_OK(kvmem_directory_publish(directory, agent, layouts, layout != NULL, PATIENCE, ERR));
}

kvmem_directory_entry *directory_find(kvmem_directory *directory, const char *name) {
    return MADE(kvmem_directory_entry, kvmem_directory_look_up, directory, name, PATIENCE);
}

kvmem_directory_entry_info directory_entry_info(const kvmem_directory_entry *entry) {
    GET(kvmem_directory_entry_info, info, kvmem_directory_entry_get_info, entry);
    return info;
}

void directory_expect_absent(kvmem_directory *directory, const char *name) {
    REFUSE(KVMEM_STATUS_NOT_FOUND, name, kvmem_directory_look_up, directory, name, PATIENCE);
}

TEST(an_agent_is_found_by_name_with_its_layouts) {
    OPENED(place, here);
    OWNED(kvmem_agent) agent = agent_open("north/1");
    OPENED(kv_side, side, REF(kv_config(&kv_kinds[0])), agent, 1);
    OWNED(kvmem_directory) publisher = directory_open(&here);
    OWNED(kvmem_directory) reader = directory_open(&here);
    directory_expect_absent(reader, "north/1");
    const kvmem_named_layout layouts[] = {NAMED("cache", side.layout), NAMED("the same: \xC3\xA9/%", side.layout)};
    EXPECT_OK(kvmem_directory_publish(publisher, agent, layouts, 2, PATIENCE, ERR));

    OWNED(kvmem_directory_entry) entry = directory_find(reader, "north/1");
    const kvmem_directory_entry_info info = directory_entry_info(entry);
    CLEANUP(message_free) const message metadata = agent_metadata(agent);
    CLEANUP(message_free) const message descriptor = layout_descriptor(side.layout);
    CHECK_STR(info.agent, "north/1");
    CHECK(info.incarnation != 0);
    CHECK_EQ(info.version, 1);
    CHECK_EQ(info.metadata_size, metadata.size);
    CHECK_BYTES(info.metadata, metadata.data, metadata.size);
    CHECK_EQ(info.layout_count, 2);
    for (size_t i = 0; i < 2; i++) {
        const kvmem_published_layout layout = info.layouts[i];
        CHECK_STR(layout.name, layouts[i].name);
        CHECK_EQ(layout.size, descriptor.size);
        CHECK_BYTES(layout.descriptor, descriptor.data, descriptor.size);
    }
}

/* An entry is current, then out of date, then of an agent that is gone. Each has a different status. */
TEST(stale_and_not_found_are_distinct) {
    OPENED(place, here);
    OWNED(kvmem_agent) agent = agent_open("north");
    OWNED(kvmem_directory) publisher = directory_open(&here);
    OWNED(kvmem_directory) reader = directory_open(&here);
    directory_publish(publisher, agent, NULL);
    OWNED(kvmem_directory_entry) first = directory_find(reader, "north");
    EXPECT_OK(kvmem_directory_check(reader, first, PATIENCE, ERR));

    directory_publish(publisher, agent, NULL);
    EXPECT_MESSAGE(KVMEM_STATUS_STALE, "version 2", kvmem_directory_check(reader, first, PATIENCE, ERR));
    OWNED(kvmem_directory_entry) second = directory_find(reader, "north");
    CHECK_EQ(directory_entry_info(second).version, 2);
    CHECK(directory_entry_info(second).incarnation == directory_entry_info(first).incarnation);
    EXPECT_OK(kvmem_directory_check(reader, second, PATIENCE, ERR));

    OWNED(kvmem_agent) successor = agent_open("north");
    directory_publish(publisher, successor, NULL);
    EXPECT_MESSAGE(KVMEM_STATUS_STALE, "restarted", kvmem_directory_check(reader, second, PATIENCE, ERR));
    OWNED(kvmem_directory_entry) third = directory_find(reader, "north");
    CHECK(directory_entry_info(third).incarnation != directory_entry_info(first).incarnation);

    EXPECT_OK(kvmem_directory_withdraw(publisher, "north", PATIENCE, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, "north", kvmem_directory_check(reader, third, PATIENCE, ERR));
    directory_expect_absent(reader, "north");
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
    directory_publish(publisher, other, NULL);
    EXPECT_OK(kvmem_directory_watch(one, "north", PATIENCE, ERR));
    EXPECT_OK(kvmem_directory_watch(all, NULL, PATIENCE, ERR));
    directory_await(all, KVMEM_DIRECTORY_PUBLISHED, "south");

    directory_publish(publisher, agent, NULL);
    const kvmem_directory_event first = directory_await(one, KVMEM_DIRECTORY_PUBLISHED, "north");
    CHECK_EQ(first.version, 1);
    CHECK_EQ(first.status, KVMEM_STATUS_OK);
    CHECK(directory_await(all, KVMEM_DIRECTORY_PUBLISHED, "north").incarnation == first.incarnation);
    directory_publish(publisher, agent, NULL);
    CHECK_EQ(directory_await(one, KVMEM_DIRECTORY_UPDATED, "north").version, 2);
    OWNED(kvmem_agent) successor = agent_open("north");
    directory_publish(publisher, successor, NULL);
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
        directory_publish(publisher, agent, NULL);
        const kvmem_completion completion = next_completion(queue);
        CHECK_EQ(completion.user_data, 77);
        CHECK_EQ(completion.status, KVMEM_STATUS_OK);
        OWN(kvmem_directory_events, events, kvmem_directory_take_events, watcher, 0);
        CHECK_EQ(events->count, 1);
        kvmem_directory_event event = events->items[0];
        CHECK_EQ(event.version, version);
    }
    EXPECT_OK(kvmem_directory_report_events(watcher, NULL, 0, ERR));
}

/* ---- entries of other programs ---- */

static void expect_refused(kvmem_directory *directory, const char *name) {
    REFUSE(KVMEM_STATUS_CORRUPT, name, kvmem_directory_look_up, directory, name, PATIENCE);
}

TEST(invalid_entries_fail_and_do_not_affect_others) {
    OPENED(place, here);
    OWNED(kvmem_directory) directory = directory_open(&here);
    OWNED(kvmem_agent) agent = agent_open("good");
    directory_publish(directory, agent, NULL);
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
        CHECK_HAS(event.message, "; remove it; if its agent exists, kvmem publishes it again");
        expect_refused(directory, garbage[i].name);
        OWNED(kvmem_directory_entry) good = directory_find(directory, "good");
        place_erase(&here, garbage[i].name);
        directory_await(directory, KVMEM_DIRECTORY_WITHDRAWN, garbage[i].name);
        directory_expect_absent(directory, garbage[i].name);
    }
    free(bytes);
}

/* An entry that another program removes or overwrites is published again. */
TEST(an_entry_that_is_damaged_is_published_again) {
    OPENED(place, here);
    OWNED(kvmem_directory) directory = directory_open(&here);
    OWNED(kvmem_directory) watcher = directory_open(&here);
    OWNED(kvmem_agent) agent = agent_open("north");
    directory_publish(directory, agent, NULL);
    OWNED(kvmem_directory_entry) before = directory_find(watcher, "north");
    for (int round = 0; round < 2; round++) {
        if (round == 0) {
            place_erase(&here, "north");
        } else {
            place_put(&here, "north", "garbage", 7);
        }
        kvmem_status status;
        do {
            status = kvmem_directory_check(watcher, before, PATIENCE, ERR);
            CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_NOT_FOUND ||
                  status == KVMEM_STATUS_CORRUPT);
        } while (status != KVMEM_STATUS_OK);
        /* The publisher gets an event, though it watches nothing. */
        CHECK_EQ(directory_await(directory, KVMEM_DIRECTORY_RESTORED, "north").status, KVMEM_STATUS_OK);
    }
}

/* ---- arguments ---- */

TEST(layouts_that_cannot_be_published_are_named_by_their_index) {
    OPENED(place, here);
    OWNED(kvmem_agent) agent = agent_open("north");
    OPENED(kv_side, side, REF(kv_config(&kv_kinds[0])), agent, 1);
    OWNED(kvmem_directory) directory = directory_open(&here);
    const kvmem_named_layout no_layout[] = {NAMED("a", side.layout), NAMED("b", NULL)};
    const kvmem_named_layout no_name[] = {NAMED("a", side.layout), NAMED(NULL, side.layout)};
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
    const char *refused[] = {"", longest,
                             "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9"
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
        directory_publish(directory, agent, NULL);
        OWNED(kvmem_directory_entry) entry = directory_find(directory, accepted[i]);
        CHECK_STR(directory_entry_info(entry).agent, accepted[i]);
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
        {{NAMED("a", own.layout), NAMED("a", own.layout)}, KVMEM_STATUS_INVALID_ARGUMENT, "two layouts"},
        {{NAMED("a", own.layout), NAMED("", own.layout)}, KVMEM_STATUS_INVALID_ARGUMENT, "empty"},
        {{NAMED("a", own.layout), NAMED(NULL, own.layout)}, KVMEM_STATUS_INVALID_ARGUMENT, "NULL"},
        {{NAMED("a", own.layout), NAMED("b", NULL)}, KVMEM_STATUS_INVALID_ARGUMENT, "layout"},
        {{NAMED("a", own.layout), NAMED("b", foreign.layout)}, KVMEM_STATUS_INVALID_ARGUMENT, "south"},
        {{NAMED("a", own.layout), NAMED("b", local.layout)}, KVMEM_STATUS_INVALID_STATE, "'b'"},
    };
    for (size_t i = 0; i < NUM(refused); i++) {
        EXPECT_MESSAGE(refused[i].status, refused[i].part,
                       kvmem_directory_publish(directory, agent, refused[i].layouts, 2, PATIENCE, ERR));
    }
    directory_expect_absent(directory, "north");
    directory_publish(directory, agent, own.layout);
    OWNED(kvmem_directory_entry) entry = directory_find(directory, "north");
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
        directory_publish(directory, agent, NULL);
        EXPECT_OK(kvmem_directory_watch(directory, NULL, PATIENCE, ERR));
        directory_await(directory, KVMEM_DIRECTORY_PUBLISHED, "north");
    }
    /* A thread that was joined is listed until the kernel has ended it. */
    AWAIT(count_directory_entries("/proc/self/task") <= threads);
    AWAIT(count_open_files() <= files); /* another thread may have one open for a moment */
}
