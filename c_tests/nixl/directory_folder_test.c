// SPDX-License-Identifier: Apache-2.0
// Directories in a folder: the cases of every kind of directory, and cases specific to folders.
#include "directory_cases.h"
#include "held_call.h"

#include <semaphore.h>

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
    CHECK_EQ(mkdir(folder_of(&here), 0700), 0);
    OWNED(kvmem_directory) directory = directory_open(&here);
    EXPECT_OK(kvmem_directory_watch(directory, NULL, PATIENCE, ERR));
    const char *names[] = {"link", "fifo", "folder"};
    for (size_t i = 0; i < NUM(names); i++) {
        const char *path = path_of(&here, names[i]);
        CHECK_EQ(i == 0 ? symlink("/etc/hostname", path) : i == 1 ? mkfifo(path, 0600) : mkdir(path, 0700),
                 0);
        const kvmem_directory_event event = directory_await(directory, KVMEM_DIRECTORY_INVALID, names[i]);
        CHECK_HAS(event.message, "; remove it");
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

/* An entry is private until it is locked, and has the permissions of any new file then. */
TEST(the_permissions_of_an_entry_follow_the_umask) {
    OPENED(place, here);
    OWNED(kvmem_directory) directory = directory_open(&here);
    OWNED(kvmem_agent) agent = agent_open("masked");
    const mode_t masks[] = {0022, 0027, 0077};
    for (size_t i = 0; i < NUM(masks); i++) {
        const mode_t before = umask(masks[i]);
        EXPECT_OK(kvmem_directory_publish(directory, agent, NULL, 0, PATIENCE, ERR));
        umask(before);
        struct stat found;
        CHECK_EQ(stat(path_of(&here, "masked"), &found), 0);
        CHECK_EQ(found.st_mode & 0777, 0644 & ~masks[i]);
    }
}

/* A process of another user, or of this one if that is not root. */
ROLE(stranger) {
    (void)socket;
    if (geteuid() == 0) CHECK_EQ(setuid(65534), 0);
    const kvmem_directory_options options = OPTIONS(kvmem_directory_options, it.folder = getenv("FOLDER"));
    OWN(kvmem_directory, directory, kvmem_directory_create, &options);
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, "EACCES", kvmem_directory_look_up, directory, "private", PATIENCE);
}

/* It may be valid: a publisher has a mask that excludes other users. */
TEST(an_entry_that_may_not_be_read_is_not_called_invalid) {
    OPENED(place, here);
    OWNED(kvmem_directory) directory = directory_open(&here);
    OWNED(kvmem_agent) agent = agent_open("private");
    EXPECT_OK(kvmem_directory_publish(directory, agent, NULL, 0, PATIENCE, ERR));
    CHECK_EQ(chmod(path_of(&here, "private"), geteuid() == 0 ? 0600 : 0), 0);
    CHECK_EQ(chmod(folder_of(&here), 0755), 0);
    CHECK_EQ(chmod(here.files.path, 0755), 0);
    CHECK_EQ(setenv("FOLDER", folder_of(&here), 1), 0);
    peer stranger = peer_start("stranger");
    peer_finish(&stranger);
}

/* All users may use the folder, which only root can give back to its owner and group. */
ROLE(user_of_a_public_folder) {
    (void)socket;
    const char *folder = getenv("FOLDER");
    const kvmem_directory_options options = OPTIONS(kvmem_directory_options, it.folder = folder);
    OWN(kvmem_directory, directory, kvmem_directory_create, &options);
    OWNED(kvmem_agent) agent = agent_open("public");
    if (geteuid() == 0) CHECK_EQ(setuid(65534), 0);
    CHECK_EQ(rmdir(folder), 0);
    EXPECT_OK(kvmem_directory_publish(directory, agent, NULL, 0, PATIENCE, ERR));
    struct stat found;
    CHECK_EQ(stat(folder, &found), 0);
    CHECK_EQ(found.st_mode & 07777, 01777);
}

TEST(a_public_folder_is_created_again_by_any_user) {
    SCRATCH(parent);
    CHECK_EQ(chmod(parent.path, 0777), 0);
    const char *folder = TEXT("%s/public", parent.path);
    CHECK_EQ(mkdir(folder, 0700), 0);
    CHECK_EQ(chmod(folder, 01777), 0);
    CHECK_EQ(setenv("FOLDER", folder, 1), 0);
    peer user = peer_start("user_of_a_public_folder");
    peer_finish(&user);
}

/* Another user, or this one if that is not root. */
ROLE(first_publisher) {
    const kvmem_directory_options options = OPTIONS(kvmem_directory_options, it.folder = getenv("FOLDER"));
    OWNED(kvmem_agent) agent = agent_open("first");
    if (geteuid() == 0) CHECK_EQ(setuid(65534), 0);
    OWN(kvmem_directory, directory, kvmem_directory_create, &options);
    EXPECT_OK(kvmem_directory_publish(directory, agent, NULL, 0, PATIENCE, ERR));
    frame_await(socket, 0);
}

TEST(a_process_that_looks_up_leaves_the_folder_to_the_first_publisher) {
    SCRATCH(parent);
    CHECK_EQ(chmod(parent.path, 0777), 0);
    const char *folder = TEXT("%s/cluster", parent.path);
    const kvmem_directory_options options = OPTIONS(kvmem_directory_options, it.folder = folder);
    OWN(kvmem_directory, directory, kvmem_directory_create, &options);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "first", kvmem_directory_look_up, directory, "first", PATIENCE);
    REFUSE(KVMEM_STATUS_TIMED_OUT, "not published", kvmem_directory_connect, directory, NULL, "first", 0);
    EXPECT_OK(kvmem_directory_watch(directory, "first", PATIENCE, ERR));
    CHECK(access(folder, F_OK) != 0);
    CHECK_EQ(setenv("FOLDER", folder, 1), 0);
    peer publisher = peer_start("first_publisher");
    OWN(kvmem_directory_entry, entry, kvmem_directory_connect, directory, NULL, "first", PATIENCE);
    directory_await(directory, KVMEM_DIRECTORY_PUBLISHED, "first");
    struct stat found;
    CHECK_EQ(stat(folder, &found), 0);
    CHECK_EQ(found.st_mode & 07777, 0700);
    CHECK_EQ(found.st_uid, geteuid() == 0 ? 65534 : geteuid());
    frame_send(publisher.socket, 0, NULL, 0);
    peer_finish(&publisher);
}

ROLE(reader_without_permission) {
    const kvmem_directory_options options = OPTIONS(kvmem_directory_options, it.folder = getenv("FOLDER"));
    if (geteuid() == 0) CHECK_EQ(setuid(65534), 0);
    OWN(kvmem_directory, directory, kvmem_directory_create, &options);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "first", kvmem_directory_look_up, directory, "first", PATIENCE);
    frame_send(socket, 0, NULL, 0);
    frame_await(socket, 0);
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, "EACCES", kvmem_directory_look_up, directory, "first", PATIENCE);
}

TEST(a_reader_of_a_folder_that_was_replaced_by_a_private_one_has_no_permission) {
    SCRATCH(parent);
    CHECK_EQ(chmod(parent.path, 0755), 0);
    const char *folder = TEXT("%s/cluster", parent.path);
    CHECK_EQ(mkdir(folder, 0700), 0);
    CHECK_EQ(chmod(folder, 0755), 0);
    CHECK_EQ(setenv("FOLDER", folder, 1), 0);
    peer reader = peer_start("reader_without_permission");
    frame_await(reader.socket, 0);
    CHECK_EQ(rmdir(folder), 0);
    CHECK_EQ(mkdir(folder, geteuid() == 0 ? 0700 : 0), 0);
    frame_send(reader.socket, 0, NULL, 0);
    peer_finish(&reader);
}

/* The parent may be read, but not written. It may be written by another process later. */
ROLE(publisher_without_permission) {
    OWNED(kvmem_agent) agent = agent_open("first");
    if (geteuid() == 0) CHECK_EQ(setuid(65534), 0);
    kvmem_directory_options options = OPTIONS(kvmem_directory_options, it.folder = TEXT("%s/closed/cluster", getenv("FOLDER")));
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, options.folder, kvmem_directory_create, &options);
    options.folder = TEXT("%s/cluster", getenv("FOLDER"));
    OWN(kvmem_directory, directory, kvmem_directory_create, &options);
    for (int i = 0; i < 2; i++) {
        EXPECT_MESSAGE(KVMEM_STATUS_PERMISSION_DENIED, TEXT("create folder %s", options.folder),
                       kvmem_directory_publish(directory, agent, NULL, 0, PATIENCE, ERR));
        REFUSE(KVMEM_STATUS_NOT_FOUND, "first", kvmem_directory_look_up, directory, "first", PATIENCE);
    }
    REFUSE(KVMEM_STATUS_TIMED_OUT, "no event", kvmem_directory_take_events, directory, 0);
    frame_send(socket, 0, NULL, 0);
    frame_await(socket, 0);
    EXPECT_OK(kvmem_directory_publish(directory, agent, NULL, 0, PATIENCE, ERR));
}

TEST(a_publication_that_may_not_create_the_folder_fails_alone) {
    SCRATCH(parent);
    CHECK_EQ(mkdir(TEXT("%s/closed", parent.path), 0), 0);
    CHECK_EQ(chmod(parent.path, 0555), 0);
    CHECK_EQ(setenv("FOLDER", parent.path, 1), 0);
    peer publisher = peer_start("publisher_without_permission");
    frame_await(publisher.socket, 0);
    CHECK_EQ(chmod(parent.path, 0777), 0);
    frame_send(publisher.socket, 0, NULL, 0);
    peer_finish(&publisher);
}

/* A program that changes its working directory, as daemons do. */
TEST(a_relative_folder_stays_where_it_was_created) {
    SCRATCH(first);
    SCRATCH(second);
    const int before = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    CHECK(before >= 0);
    CHECK_EQ(chdir(first.path), 0);
    const kvmem_directory_options options = OPTIONS(kvmem_directory_options, it.folder = "agents");
    OWN(kvmem_directory, directory, kvmem_directory_create, &options);
    OWNED(kvmem_agent) agent = agent_open("north");
    EXPECT_OK(kvmem_directory_publish(directory, agent, NULL, 0, PATIENCE, ERR));
    CHECK_EQ(chdir(second.path), 0);
    EXPECT_OK(kvmem_directory_publish(directory, agent, NULL, 0, PATIENCE, ERR));
    CHECK_EQ(unlink(TEXT("%s/agents/north.agent", first.path)), 0);
    directory_await(directory, KVMEM_DIRECTORY_RESTORED, "north");
    CHECK_EQ(access(TEXT("%s/agents/north.agent", first.path), F_OK), 0);
    CHECK_EQ(count_directory_entries(second.path), 0);
    CHECK_EQ(fchdir(before), 0);
    close(before);
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
    for (size_t i = 0; i < NUM(checks); i++)
        checks[i] = kvmem_directory_check(directory, entry, PATIENCE, ERR);
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
    CHECK_EQ(events->count, 1);
    const kvmem_directory_event event = events->items[0];
    CHECK_STR(event.agent, "south");
    CHECK_HAS(event.message, "it is the entry of agent 'north'");
    EXPECT_OK(kvmem_directory_check(directory, entry, PATIENCE, ERR));
    REFUSE(KVMEM_STATUS_NOT_FOUND, "it has 0 layouts", kvmem_directory_entry_open_layout, entry, "cache",
           REF(OPTIONS(kvmem_open_options, it.flags = KVMEM_OPEN_REMOTE, it.agent = agent)), PATIENCE);
    CHECK(strstr(test_last_message(), "layouts:") == NULL);
}

/* A valid entry stored under another name does not belong to that agent. */
TEST(an_entry_under_another_name_fails) {
    OPENED(place, here);
    OWNED(kvmem_directory) directory = directory_open(&here);
    OWNED(kvmem_agent) agent = agent_open("north");
    EXPECT_OK(kvmem_directory_publish(directory, agent, NULL, 0, PATIENCE, ERR));
    CHECK_EQ(link(path_of(&here, "north"), path_of(&here, "south")), 0);
    REFUSE(KVMEM_STATUS_CORRUPT, "it is the entry of agent 'north'", kvmem_directory_look_up, directory,
           "south",
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
    CHECK_HAS(test_last_message(), "/none does not exist; create it first");
    snprintf(path, sizeof(path), "%s/file", files.path);
    write_file(path, "x", 1);
    REFUSE(KVMEM_STATUS_IO, path, kvmem_directory_create, &options);
    options.folder = TEXT("%s/cluster", path);
    REFUSE(KVMEM_STATUS_IO, options.folder, kvmem_directory_create, &options);
}

static int lock_as(short kind, const char *path, int flags) {
    const int file = open(path, flags | O_CLOEXEC);
    CHECK(file >= 0);
    struct flock lock = {.l_type = kind, .l_whence = SEEK_SET, .l_len = 1};
    CHECK_EQ(fcntl(file, F_OFD_SETLK, &lock), 0);
    return file;
}

/* Every process that may read the file can have a shared lock on it. */
TEST(a_reader_does_not_keep_the_entry_of_an_ended_process) {
    OPENED(place, here);
    OWNED(kvmem_directory) directory = directory_open(&here);
    OWNED(kvmem_agent) agent = agent_open("north");
    EXPECT_OK(kvmem_directory_publish(directory, agent, NULL, 0, PATIENCE, ERR));
    char bytes[65536];
    CLEANUP(test_close) const int entry = open(path_of(&here, "north"), O_RDONLY | O_CLOEXEC);
    const ssize_t size = read(entry, bytes, sizeof(bytes));
    CHECK(size > 0 && size < (ssize_t)sizeof(bytes));
    EXPECT_OK(kvmem_directory_withdraw(directory, "north", PATIENCE, ERR));
    /* As the entry of a process that has ended is: complete, and not locked. */
    write_file(TEXT("%s/aside", folder_of(&here)), bytes, (size_t)size);
    CLEANUP(test_close) const int owner = lock_as(F_WRLCK, TEXT("%s/aside", folder_of(&here)), O_RDWR);
    CHECK_EQ(rename(TEXT("%s/aside", folder_of(&here)), path_of(&here, "north")), 0);
    OWN(kvmem_directory_entry, alive, kvmem_directory_look_up, directory, "north", PATIENCE);
    struct flock unlock = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_len = 1};
    CHECK_EQ(fcntl(owner, F_OFD_SETLK, &unlock), 0);
    CLEANUP(test_close) const int reader = lock_as(F_RDLCK, path_of(&here, "north"), O_RDONLY);
    REFUSE(KVMEM_STATUS_NOT_FOUND, "north", kvmem_directory_look_up, directory, "north", PATIENCE);
}

/* Of two old files without their entry's name, the one that a process still writes is kept. */
TEST(only_unfinished_entries_without_a_writer_are_removed) {
    OPENED(place, here);
    CHECK_EQ(mkdir(folder_of(&here), 0700), 0);
    static const char *const names[] = {".0123456789abcdef.new", ".fedcba9876543210.new"};
    for (size_t i = 0; i < NUM(names); i++) {
        write_file(TEXT("%s/%s", folder_of(&here), names[i]), "x", 1);
        const struct timespec old[] = {{.tv_sec = 1}, {.tv_sec = 1}};
        CHECK_EQ(utimensat(AT_FDCWD, TEXT("%s/%s", folder_of(&here), names[i]), old, 0), 0);
    }
    CLEANUP(test_close) const int writer = lock_as(F_WRLCK, TEXT("%s/%s", folder_of(&here), names[0]),
                                                   O_RDWR);
    OWNED(kvmem_directory) directory = directory_open(&here);
    CHECK_EQ(access(TEXT("%s/%s", folder_of(&here), names[0]), F_OK), 0);
    CHECK(access(TEXT("%s/%s", folder_of(&here), names[1]), F_OK) != 0);
}

static const char *slow_folder;
static kvmem_status opened;
static sem_t has_returned;

static void open_slowly(void) {
    OWNED(kvmem_directory) directory = NULL;
    opened = kvmem_directory_create(REF(OPTIONS(kvmem_directory_options, it.folder = slow_folder)),
                                    &directory, ERR);
    test_forget_error();
    CHECK_EQ(sem_post(&has_returned), 0);
}

static bool opens_the_folder(const uint64_t *arguments) {
    return strcmp((const char *)(uintptr_t)arguments[OPENED_PATH], slow_folder) == 0;
}

/* The file system does not respond until the call has returned. */
TEST(a_folder_that_does_not_open_ends_the_call) {
    OPENED(place, here);
    slow_folder = folder_of(&here);
    CHECK_EQ(sem_init(&has_returned, 0, 0), 0);
    held_call_begin(open_slowly, OPEN_CALL, opens_the_folder);
    while (sem_wait(&has_returned) != 0) CHECK_EQ(errno, EINTR);
    held_call_end();
    CHECK_EQ(opened, KVMEM_STATUS_TIMED_OUT);
}
