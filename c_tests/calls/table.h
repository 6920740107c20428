// SPDX-License-Identifier: Apache-2.0
// The handles that are alive, for all threads. A handle that a call uses is not destroyed: the header allows
// all functions on one object at once, but for the one that destroys it.
#pragma once

#include "fuzz.h"

/* Before everything else. */
void table_open(void);
/* Takes over a handle. Destroys it if the table is full of its kind. */
void table_add(fuzz *fuzz, kind kind, void *handle);
/* A handle for this call, until table_release; NULL if there is none, and at times. */
void *table_pick(fuzz *fuzz, kind kind);
/* The same, and never NULL if there is one. */
void *table_pick_one(fuzz *fuzz, kind kind);
/* Whether there is a handle of this kind that a call could use. */
bool table_has(kind kind);
/* Lets the handles of this call be destroyed. */
void table_release(fuzz *fuzz);
/* Destroys a handle of this kind, if there is one that no call uses. */
void table_destroy(fuzz *fuzz, kind kind);
/* Destroys all handles, in an order of chance. No other thread uses the table. */
void table_destroy_all(fuzz *fuzz);
