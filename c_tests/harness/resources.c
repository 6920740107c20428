// SPDX-License-Identifier: Apache-2.0
// Reads /proc/self to count resources of the process, and creates and removes scratch directories.
#include "resources.h"

#include "harness.h"

#include <dirent.h>
#include <ftw.h>
#include <pthread.h>

size_t count_directory_entries(const char *directory) {
    DIR *entries = opendir(directory);
    CHECK(entries != NULL);
    size_t count = 0;
    for (const struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries))
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(entries);
    return count;
}

/* Whether to count the open file with this number: it is still open, and it is not the file that glibc's
   allocator opens briefly on any thread that creates an arena. */
static bool is_counted(const char *number) {
    char path[64];
    char target[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%.16s", number);
    const ssize_t length = readlink(path, target, sizeof(target) - 1);
    if (length < 0) {
        return false; /* closed since the directory was read */
    }
    target[length] = '\0';
    return strcmp(target, "/sys/devices/system/cpu/online") != 0;
}

size_t count_open_files(void) {
    DIR *entries = opendir("/proc/self/fd");
    CHECK(entries != NULL);
    const int own = dirfd(entries);
    size_t count = 0;
    for (const struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries))
        count += entry->d_name[0] != '.' && atoi(entry->d_name) != own && is_counted(entry->d_name);
    closedir(entries);
    return count;
}

void check_files_kept(const files_kept *before) {
    test_check_equal(before->file, before->line, "open files at the end of the scope",
                     (long long)count_open_files(), (long long)before->count);
}

typedef struct mapping {
    uint64_t start, end;
    bool is_of_file;
} mapping;

/* Calls `visit` for each mapping of the process until it returns true. */
static bool find_mapping(bool (*visit)(const mapping *mapping, void *context), void *context) {
    FILE *maps = fopen("/proc/self/maps", "re");
    CHECK(maps != NULL);
    char line[512];
    bool found = false;
    while (!found && fgets(line, sizeof(line), maps) != NULL) {
        char *rest = NULL;
        const uint64_t start = strtoull(line, &rest, 16);
        if (*rest != '-') {
            continue; /* the rest of a line longer than the buffer */
        }
        mapping mapping = {start, strtoull(rest + 1, &rest, 16), false};
        unsigned long long inode = 0;
        mapping.is_of_file = sscanf(rest, " %*s %*s %*s %llu", &inode) == 1 && inode != 0;
        found = visit(&mapping, context);
    }
    fclose(maps);
    return found;
}

static bool count_one(const mapping *mapping, void *context) {
    (void)mapping;
    ++*(size_t *)context;
    return false;
}

static bool count_one_of_file(const mapping *mapping, void *context) {
    *(size_t *)context += mapping->is_of_file;
    return false;
}

size_t count_mappings(void) {
    size_t count = 0;
    find_mapping(count_one, &count);
    return count;
}

size_t count_file_mappings(void) {
    size_t count = 0;
    find_mapping(count_one_of_file, &count);
    return count;
}

static bool holds_address(const mapping *mapping, void *context) {
    const uint64_t address = *(const uint64_t *)context;
    return mapping->start <= address && address < mapping->end;
}

bool is_mapped(uint64_t address) { return find_mapping(holds_address, &address); }

bool mapping_has_flag(uint64_t address, const char *flag) {
    static const char name[] = "VmFlags:";
    FILE *entries = fopen("/proc/self/smaps", "re");
    CHECK(entries != NULL);
    char line[512];
    bool is_inside = false;
    bool is_found = false;
    while (!is_found && fgets(line, sizeof(line), entries) != NULL) {
        unsigned long long start = 0;
        unsigned long long end = 0;
        if (sscanf(line, "%llx-%llx ", &start, &end) == 2) is_inside = start <= address && address < end;
        is_found = is_inside && strncmp(line, name, strlen(name)) == 0;
    }
    fclose(entries);
    CHECK(is_found);
    char word[8];
    snprintf(word, sizeof(word), " %s ", flag);
    return strstr(line, word) != NULL;
}

size_t count_resident_pages(uint64_t address, size_t size) {
    const size_t pages = (size + 4095) / 4096;
    unsigned char *resident = test_allocate(pages);
    CHECK_EQ(mincore((void *)(uintptr_t)address, size, resident), 0);
    size_t count = 0;
    for (size_t i = 0; i < pages; i++) count += resident[i] & 1;
    free(resident);
    return count;
}

struct rlimit forbid_open_files(void) {
    struct rlimit before;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    const int lowest = dup(STDIN_FILENO);
    CHECK(lowest >= 0 && close(lowest) == 0);
    const struct rlimit none = {.rlim_cur = (rlim_t)lowest, .rlim_max = before.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    return before;
}

struct rlimit limit_addresses(uint64_t more) {
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long pages = 0;
    CHECK(file != NULL);
    CHECK_EQ(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    struct rlimit before;
    CHECK_EQ(getrlimit(RLIMIT_AS, &before), 0);
    const struct rlimit few = {pages * (uint64_t)sysconf(_SC_PAGESIZE) + more, before.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_AS, &few), 0);
    return before;
}

static uint64_t count_huge_pages(const char *which) {
    char path[128];
    snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-2048kB/%s", which);
    FILE *file = fopen(path, "re");
    if (file == NULL) return 0;
    unsigned long long count = 0;
    const int fields = fscanf(file, "%llu", &count);
    fclose(file);
    return fields == 1 ? count : 0;
}

uint64_t ready_huge_pages(void) {
    return count_huge_pages("free_hugepages") + count_huge_pages("nr_overcommit_hugepages");
}

const char *temporary_directory(void) {
    const char *named = getenv("TMPDIR");
    return named != NULL && named[0] != '\0' ? named : "/tmp";
}

/* Directories that were not removed yet. Threads of a test may have their own. */
static scratch present[32];
static pthread_mutex_t present_lock = PTHREAD_MUTEX_INITIALIZER;

static void note_present(const scratch *made) {
    pthread_mutex_lock(&present_lock);
    size_t place = 0;
    while (place < NUM(present) && present[place].path[0] != '\0') place++;
    if (place < NUM(present)) present[place] = *made;
    pthread_mutex_unlock(&present_lock);
    CHECK(place < NUM(present));
}

static void note_removed(const char *path) {
    pthread_mutex_lock(&present_lock);
    for (size_t i = 0; i < NUM(present); i++) {
        if (strcmp(present[i].path, path) == 0) present[i].path[0] = '\0';
    }
    pthread_mutex_unlock(&present_lock);
}

scratch scratch_create(const char *parent) {
    scratch made;
    const int length = snprintf(made.path, sizeof(made.path), "%s/kvmem_test_XXXXXX", parent);
    CHECK(length > 0 && (size_t)length < sizeof(made.path));
    CHECK(mkdtemp(made.path) != NULL);
    note_present(&made);
    return made;
}

const char *scratch_file(const scratch *directory, const char *name) {
    static _Thread_local char path[256];
    snprintf(path, sizeof(path), "%s/%s", directory->path, name);
    return path;
}

static int remove_entry(const char *path, const struct stat *stat, int type, struct FTW *place) {
    (void)stat, (void)type, (void)place;
    return remove(path);
}

void scratch_remove(const scratch *directory) {
    CHECK_EQ(nftw(directory->path, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
    note_removed(directory->path);
}

void scratch_remove_all(void) {
    for (size_t i = 0; i < NUM(present); i++) {
        if (present[i].path[0] != '\0') {
            const scratch left = present[i];
            scratch_remove(&left);
        }
    }
}

void write_file(const char *path, const void *data, size_t size) {
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(file >= 0);
    const ssize_t written = write(file, data, size);
    close(file);
    CHECK_EQ(written, size);
}

uint64_t file_length(const char *path) {
    struct stat state;
    CHECK_EQ(stat(path, &state), 0);
    return (uint64_t)state.st_size;
}
