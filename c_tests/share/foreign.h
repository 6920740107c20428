// SPDX-License-Identifier: Apache-2.0
// File descriptors that a hostile sender puts into a share: memory files and control blocks of the test's
// own.
#pragma once

#include "parcel.h"

/* A sparse memory file, sealed as kvmem requires. It takes no memory until it is touched. */
int foreign_memory(uint64_t size);
/* The same of reserved huge pages of 2 MiB, of which it takes none until it is mapped. */
int foreign_huge_memory(uint64_t size);
/* A control block of the parcel's region, with that version and number of extents, in a file of `size`
 * bytes. */
int foreign_control(const parcel *parcel, uint32_t version, uint32_t extents, uint64_t size);
/* The same file opened again with these flags; closes `fd`. */
int foreign_reopen(int fd, int flags);
/* Puts `fd` in place of one of the parcel's, which owns it from then on. */
void foreign_put(parcel *parcel, size_t index, int fd);
