// SPDX-License-Identifier: Apache-2.0
// Calls of the driver, with its stand-in.
#include "held.h"

#include "cuda_sim.h"

#include <dlfcn.h>

void below_run(void (*body)(void)) { held_run(body); }

/* The library may not have loaded it yet. */
static void look_up(const char *name, void *function) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(library != NULL);
    void *symbol = dlsym(library, name);
    CHECK(symbol != NULL);
    memcpy(function, &symbol, sizeof(symbol));
}

void below_begin(void) {
    __typeof__(sim_ask) *ask = NULL;
    look_up("sim_ask", &ask);
    ask(held_meets);
}

void below_go(void) {
    __typeof__(sim_go_calls) *go = NULL;
    look_up("sim_go_calls", &go);
    go();
}
