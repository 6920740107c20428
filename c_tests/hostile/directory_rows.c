// SPDX-License-Identifier: Apache-2.0
// Writers of entries in a folder. The victim watches all agents and looks the healthy one up.
#include "hostile.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

HOSTILE_CASES

static kvmem_directory *directory;

static void open_directory(void) {
    EXPECT_OK(kvmem_directory_create(REF(OPTIONS(kvmem_directory_options, it.folder = hostile_path("cluster"))), &directory, ERR));
}

/* ---- the healthy agent ---- */

static kvmem_agent *agent;
static kv_side side;

static void open_healthy(void) {
    agent = agent_open("healthy");
    kv_side_open(&side, REF(kv_config(&kv_kinds[0])), agent, 7);
    open_directory();
    const kvmem_named_layout layouts[] = {{.name = "cache", .layout = side.layout}};
    EXPECT_OK(kvmem_directory_publish(directory, agent, layouts, NUM(layouts), PATIENCE, ERR));
    hostile_put("published", "", 0);
}

static void close_healthy(void) {
    kvmem_directory_destroy(directory);
    kv_side_close(&side);
    kvmem_agent_destroy(agent);
}

/* ---- the victim ---- */

static void open_victim(void) {
    CLEANUP(message_free) const message published = hostile_take("published");
    open_directory();
    EXPECT_OK(kvmem_directory_watch(directory, NULL, PATIENCE, ERR));
}

/* An entry that was removed or damaged is published again, also in a new folder. */
static kvmem_directory_entry *look_up(void) {
    for (const load_clock clock = load_begin(); load_lasts(&clock, PATIENCE);) {
        kvmem_directory_entry *entry = NULL;
        const kvmem_status status = kvmem_directory_look_up(directory, "healthy", PATIENCE, &entry, ERR);
        if (status == KVMEM_STATUS_OK) return entry;
        if (status != KVMEM_STATUS_NOT_FOUND) CHECK_EQ(status, KVMEM_STATUS_CORRUPT);
        sched_yield();
    }
    FAIL("the entry of the healthy agent is not published again");
}

static void find_healthy(void) {
    OWNED(kvmem_directory_entry) entry = look_up();
    GET(kvmem_directory_entry_info, info, kvmem_directory_entry_get_info, entry);
    CHECK_STR(info.agent, "healthy");
    CHECK_EQ(info.layout_count, 1);
    CHECK_STR(info.layouts[0].name, "cache");
    OWNED(kvmem_directory_events) events = NULL;
    const kvmem_status status = kvmem_directory_take_events(directory, 0, &events, ERR);
    if (status != KVMEM_STATUS_OK) CHECK_EQ(status, KVMEM_STATUS_TIMED_OUT);
    for (size_t i = 0; events != NULL && i < events->count; i++) CHECK(events->items[i].kind != KVMEM_DIRECTORY_INTERRUPTED);
}

static void close_victim(void) { kvmem_directory_destroy(directory); }

/* ---- the hostile writer ---- */

/* Fewer than a watch of all agents keeps. */
#define NAMES 1000

static message original; /* the bytes of the healthy agent's entry */

static const char *entry_path(const char *name) {
    static char path[200];
    snprintf(path, sizeof(path), "%s/%s", hostile_path("cluster"), name);
    return path;
}

static void open_hostile(void) {
    CLEANUP(message_free) const message published = hostile_take("published");
    original = hostile_take("cluster/healthy.agent");
}

static void write_entry(const char *name, const void *bytes, size_t size) {
    const int file = open(entry_path(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) return; /* the library removes what has no writer */
    (void)!write(file, bytes, size);
    close(file);
}

static void random_bytes(unsigned char *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) bytes[i] = (unsigned char)hostile_random();
}

static void flood_entries(unsigned turn) {
    unsigned char bytes[300];
    for (int i = 0; i < 16; i++) {
        char name[40];
        random_bytes(bytes, sizeof(bytes));
        snprintf(name, sizeof(name), "flood-%u-%d.agent", turn % NAMES, i);
        write_entry(name, bytes, sizeof(bytes));
    }
}

/* An entry that lives, because its byte 0 is locked, and is never valid. */
static void rewrite_a_locked_entry(unsigned turn) {
    static int file = -1;
    if (turn == 0) {
        file = open(entry_path("locked.agent"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        CHECK_EQ(fcntl(file, F_OFD_SETLK, REF(((struct flock){.l_type = F_WRLCK, .l_len = 1}))), 0);
    }
    for (int i = 0; i < 32; i++) {
        unsigned char bytes[4096];
        random_bytes(bytes, sizeof(bytes));
        CHECK(original.size < sizeof(bytes));
        if (i % 2 != 0) memcpy(bytes, original.data, original.size / (size_t)(1 + i % 3));
        CHECK_EQ(ftruncate(file, 0), 0);
        CHECK(pwrite(file, bytes, 1 + hostile_random() % sizeof(bytes), 0) > 0);
    }
}

static void write_a_huge_entry(unsigned turn) {
    static int file = -1;
    if (turn > 0) return;
    file = open(entry_path("huge.agent"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK_EQ(fcntl(file, F_OFD_SETLK, REF(((struct flock){.l_type = F_WRLCK, .l_len = 1}))), 0);
    CHECK_EQ(pwrite(file, original.data, original.size, 0), original.size);
    CHECK_EQ(ftruncate(file, (off_t)1 << 40), 0);
}

static void make_other_files(unsigned turn) {
    char name[40];
    snprintf(name, sizeof(name), "other-%u.agent", turn % NAMES);
    if (turn % 4 == 0) (void)mkfifo(entry_path(name), 0600);
    if (turn % 4 == 1) (void)mkdir(entry_path(name), 0700);
    if (turn % 4 == 2) (void)!symlink("/dev/zero", entry_path(name));
    if (turn % 4 == 3) (void)!symlink(name, entry_path(name));
}

static void publish_under_another_name(unsigned turn) {
    char name[40];
    snprintf(name, sizeof(name), "copied-%u.agent", turn % NAMES);
    write_entry(name, original.data, original.size);
}

static void remove_an_entry(unsigned turn) {
    (void)turn;
    (void)unlink(entry_path("healthy.agent"));
}

static void damage_an_entry(unsigned turn) {
    unsigned char bytes[64];
    random_bytes(bytes, sizeof(bytes));
    const int file = open(entry_path("healthy.agent"), O_WRONLY | O_CLOEXEC);
    if (file < 0) return;
    if (turn % 2 == 0) (void)!pwrite(file, bytes, sizeof(bytes), (off_t)(hostile_random() % original.size));
    else (void)!ftruncate(file, (off_t)(hostile_random() % original.size));
    close(file);
}

static void replace_an_entry(unsigned turn) {
    (void)turn;
    write_entry("replaced.agent", original.data, original.size / 2);
    (void)rename(entry_path("replaced.agent"), hostile_path("cluster/healthy.agent"));
}

/* How often the folder is moved or removed in a turn, and how often the victim finds the healthy agent before the next one. The longest
   round contains what that takes after the last time. */
#define TIMES 100

static void move_the_folder(unsigned turn) {
    for (int moved = 0; moved < TIMES;) {
        char aside[200];
        snprintf(aside, sizeof(aside), "%s.%u.%d", hostile_path("cluster"), turn, moved);
        if (rename(hostile_path("cluster"), aside) == 0) moved++;
        else CHECK_EQ(errno, ENOENT); /* until a process creates it */
    }
    hostile_await_rounds(TIMES);
}

/* The kernel does not report that to a process that has it open. */
static void remove_the_folder(unsigned turn) {
    (void)turn;
    for (int removed = 0; removed < TIMES;) {
        (void)unlink(entry_path("healthy.agent"));
        if (rmdir(hostile_path("cluster")) == 0) removed++;
        else CHECK(errno == ENOENT || errno == ENOTEMPTY); /* until no process writes an entry */
    }
    hostile_await_rounds(TIMES);
}

static const hostile_row rows[] = {
    {.does = "floods a folder with entries", .act = flood_entries},
    {.does = "rewrites an entry that it has locked", .act = rewrite_a_locked_entry},
    {.does = "writes an entry of a TiB", .act = write_a_huge_entry},
    {.does = "makes pipes, folders and links of entries", .act = make_other_files},
    {.does = "publishes an entry under other names", .act = publish_under_another_name},
    {.does = "removes an entry of another agent", .act = remove_an_entry},
    {.does = "damages an entry of another agent", .act = damage_an_entry},
    {.does = "replaces an entry of another agent", .act = replace_an_entry},
    {.does = "rewrites an entry, and stops", .act = rewrite_a_locked_entry, .stops = true},
    {.does = "moves the folder", .act = move_the_folder, .turns = 1},
    {.does = "removes the folder", .act = remove_the_folder, .turns = 1},
};

const hostile_form hostile_form_here = {
    .victim = {.open = open_victim, .round = find_healthy, .close = close_victim},
    .healthy = {.open = open_healthy, .close = close_healthy},
    .open_hostile = open_hostile,
    .files = 8,
    .threads = 1,
    .bytes = 64 * MIB, /* 18,000 entries that are not valid, with the reasons */
    .bounds = {.longest_ms = 1000, .share = 0.0002, .processors = 1},
    .rows = rows,
    .num_rows = NUM(rows),
};
