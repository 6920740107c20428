// SPDX-License-Identifier: Apache-2.0
// A seccomp filter applies to the thread that installs it, so each call runs on a new thread.
#include "scarce_threads.h"

#include "harness.h"

typedef struct request {
    kvmem_status (*call)(void *context);
    void *context;
    kvmem_status status;
} request;

static void *serve(void *context) {
    request *mine = context;
    fail_system_call(SYS_clone3, EAGAIN);
    fail_system_call(SYS_clone, EAGAIN);
    mine->status = mine->call(mine->context);
    return NULL;
}

kvmem_status without_new_threads(kvmem_status (*call)(void *context), void *context) {
    request request = {.call = call, .context = context};
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, serve, &request), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    return request.status;
}
