// SPDX-License-Identifier: Apache-2.0
// Finds the functions of the stand-in for NIXL in the library that kvmem has loaded, or loads now: `NIXL(nixl_sim_go())`.
#pragma once

#include "harness.h"
#include "nixl_sim.h"

#include <dlfcn.h>
#include <string.h>

#define NIXL_FUNCTIONS(FUNCTION)                                                                     \
    FUNCTION(nixl_sim_fail_register)                                                                 \
    FUNCTION(nixl_sim_fail_deregister)                                                               \
    FUNCTION(nixl_sim_fail_check)                                                                    \
    FUNCTION(nixl_sim_fail_post)                                                                     \
    FUNCTION(nixl_sim_fail_write)                                                                    \
    FUNCTION(nixl_sim_fail_status)                                                                   \
    FUNCTION(nixl_sim_fail_release)                                                                  \
    FUNCTION(nixl_sim_hold)                                                                          \
    FUNCTION(nixl_sim_hold_next)                                                                     \
    FUNCTION(nixl_sim_ask)                                                                           \
    FUNCTION(nixl_sim_hold_forever)                                                                 \
    FUNCTION(nixl_sim_go)                                                                            \
    FUNCTION(nixl_sim_waiting)                                                                       \
    FUNCTION(nixl_sim_set_pending)                                                                   \
    FUNCTION(nixl_sim_complete_one)                                                                  \
    FUNCTION(nixl_sim_spoil_next)                                                                    \
    FUNCTION(nixl_sim_set_routing)                                                                   \
    FUNCTION(nixl_sim_set_moving)                                                                    \
    FUNCTION(nixl_sim_notifications_sent)                                                            \
    FUNCTION(nixl_sim_get_requests)                                                                  \
    FUNCTION(nixl_sim_disguise)                                                                      \
    FUNCTION(nixl_sim_registered)                                                                    \
    FUNCTION(nixl_sim_get_views)                                                                     \
    FUNCTION(nixl_sim_choose_backend)                                                                \
    FUNCTION(nixl_sim_set_query)                                                                     \
    FUNCTION(nixl_sim_queries)                                                                       \
    FUNCTION(nixl_sim_notification_polls)                                                            \
    FUNCTION(nixl_sim_set_notifications_fail)                                                        \
    FUNCTION(nixl_sim_deliver)                                                                       \
    FUNCTION(nixl_sim_deliver_from_each)                                                             \
    FUNCTION(nixl_sim_steps)

static struct {
#define FUNCTION(name) __typeof__(name) *name;
    NIXL_FUNCTIONS(FUNCTION)
#undef FUNCTION
} nixl_functions;

/* Any case may be the only one that a program runs. */
#define NIXL(call) (nixl_found(), nixl_functions.call)

static inline void nixl_look_up(void *library, const char *name, void *function) {
    void *symbol = dlsym(library, name);
    if (symbol == NULL) FAIL("NIXL is not the stand-in: it has no %s", name);
    memcpy(function, &symbol, sizeof(symbol));
}

/* Loads it; fails if the environment names another library. */
static inline void nixl_find_stand_in(void) {
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    void *library = dlopen("libnixl_capi.so", RTLD_NOW | RTLD_NOLOAD);
    CHECK(library != NULL);
#define FUNCTION(name) nixl_look_up(library, #name, &nixl_functions.name);
    NIXL_FUNCTIONS(FUNCTION)
#undef FUNCTION
}

static inline void nixl_found(void) {
    if (nixl_functions.nixl_sim_steps == NULL) nixl_find_stand_in();
}

/* Runs a transfer that has a limit, and whose requests stay in flight, until a run has ended at its limit
   with a request in flight: a run that is late before NIXL is called is not posted. */
static inline void run_late(kvmem_transfer *transfer) {
    while (NIXL(nixl_sim_get_requests()).in_flight == 0) {
        const kvmem_status status = kvmem_transfer_submit(transfer, NULL, ERR);
        if (status == KVMEM_STATUS_OK)
            EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(transfer, PATIENCE, ERR));
        else CHECK_EQ(status, KVMEM_STATUS_BUSY); /* while the late run ends, or its request is in flight */
        sched_yield();
    }
}
