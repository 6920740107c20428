// SPDX-License-Identifier: Apache-2.0
// The functions of the stand-in driver for tests (cuda_sim.h): planned failures, holding work back, live
// objects.
#pragma once

#include "cuda_sim.h"

#define CONTROL_FUNCTIONS(FUNCTION)                                                                  \
    FUNCTION(sim_fail)                                                                               \
    FUNCTION(sim_fail_later)                                                                         \
    FUNCTION(sim_fail_nth_of_all)                                                                    \
    FUNCTION(sim_reset_device_before)                                                                \
    FUNCTION(sim_has_reset_device)                                                                   \
    FUNCTION(sim_cancel_failures)                                                                    \
    FUNCTION(sim_exempt_thread)                                                                              \
    FUNCTION(sim_exempt_context_checks)                                                                       \
    FUNCTION(sim_last_failed)                                                                        \
    FUNCTION(sim_calls)                                                                              \
    FUNCTION(sim_call_count)                                                                         \
    FUNCTION(sim_copied)                                                                             \
    FUNCTION(sim_hold)                                                                               \
    FUNCTION(sim_go)                                                                                 \
    FUNCTION(sim_advance)                                                                            \
    FUNCTION(sim_feed)                                                                               \
    FUNCTION(sim_hold_call)                                                                          \
    FUNCTION(sim_ask)                                                                                \
    FUNCTION(sim_held_calls)                                                                         \
    FUNCTION(sim_go_calls)                                                                           \
    FUNCTION(sim_set_order)                                                                          \
    FUNCTION(sim_set_attribute)                                                                      \
    FUNCTION(sim_set_peer_access)                                                                    \
    FUNCTION(sim_set_fabric)                                                                         \
    FUNCTION(sim_set_ipc_ordinal_of_opener)                                                          \
    FUNCTION(sim_set_allocation_offset)                                                              \
    FUNCTION(sim_reset)                                                                              \
    FUNCTION(sim_live)                                                                               \
    FUNCTION(sim_illegal_accesses)                                                                   \
    FUNCTION(sim_copy_bytes)                                                                         \
    FUNCTION(sim_current_context_depth)

typedef struct control {
#define FUNCTION(name) __typeof__(name) *name;
    CONTROL_FUNCTIONS(FUNCTION)
#undef FUNCTION
} control;

/* Fails the case if the driver is not the stand-in. */
const control *control_get(void);
#define SIM(call) control_get()->call

/* Waits until the driver function has been called this many times since the last sim_reset. */
void await_calls(const char *function, uint64_t count);

/* Returns the numbers of live objects. */
sim_counts sim_live_now(void);
/* Waits until the numbers of live objects are those before; fails after PATIENCE with the differences. */
void await_live(const sim_counts *before);
/* Each case ends when no more objects are alive than at its begin, or fails after PATIENCE. Called by cases
   that leak by intention. */
void let_objects_remain(void);
/* Checks that the numbers of allocations, page locks, mappings and streams are those before. */
void expect_still_alive(const sim_counts *before);
