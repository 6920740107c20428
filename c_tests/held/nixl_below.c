// SPDX-License-Identifier: Apache-2.0
// Calls of NIXL, with its stand-in.
#include "held.h"

#include "stand_in.h"

#include <string.h>

void below_run(void (*body)(void)) { held_run(body); }

/* Threads of all agents look for messages from time to time, beside what a row calls. Only rows that take messages have these calls. */
static int meet(const char *name) {
    const bool is_look = strcmp(name, "take") == 0 && strstr(held_current()->functions, "_take_notifications") == NULL;
    return !is_look && held_meets(name);
}

void below_begin(void) {
    nixl_find_stand_in();
    NIXL(nixl_sim_ask(meet));
}

void below_go(void) { NIXL(nixl_sim_go()); }
