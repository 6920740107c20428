// SPDX-License-Identifier: Apache-2.0
// Starts and joins.
#include "threads.h"

#include "harness.h"

void threads_start(threads *threads, size_t count, void *(*body)(void *), void *arguments, size_t size) {
    CHECK(count <= NUM(threads->started));
    for (threads->count = 0; threads->count < count; threads->count++) {
        void *argument = arguments != NULL ? (char *)arguments + threads->count * size : NULL;
        CHECK_EQ(pthread_create(&threads->started[threads->count], NULL, body, argument), 0);
    }
}

void threads_join(threads *threads) {
    for (size_t i = 0; i < threads->count; i++) CHECK_EQ(pthread_join(threads->started[i], NULL), 0);
}

void threads_run(size_t count, void *(*body)(void *), void *arguments, size_t size) {
    threads threads;
    threads_start(&threads, count, body, arguments, size);
    threads_join(&threads);
}
