// SPDX-License-Identifier: Apache-2.0
// Resources of a process other than its heap: open files, mappings of files, threads, files in its directory,
// and objects of the stand-in driver. After every handle was destroyed they must be the same as before.
#pragma once

#include "fuzz.h"

/* Notes the resources before the first call. */
void leftovers_note(void);
/* Waits until no other resources are held; otherwise fails with a list of them. */
void leftovers_check(const fuzz *fuzz);
/* The same with threads: idle ones must have ended. */
void leftovers_check_threads(const fuzz *fuzz);
