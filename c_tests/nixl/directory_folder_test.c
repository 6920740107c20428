// SPDX-License-Identifier: Apache-2.0
// Directories in a folder: the cases of directory_cases.c, and cases specific to folders.
#include "directory_cases.h"

static const char *folder_of(const place *place) {
    return place->options.folder;
}

kvmem_directory_options place_from_words(char *words) {
    return OPTIONS(kvmem_directory_options, it.folder = words);
}

void place_open(place *place) {
    place->files = scratch_create(temporary_directory());
    snprintf(place->words, sizeof(place->words), "%s", scratch_file(&place->files, "cluster"));
    place->options = place_from_words(place->words);
}

void place_close(place *place) {
    scratch_remove(&place->files);
}

static const char *path_of(const place *place, const char *name) {
    return TEXT("%s/%s.agent", folder_of(place), name);
}

void place_put(const place *place, const char *name, const void *data, size_t size) {
    write_file(path_of(place, name), data, size);
}

void place_erase(const place *place, const char *name) {
    CHECK_EQ(unlink(path_of(place, name)), 0);
}

/* Files that cannot be read, or would block a reader forever. */
TEST(entries_that_are_not_regular_files_fail) {
    OPENED(place, here);
    OWNED(kvmem_directory) directory = directory_open(&here);
    EXPECT_OK(kvmem_directory_watch(directory, NULL, PATIENCE, ERR));
    const char *names[] = {"link", "fifo", "folder"};
    for (size_t i = 0; i < NUM(names); i++) {
        const char *path = path_of(&here, names[i]);
        CHECK_EQ(i == 0 ? symlink("/etc/hostname", path) : i == 1 ? mkfifo(path, 0600) : mkdir(path, 0700), 0);
        directory_await(directory, KVMEM_DIRECTORY_INVALID, names[i]);
        REFUSE(KVMEM_STATUS_CORRUPT, names[i], kvmem_directory_look_up, directory, names[i], PATIENCE);
    }
    OWNED(kvmem_agent) agent = agent_open("folder"); /* a file cannot replace a folder */
    EXPECT_MESSAGE(KVMEM_STATUS_IO, "folder.agent",
                   kvmem_directory_publish(directory, agent, NULL, 0, PATIENCE, ERR));
    OWNED(kvmem_agent) link = agent_open("link"); /* a link is replaced, not its target */
    EXPECT_OK(kvmem_directory_publish(directory, link, NULL, 0, PATIENCE, ERR));
    directory_await(directory, KVMEM_DIRECTORY_PUBLISHED, "link");
    CHECK_EQ(rmdir(path_of(&here, "folder")), 0);
}

/* A process without file descriptors cannot read entries. That is not reported as their damage or absence. */
TEST(entries_that_cannot_be_opened_are_not_reported_as_invalid) {
    OPENED(place, here);
    OWNED(kvmem_directory) directory = directory_open(&here);
    OWNED(kvmem_agent) agent = agent_open("north");
    EXPECT_OK(kvmem_directory_publish(directory, agent, NULL, 0, PATIENCE, ERR));
    EXPECT_OK(kvmem_directory_watch(directory, NULL, PATIENCE, ERR));
    directory_await(directory, KVMEM_DIRECTORY_PUBLISHED, "north");
    OWN(kvmem_directory_entry, entry, kvmem_directory_look_up, directory, "north", PATIENCE);
    const char *other = path_of(&here, "south");
    const struct rlimit before = forbid_open_files();
    const bool linked = link(path_of(&here, "north"), other) == 0;
    /* The second call is executed after a look at what has changed before the first. */
    kvmem_status checks[2];
    for (size_t i = 0; i < NUM(checks); i++) checks[i] = kvmem_directory_check(directory, entry, PATIENCE, ERR);
    kvmem_directory_entry *found = NULL;
    const kvmem_status look_up = kvmem_directory_look_up(directory, "north", PATIENCE, &found, ERR);
    CHECK_HAS(test_last_message(), "RLIMIT_NOFILE");
    const kvmem_status watch = kvmem_directory_watch(directory, "north", PATIENCE, NULL);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    CHECK(linked && found == NULL);
    CHECK_EQ(look_up, KVMEM_STATUS_OUT_OF_MEMORY);
    CHECK_EQ(watch, KVMEM_STATUS_OUT_OF_MEMORY);
    for (size_t i = 0; i < NUM(checks); i++) CHECK_EQ(checks[i], KVMEM_STATUS_OUT_OF_MEMORY);
    OWN(kvmem_directory_events, events, kvmem_directory_take_events, directory, PATIENCE);
    CHECK_EQ(kvmem_directory_events_count(events), 1);
    GET(kvmem_directory_event, event, kvmem_directory_events_get, events, 0);
    CHECK_STR(event.agent, "south");
    CHECK_HAS(event.message, "it is the entry of agent 'north'");
    EXPECT_OK(kvmem_directory_check(directory, entry, PATIENCE, ERR));
    REFUSE(KVMEM_STATUS_NOT_FOUND, "it has 0 layouts", kvmem_directory_entry_import_layout, entry, agent, "cache");
    CHECK(strstr(test_last_message(), "layouts:") == NULL);
}

/* A valid entry stored under another name does not belong to that agent. */
TEST(an_entry_under_another_name_fails) {
    OPENED(place, here);
    OWNED(kvmem_directory) directory = directory_open(&here);
    OWNED(kvmem_agent) agent = agent_open("north");
    EXPECT_OK(kvmem_directory_publish(directory, agent, NULL, 0, PATIENCE, ERR));
    CHECK_EQ(link(path_of(&here, "north"), path_of(&here, "south")), 0);
    REFUSE(KVMEM_STATUS_CORRUPT, "it is the entry of agent 'north'", kvmem_directory_look_up, directory, "south",
           PATIENCE);
}

/* The folder is moved away, and the first directory that notices creates it again. */
TEST(a_folder_that_was_moved_is_created_again) {
    OPENED(place, here);
    OWNED(kvmem_directory) publisher = directory_open(&here);
    OWNED(kvmem_directory) reader = directory_open(&here);
    OWNED(kvmem_agent) agent = agent_open("north");
    EXPECT_OK(kvmem_directory_publish(publisher, agent, NULL, 0, PATIENCE, ERR));
    EXPECT_OK(kvmem_directory_watch(reader, "north", PATIENCE, ERR));
    directory_await(reader, KVMEM_DIRECTORY_PUBLISHED, "north");
    OWN(kvmem_directory_entry, entry, kvmem_directory_look_up, reader, "north", PATIENCE);
    CHECK_EQ(rename(folder_of(&here), TEXT("%s.old", folder_of(&here))), 0);
    kvmem_status status;
    do { /* until the publisher has written its entry again */
        status = kvmem_directory_check(reader, entry, PATIENCE, ERR);
        CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_NOT_FOUND);
    } while (status != KVMEM_STATUS_OK);
}

/* While there is no folder, calls report that. They do not report that an agent is gone. */
TEST(a_folder_whose_parent_was_moved_is_reported_and_found_again) {
    OPENED(place, here);
    OWNED(kvmem_directory) directory = directory_open(&here);
    OWNED(kvmem_agent) agent = agent_open("north");
    EXPECT_OK(kvmem_directory_publish(directory, agent, NULL, 0, PATIENCE, ERR));
    EXPECT_OK(kvmem_directory_watch(directory, "north", PATIENCE, ERR));
    directory_await(directory, KVMEM_DIRECTORY_PUBLISHED, "north");
    GET(kvmem_directory_entry *, entry, kvmem_directory_look_up, directory, "north", PATIENCE);
    CHECK_EQ(rename(here.files.path, TEXT("%s.old", here.files.path)), 0);
    EXPECT_MESSAGE(KVMEM_STATUS_IO, folder_of(&here), kvmem_directory_check(directory, entry, PATIENCE, ERR));
    CHECK_CAUSE(KVMEM_DOMAIN_ERRNO, ENOENT);
    REFUSE(KVMEM_STATUS_IO, folder_of(&here), kvmem_directory_look_up, directory, "north", PATIENCE);
    EXPECT(KVMEM_STATUS_IO, kvmem_directory_publish(directory, agent, NULL, 0, PATIENCE, ERR));
    CHECK_EQ(directory_await(directory, KVMEM_DIRECTORY_INTERRUPTED, "").status, KVMEM_STATUS_IO);
    CHECK_EQ(rename(TEXT("%s.old", here.files.path), here.files.path), 0);
    directory_await(directory, KVMEM_DIRECTORY_RESUMED, "");
    EXPECT_OK(kvmem_directory_check(directory, entry, PATIENCE, ERR));
    kvmem_directory_entry_destroy(entry);
}

TEST(a_folder_that_cannot_be_used_fails) {
    SCRATCH(files);
    char path[160];
    kvmem_directory_options options = OPTIONS(kvmem_directory_options);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "folder", kvmem_directory_create, &options);
    CHECK_HAS(test_last_message(), "neither");
    options.folder = "folder";
    options.endpoints = REF((const char *)"http://127.0.0.1:1");
    options.endpoint_count = 1;
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "both", kvmem_directory_create, &options);
    options = OPTIONS(kvmem_directory_options, it.folder = "");
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "folder", kvmem_directory_create, &options);
    snprintf(path, sizeof(path), "%s/none/cluster", files.path);
    options.folder = path;
    REFUSE(KVMEM_STATUS_NOT_FOUND, path, kvmem_directory_create, &options);
    snprintf(path, sizeof(path), "%s/file", files.path);
    write_file(path, "x", 1);
    REFUSE(KVMEM_STATUS_IO, path, kvmem_directory_create, &options);
}
