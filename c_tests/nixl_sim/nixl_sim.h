// SPDX-License-Identifier: Apache-2.0
// The test's side of the stand-in for NIXL: failing on demand, holding a deregistration back, and counting.
// A test finds these functions with dlsym in the libnixl_capi.so that the library under test has loaded.
#ifndef NIXL_SIM_H
#define NIXL_SIM_H

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

/* The nth registration from now (1 is the next one) is refused, and has done nothing. */
void nixl_sim_fail_register(uint64_t nth);
/* The same of the deregistrations: the memory stays registered. */
void nixl_sim_fail_deregister(uint64_t nth);

/* From here a deregistration waits in the call, as long as it is not told to go. */
void nixl_sim_hold(void);
void nixl_sim_go(void);
/* How many wait. */
uint64_t nixl_sim_waiting(void);

/* With how many agents the span that begins here is registered. */
uint64_t nixl_sim_registered(uint64_t address);

#pragma GCC visibility pop

#endif
