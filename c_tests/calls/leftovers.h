// SPDX-License-Identifier: Apache-2.0
// What a process holds beside its heap: open files, mappings of files, threads, files in its directory, and
// what the stand-in driver has given it. All of it must be as before once every handle is destroyed.
#pragma once

#include "fuzz.h"

/* Notes what the process holds before the first call. */
void leftovers_note(void);
/* Waits until nothing else is held; fails with a list of what is. */
void leftovers_check(const fuzz *fuzz);
/* The same with threads: those that had no work for a while have ended. */
void leftovers_check_threads(const fuzz *fuzz);
