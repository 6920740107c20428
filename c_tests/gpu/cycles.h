// SPDX-License-Identifier: Apache-2.0
// Repeats a function many times, and checks that the process uses no more memory, files and threads
// afterwards.
#pragma once

#include "sides.h"

/* Reads the number of cycles from the command line, if given; returns the argc without it. */
int cycles_take_count(int argc, char **argv);

/* Runs `cycle` a few times to warm up, then the given number of times. Checks that device memory, open files
 * and threads are the same as after the warm-up, and that the memory of the process grew by less than 1 MiB;
 * on a GPU also half a page per cycle is allowed, for the driver. */
void cycles_run(void (*cycle)(place place, uint32_t seed), place place);
