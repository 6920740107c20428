// SPDX-License-Identifier: Apache-2.0
// The global state, its lists, and the end of the process where the real driver would crash.
#include "state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

state sim = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .work_done = PTHREAD_COND_INITIALIZER, .last_number = 0x1000,
};

bool sim_lock(void) { return pthread_mutex_lock(&sim.lock) == 0; }

void sim_unlock(const bool *is_locked) {
    (void)is_locked;
    pthread_mutex_unlock(&sim.lock);
}

static void lock(void) { sim_lock(); }

static void unlock(void) { sim_unlock(NULL); }

/* A fork waits for calls in progress: the child inherits the state of the lock. */
__attribute__((constructor)) static void keep_lock_over_fork(void) { pthread_atfork(lock, unlock, unlock); }

void *sim_allocate(size_t size) {
    void *memory = calloc(1, size);
    if (memory == NULL) {
        sim_crash("no memory for the stand-in itself");
    }
    return memory;
}

void *list_add(node **list, size_t size) {
    node *item = sim_allocate(size);
    item->next = *list;
    item->link = list;
    if (item->next != NULL) item->next->link = &item->next;
    *list = item;
    return item;
}

void *list_find(node *list, const void *item) {
    while (list != NULL && list != item) list = list->next;
    return list;
}

uint64_t list_length(const node *list) {
    uint64_t length = 0;
    for (; list != NULL; list = list->next) length++;
    return length;
}

static void unlink_item(const node *item) {
    *item->link = item->next;
    if (item->next != NULL) item->next->link = item->link;
}

void list_remove(node *item) {
    unlink_item(item);
    free(item);
}

/* Enough that no test gets the address of a destroyed object again, and little memory compared with the
   limits of tests that measure memory. */
#define MAX_RETIRED 2048

void list_retire(node *item) {
    static node *retired[MAX_RETIRED];
    static size_t next;
    unlink_item(item);
    free(retired[next]);
    retired[next] = item;
    next = (next + 1) % MAX_RETIRED;
}

uint64_t next_number(void) { return ++sim.last_number; }

void sim_crash(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("the stand-in for the CUDA driver stops where the driver would crash: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    abort();
}
