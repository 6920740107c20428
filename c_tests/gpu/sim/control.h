// SPDX-License-Identifier: Apache-2.0
// The stand-in driver's own functions: failing on demand, holding work back, counting what is alive.
#pragma once

#include "cuda_sim.h"

#define CONTROL_FUNCTIONS(FUNCTION)                                                                  \
    FUNCTION(sim_fail)                                                                               \
    FUNCTION(sim_fail_later)                                                                         \
    FUNCTION(sim_fail_nth_of_all)                                                                    \
    FUNCTION(sim_reset_device_before)                                                                \
    FUNCTION(sim_has_reset_device)                                                                   \
    FUNCTION(sim_forget_failures)                                                                    \
    FUNCTION(sim_spare)                                                                              \
    FUNCTION(sim_spare_checks)                                                                       \
    FUNCTION(sim_last_failed)                                                                        \
    FUNCTION(sim_calls)                                                                              \
    FUNCTION(sim_call_count)                                                                         \
    FUNCTION(sim_hold)                                                                               \
    FUNCTION(sim_go)                                                                                 \
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

/* Fails the case where the driver is not the stand-in. */
const control *control_get(void);
#define SIM(call) control_get()->call

/* Waits until the driver function has been called so often since the last reset. */
void await_calls(const char *function, uint64_t count);

/* What is alive now. */
sim_counts sim_live_now(void);
/* Waits until just as much is alive as was; fails after PATIENCE with what is not. */
void await_live(const sim_counts *before);
/* As much memory, as many page locks, mappings and streams are alive as were. */
void expect_still_alive(const sim_counts *before);
