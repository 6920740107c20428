// SPDX-License-Identifier: Apache-2.0
// Reads /proc/self, and compares it with the state before the first call.
#include "leftovers.h"

#include "control.h"
#include "driver.h"
#include "owned.h"
#include "settings.h"

#include <dirent.h>
#include <time.h>

#define MAX_NAMES 256

/* Names of resources that the process holds, with repetitions. */
typedef struct holdings {
    char names[MAX_NAMES][128];
    size_t count;
} holdings;

static holdings noted;
static sim_counts noted_in_driver;
static size_t noted_threads;
static bool has_stand_in;

static void add(holdings *holdings, const char *what, const char *name) {
    if (holdings->count < MAX_NAMES)
        snprintf(holdings->names[holdings->count++], sizeof(holdings->names[0]), "%s %.110s", what, name);
}

/* Inode numbers differ each time, so they are left out. */
static void add_files(holdings *holdings) {
    DIR *entries = opendir("/proc/self/fd");
    CHECK(entries != NULL);
    for (const struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries)) {
        char path[64];
        char target[128];
        snprintf(path, sizeof(path), "/proc/self/fd/%.16s", entry->d_name);
        const ssize_t length = readlink(path, target, sizeof(target) - 1);
        if (length < 0 || atoi(entry->d_name) == dirfd(entries)) continue;
        target[length] = '\0';
        if (target[0] == 's' || target[0] == 'p') target[strcspn(target, "[0123456789")] = '\0';
        if (strcmp(target, "/sys/devices/system/cpu/online") != 0) { /* opened briefly by glibc's allocator */
            add(holdings, "open file", target);
        }
    }
    closedir(entries);
}

/* Mappings of memory files, of files in the fuzzer's directory, and of deleted files. */
static void add_mappings(holdings *holdings) {
    FILE *maps = fopen("/proc/self/maps", "re");
    CHECK(maps != NULL);
    char line[512];
    while (fgets(line, sizeof(line), maps) != NULL) {
        char *name = strchr(line, '/');
        if (name == NULL) continue;
        name[strcspn(name, "\n")] = '\0';
        if (strncmp(name, "/memfd:", 7) == 0 || strstr(name, "(deleted)") != NULL ||
            strstr(name, owned_directory()) != NULL || strstr(name, "io_uring") != NULL) {
            add(holdings, "mapping", name);
        }
    }
    fclose(maps);
}

static void add_directory(holdings *holdings, const char *path) {
    DIR *entries = opendir(path);
    CHECK(entries != NULL);
    for (const struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            add(holdings, "file", entry->d_name);
    }
    closedir(entries);
}

static int compare_names(const void *left, const void *right) { return strcmp(left, right); }

static void list_holdings(holdings *holdings) {
    holdings->count = 0;
    add_files(holdings);
    add_mappings(holdings);
    add_directory(holdings, owned_directory());
    add_directory(holdings, owned_folder_path());
    qsort(holdings->names, holdings->count, sizeof(holdings->names[0]), compare_names);
}

/* Removes everything from `now` that is in `before`. */
static void subtract(holdings *now, const holdings *before) {
    size_t left = 0;
    size_t place = 0;
    for (size_t i = 0; i < now->count; i++) {
        while (place < before->count && strcmp(before->names[place], now->names[i]) < 0) place++;
        if (place < before->count && strcmp(before->names[place], now->names[i]) == 0) place++;
        else memmove(now->names[left++], now->names[i], sizeof(now->names[0]));
    }
    now->count = left;
}

static void add_number(holdings *holdings, const char *what, uint64_t now, uint64_t before) {
    char text[64];
    if (now > before) {
        snprintf(text, sizeof(text), "%llu, before %llu", (unsigned long long)now,
                 (unsigned long long)before);
        add(holdings, what, text);
    }
}

static void add_of_driver(holdings *left) {
    if (!has_stand_in) return;
    const sim_counts now = sim_live_now();
    const sim_counts *before = &noted_in_driver;
    add_number(left, "retained primary contexts", now.primary_retains, before->primary_retains);
    add_number(left, "contexts", now.contexts, before->contexts);
    add_number(left, "device allocations", now.allocations, before->allocations);
    add_number(left, "host allocations", now.host_allocations, before->host_allocations);
    add_number(left, "page locks", now.registrations, before->registrations);
    add_number(left, "address ranges", now.reservations, before->reservations);
    add_number(left, "memory handles", now.handles, before->handles);
    add_number(left, "device mappings", now.mappings, before->mappings);
    add_number(left, "opened IPC handles", now.ipc_openings, before->ipc_openings);
    add_number(left, "streams", now.streams, before->streams);
    add_number(left, "events", now.events, before->events);
    add_number(left, "modules", now.modules, before->modules);
    add_number(left, "graphs", now.graphs, before->graphs);
    add_number(left, "device memory files", now.open_fds, before->open_fds);
}

static size_t threads_now(void) { return count_directory_entries("/proc/self/task"); }

/* Reading the list of mappings is slow, and threads that release something need the processor. */
static void wait_for_releases(void) {
    const struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
}

static void find(holdings *left, bool with_threads) {
    list_holdings(left);
    subtract(left, &noted);
    add_number(left, "release callbacks of adopted memory not called yet", owned_releases_due(), 0);
    add_of_driver(left);
    if (with_threads) add_number(left, "threads", threads_now(), noted_threads);
}

static uint64_t seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec;
}

static void check(const fuzz *fuzz, bool with_threads) {
    static holdings left;
    owned_remove_files();
    /* Idle threads end after some seconds. */
    const uint64_t deadline = seconds_now() + settings.patience + (with_threads ? 10 : 0);
    do {
        find(&left, with_threads);
        if (left.count == 0) return;
        wait_for_releases();
    } while (seconds_now() < deadline);
    for (size_t i = 0; i < left.count; i++) printf("left: %s\n", left.names[i]);
    fuzz_fail(fuzz, "%zu resources are left after all handles were destroyed", left.count);
}

void leftovers_note(void) {
    has_stand_in = driver_symbol("sim_live") != NULL;
    if (has_stand_in) noted_in_driver = sim_live_now();
    noted_threads = threads_now();
    list_holdings(&noted);
}

void leftovers_check(const fuzz *fuzz) { check(fuzz, false); }

void leftovers_check_threads(const fuzz *fuzz) { check(fuzz, true); }
