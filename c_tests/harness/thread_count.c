// SPDX-License-Identifier: Apache-2.0
#include "thread_count.h"

#include "harness.h"

#include <dirent.h>

static bool is_idle_by_design(const char *name) {
    static const char *const known[] = {"kvmem-copy", "kvmem-file", "kvmem-check", "kvmem-free", "kvmem-start", "kvmem-serve", "kvmem-load"};
    for (size_t i = 0; i < NUM(known); i++)
        if (strncmp(name, known[i], strlen(known[i])) == 0) return true;
    return false;
}

size_t count_threads_of(pid_t process) {
    char path[64], name[32];
    snprintf(path, sizeof(path), "/proc/%d/task", (int)process);
    DIR *threads = opendir(path);
    CHECK(threads != NULL);
    size_t count = 0;
    for (const struct dirent *thread = readdir(threads); thread != NULL; thread = readdir(threads)) {
        snprintf(path, sizeof(path), "/proc/%d/task/%.16s/comm", (int)process, thread->d_name);
        FILE *file = thread->d_name[0] != '.' ? fopen(path, "re") : NULL;
        if (file == NULL) continue;
        count += fgets(name, sizeof(name), file) != NULL && !is_idle_by_design(name);
        fclose(file);
    }
    closedir(threads);
    return count;
}
