// SPDX-License-Identifier: Apache-2.0
// Threads of a test that end in the scope that starts them.
#pragma once

#include <pthread.h>
#include <stddef.h>

#define THREADS_MAX 64

typedef struct threads {
    pthread_t started[THREADS_MAX];
    size_t count;
} threads;

/* Starts threads that run `body`, each with a pointer to its element of an array. Without an array, the
   pointer is NULL. */
void threads_start(threads *threads, size_t count, void *(*body)(void *), void *arguments, size_t size);
/* Waits until all have ended. */
void threads_join(threads *threads);
/* Starts and joins. */
void threads_run(size_t count, void *(*body)(void *), void *arguments, size_t size);
