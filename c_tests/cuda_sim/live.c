// SPDX-License-Identifier: Apache-2.0
// Counts what is alive, for tests that look for leaks.
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
    for (int i = 0; i < sim.num_devices; i++) {
        counts->primary_retains += sim.devices[i].retains;
    }
    EACH(context, known, sim.contexts) {
        counts->contexts += known->is_alive && !known->is_primary;
    }
}

static void count_spans(sim_counts *counts) {
    EACH(span, known, sim.spans) {
        switch (known->kind) {
        case SPAN_ALLOCATION:
            counts->allocations++;
            break;
        case SPAN_IPC:
            counts->ipc_openings += known->openings;
            break;
        case SPAN_MAPPING:
            counts->mappings++;
            break;
        case SPAN_HOST_ALLOCATION:
            counts->host_allocations++;
            break;
        case SPAN_REGISTRATION:
            counts->registrations++;
            break;
        }
    }
}

static void count_handles(sim_counts *counts) {
    EACH(memory, known, sim.memories) {
        counts->handles += known->references;
    }
    EACH(reservation, known, sim.reservations) {
        (void)known;
        counts->reservations++;
    }
}

static void count_streams(sim_counts *counts) {
    EACH(stream, known, sim.streams) {
        counts->streams += !known->destroyed;
    }
    EACH(event, known, sim.events) {
        (void)known;
        counts->events++;
    }
    EACH(module, known, sim.modules) {
        (void)known;
        counts->modules++;
    }
    EACH(graph, known, sim.graphs) {
        (void)known;
        counts->graphs++;
    }
}

static bool is_own_file(int fd) {
    EACH(memory, known, sim.memories) {
        if (known->fd == fd) {
            return true;
        }
    }
    return false;
}

/* Files on device memory that are not the stand-in's own were exported to the program, or received by it. */
static void count_open_fds(sim_counts *counts) {
    DIR *directory = opendir("/proc/self/fd");
    if (directory == NULL) {
        sim_crash("/proc/self/fd cannot be read");
    }
    for (const struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        const int fd = atoi(entry->d_name);
        char name[128];
        memory_file_name(fd, name, sizeof(name));
        counts->open_fds += strncmp(name, MEMORY_FILE, strlen(MEMORY_FILE)) == 0 && !is_own_file(fd);
    }
    closedir(directory);
}

void sim_live(sim_counts *counts) {
    pthread_mutex_lock(&sim.lock);
    *counts = (sim_counts){.lost_with_context = sim.lost_with_context};
    count_contexts(counts);
    count_spans(counts);
    count_handles(counts);
    count_streams(counts);
    count_open_fds(counts);
    pthread_mutex_unlock(&sim.lock);
}

uint64_t sim_illegal_accesses(void) {
    pthread_mutex_lock(&sim.lock);
    const uint64_t count = sim.illegal_accesses;
    pthread_mutex_unlock(&sim.lock);
    return count;
}

size_t sim_current_context_depth(void) {
    return context_depth();
}
