// SPDX-License-Identifier: Apache-2.0
// Threads of a test, which end within the scope that starts them.
#pragma once

#include <pthread.h>
#include <stddef.h>

#define THREADS_MOST 64

typedef struct threads {
    pthread_t started[THREADS_MOST];
    size_t count;
} threads;

/* Starts threads that run `body`, each with a pointer to its element of an array. Without an array each
 * gets NULL. */
void threads_start(threads *threads, size_t count, void *(*body)(void *), void *arguments, size_t size);
/* Waits until all have ended. */
void threads_join(threads *threads);
/* Both. */
void threads_run(size_t count, void *(*body)(void *), void *arguments, size_t size);
