// SPDX-License-Identifier: Apache-2.0
// Calls of NIXL, with its stand-in.
#include "held.h"

#include "stand_in.h"

void below_run(void (*body)(void)) { held_run(body); }

static int meet(const char *name) { return held_meets(name); }

void below_begin(void) {
    nixl_find_stand_in();
    NIXL(nixl_sim_ask(meet));
}

void below_go(void) { NIXL(nixl_sim_go()); }
