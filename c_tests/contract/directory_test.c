// SPDX-License-Identifier: Apache-2.0
// The functions of directories: NULL, options of another size, and handles of a parent process.
#include "contract.h"

static world w;
static scratch files;
static kvmem_directory *directory;
static kvmem_directory_entry *entry;
static kvmem_directory_events *events;

TEST(open_world) {
    world_open(&w);
    files = scratch_create(temporary_directory());
    GET(kvmem_directory *, made, kvmem_directory_create,
        REF(OPTIONS(kvmem_directory_options, it.folder = files.path)));
    directory = made;
    const kvmem_named_layout layouts[] = {{.name = "near", .layout = w.near.layout}};
    EXPECT_OK(kvmem_directory_watch(directory, NULL, PATIENCE, ERR));
    EXPECT_OK(kvmem_directory_publish(directory, w.agent, layouts, 1, PATIENCE, ERR));
    EXPECT_OK(kvmem_directory_take_events(directory, PATIENCE, &events, ERR));
    EXPECT_OK(kvmem_directory_look_up(directory, kvmem_agent_name(w.agent), PATIENCE, &entry, ERR));
}

TEST(directories_fail_with_null) {
    kvmem_directory *made = NULL;
    kvmem_directory_options options = OPTIONS(kvmem_directory_options);
    INVALID_NULLS(made, kvmem_directory_create, NULL, &made);
    INVALID_NULLS(made, kvmem_directory_create, &options, &made); /* the path does not exist */
    options.folder = files.path;
    INVALID(kvmem_directory_create, &options, NULL);
    options.struct_size = sizeof(void *);
    INVALID_NULLS(made, kvmem_directory_create, &options, &made);
    INVALID(kvmem_directory_publish, NULL, w.agent, NULL, 0, 0);
    INVALID(kvmem_directory_publish, directory, NULL, NULL, 0, 0);
    INVALID(kvmem_directory_publish, directory, w.agent, NULL, 1, 0);
    INVALID(kvmem_directory_withdraw, NULL, "a", 0);
    INVALID(kvmem_directory_withdraw, directory, NULL, 0);
    INVALID(kvmem_directory_watch, NULL, NULL, 0);
    INVALID(kvmem_directory_unwatch, NULL, NULL, 0);
    INVALID(kvmem_directory_check, NULL, entry, 0);
    INVALID(kvmem_directory_check, directory, NULL, 0);
    INVALID(kvmem_directory_report_events, NULL, w.queue, 0);
    kvmem_directory_destroy(NULL);
}

TEST(entries_fail_with_null) {
    kvmem_directory_entry *found = NULL;
    INVALID_NULLS(found, kvmem_directory_look_up, NULL, "a", 0, &found);
    INVALID_NULLS(found, kvmem_directory_look_up, directory, NULL, 0, &found);
    INVALID(kvmem_directory_look_up, directory, "a", 0, NULL);
    INVALID_NULLS(found, kvmem_directory_connect, NULL, w.agent, "a", 0, &found);
    INVALID_NULLS(found, kvmem_directory_connect, directory, w.agent, NULL, 0, &found);
    INVALID(kvmem_directory_connect, directory, w.agent, "a", 0, NULL);
    kvmem_directory_entry_info info;
    INVALID_KEEPS(info, kvmem_directory_entry_get_info, NULL, &info);
    INVALID(kvmem_directory_entry_get_info, entry, NULL);
    INVALID(kvmem_directory_entry_load, NULL, w.far);
    INVALID(kvmem_directory_entry_load, entry, NULL);
    kvmem_layout *layout = NULL;
    INVALID_NULLS(layout, kvmem_directory_entry_open_layout, NULL, "near", NULL, 0, &layout);
    INVALID_NULLS(layout, kvmem_directory_entry_open_layout, entry, NULL, NULL, 0, &layout);
    INVALID(kvmem_directory_entry_open_layout, entry, "near", NULL, 0, NULL);
    kvmem_directory_entry_destroy(NULL);
}

TEST(events_fail_with_null) {
    kvmem_directory_events *taken = NULL;
    INVALID_NULLS(taken, kvmem_directory_take_events, NULL, 0, &taken);
    INVALID(kvmem_directory_take_events, directory, 0, NULL);
    CHECK_EQ(events->count, 1);
    CHECK(events->items != NULL);
    kvmem_directory_events_destroy(NULL);
}

static void use_in_child(void) {
    kvmem_directory_entry *found = NULL;
    kvmem_directory_events *taken = NULL;
    FORKED(kvmem_directory_publish, directory, w.agent, NULL, 0, 0);
    FORKED(kvmem_directory_withdraw, directory, "a", 0);
    FORKED(kvmem_directory_look_up, directory, "a", 0, &found);
    FORKED(kvmem_directory_connect, directory, w.agent, "a", 0, &found);
    FORKED(kvmem_directory_check, directory, entry, 0);
    FORKED(kvmem_directory_watch, directory, NULL, 0);
    FORKED(kvmem_directory_unwatch, directory, NULL, 0);
    FORKED(kvmem_directory_take_events, directory, 0, &taken);
    FORKED(kvmem_directory_report_events, directory, NULL, 0);
    FORKED(kvmem_directory_entry_load, entry, w.agent);
    kvmem_layout *opened = NULL;
    FORKED(kvmem_directory_entry_open_layout, entry, "near", NULL, 0, &opened);
    kvmem_directory_events_destroy(events);
    kvmem_directory_entry_destroy(entry);
    kvmem_directory_destroy(directory);
}

/* Destroying the parent's directory in the child leaves the entry published. */
TEST(handles_of_a_parent_fail_in_a_child) {
    in_a_forked_child(use_in_child);
    EXPECT_OK(kvmem_directory_check(directory, entry, PATIENCE, ERR));
}

TEST(close_world) {
    kvmem_directory_events_destroy(events);
    kvmem_directory_entry_destroy(entry);
    kvmem_directory_destroy(directory);
    scratch_remove(&files);
    world_close(&w);
}
