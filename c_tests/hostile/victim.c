// SPDX-License-Identifier: Apache-2.0
#include "victim.h"

#include "harness.h"
#include "thread_count.h"

#include <dirent.h>

static uint64_t count_bytes(pid_t process) {
    char path[64], line[128];
    snprintf(path, sizeof(path), "/proc/%d/status", (int)process);
    FILE *status = fopen(path, "re");
    CHECK(status != NULL);
    uint64_t sum = 0;
    unsigned long long kib = 0;
    while (fgets(line, sizeof(line), status) != NULL)
        if (sscanf(line, "RssAnon: %llu", &kib) == 1 || sscanf(line, "RssShmem: %llu", &kib) == 1) sum += kib << 10;
    fclose(status);
    return sum;
}

resources count_resources(pid_t process) {
    char files[64];
    snprintf(files, sizeof(files), "/proc/%d/fd", (int)process);
    return (resources){count_directory_entries(files), count_threads_of(process), count_bytes(process)};
}

void extend_resources(resources *most, const resources *now) {
    if (now->files > most->files) most->files = now->files;
    if (now->threads > most->threads) most->threads = now->threads;
    if (now->bytes > most->bytes) most->bytes = now->bytes;
}

uint64_t processor_time(pid_t process, pid_t thread) {
    char path[64], text[1024];
    if (thread != 0) snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)process, (int)thread);
    else snprintf(path, sizeof(path), "/proc/%d/stat", (int)process);
    FILE *file = fopen(path, "re");
    if (file == NULL) return 0;
    const size_t size = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[size] = 0;
    /* The name in parentheses may have any bytes; then follow the state and ten numbers. */
    const char *rest = strrchr(text, ')');
    unsigned long long user = 0, system = 0;
    if (rest == NULL || sscanf(rest, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system) != 2) return 0;
    return (uint64_t)(user + system) * SECONDS(1) / (uint64_t)sysconf(_SC_CLK_TCK);
}

uint64_t processor_wait(pid_t process) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task", (int)process);
    DIR *tasks = opendir(path);
    if (tasks == NULL) return 0;
    uint64_t sum = 0;
    for (const struct dirent *task = readdir(tasks); task != NULL; task = readdir(tasks)) {
        char stat[400];
        snprintf(stat, sizeof(stat), "%s/%s/schedstat", path, task->d_name);
        FILE *file = fopen(stat, "re");
        if (file == NULL) continue; /* it has ended, or is no thread */
        unsigned long long waited = 0;
        if (fscanf(file, "%*u %llu", &waited) == 1) sum += waited;
        fclose(file);
    }
    closedir(tasks);
    return sum;
}
