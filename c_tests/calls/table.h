// SPDX-License-Identifier: Apache-2.0
// The live handles, shared by all threads. A handle that a call uses is not destroyed: the header allows all
// functions on one object concurrently, except the one that destroys it.
#pragma once

#include "fuzz.h"

/* Called first. */
void table_open(void);
/* Takes ownership of a handle. Destroys it if the table is full of its kind. */
void table_add(fuzz *fuzz, kind kind, void *handle);
/* Returns a handle for this call, until table_release. Returns NULL if there is none, and sometimes at
   random. */
void *table_pick(fuzz *fuzz, kind kind);
/* The same, but NULL only if there is none. */
void *table_pick_one(fuzz *fuzz, kind kind);
/* Whether there is a handle of this kind that a call could use. */
bool table_has(kind kind);
/* Allows the handles of this call to be destroyed. */
void table_release(fuzz *fuzz);
/* Destroys a handle of this kind that no call uses, if there is one. */
void table_destroy(fuzz *fuzz, kind kind);
/* Destroys all handles in random order. No other thread may use the table. */
void table_destroy_all(fuzz *fuzz);
