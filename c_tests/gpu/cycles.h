// SPDX-License-Identifier: Apache-2.0
// Running the same thing often, and seeing that the process holds no more afterwards than before.
#pragma once

#include "sides.h"

/* Takes the number of cycles from the command line, if it is there; answers the argc that is left. */
int cycles_take_count(int argc, char **argv);

/* Runs `cycle` a few times to warm up, then as often as asked for. Device memory, open files and
 * threads are then what they were after the warm-up, and the process has not grown: under the stand-in
 * by less than 1 MiB, on a GPU by less than that and half a page a cycle, for the driver. */
void cycles_run(void (*cycle)(place place, uint32_t seed), place place);
