// SPDX-License-Identifier: Apache-2.0
// Counts live objects, for tests that check for leaks.
#include "contexts.h"
#include "cuda_sim.h"
#include "graphs.h"
#include "memory.h"
#include "modules.h"
#include "queue.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

static void count_contexts(sim_counts *counts) {
    for (int i = 0; i < sim.num_devices; i++) counts->primary_retains += sim.devices[i].retains;
    EACH(context, known, sim.contexts) {
        counts->contexts += known->is_alive && !known->is_primary;
    }
}

static void count_spans(sim_counts *counts) {
    uint64_t *const counts_of_kinds[] = {
        [SPAN_ALLOCATION] = &counts->allocations,   [SPAN_MAPPING] = &counts->mappings,
        [SPAN_REGISTRATION] = &counts->registrations, [SPAN_HOST_ALLOCATION] = &counts->host_allocations,
        [SPAN_IPC] = &counts->ipc_openings,
    };
    EACH(span, known, sim.spans) {
        *counts_of_kinds[known->kind] += known->kind == SPAN_IPC ? known->openings : 1;
    }
}

static void count_rest(sim_counts *counts) {
    EACH(memory, known, sim.memories) {
        counts->handles += known->references;
    }
    EACH(stream, known, sim.streams) {
        counts->streams += !known->destroyed;
    }
    counts->reservations = list_length(sim.reservations);
    counts->events = list_length(sim.events);
    counts->modules = list_length(sim.modules);
    counts->linkers = list_length(sim.linkers);
    counts->graphs = list_length(sim.graphs);
}

static bool is_own_file(int fd) {
    EACH(memory, known, sim.memories) {
        if (known->fd == fd) return true;
    }
    return false;
}

/* Counts open files of device memory that the stand-in did not open for itself: exported or received ones. */
static void count_open_fds(sim_counts *counts) {
    DIR *directory = opendir("/proc/self/fd");
    if (directory == NULL) sim_crash("/proc/self/fd cannot be read");
    for (const struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        const int fd = atoi(entry->d_name);
        char name[128];
        memory_file_name(fd, name, sizeof(name));
        counts->open_fds += strncmp(name, MEMORY_FILE, strlen(MEMORY_FILE)) == 0 && !is_own_file(fd);
    }
    closedir(directory);
}

void sim_live(sim_counts *counts) {
    LOCKED;
    *counts = (sim_counts){.lost_with_context = sim.lost_with_context};
    count_contexts(counts);
    count_spans(counts);
    count_rest(counts);
    count_open_fds(counts);
}

uint64_t sim_illegal_accesses(void) {
    LOCKED;
    return sim.illegal_accesses;
}

size_t sim_current_context_depth(void) { return context_depth(); }
