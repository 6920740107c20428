// SPDX-License-Identifier: Apache-2.0
// File descriptors that a hostile sender may put into a share: memory files and control blocks.
#pragma once

#include "parcel.h"

/* A sparse memory file with the seals that kvmem requires. It uses no memory until it is touched. */
int foreign_memory(uint64_t size);
/* The same with reserved huge pages of 2 MiB. It uses none until it is mapped. */
int foreign_huge_memory(uint64_t size);
/* A control block for the parcel's region, with this version and number of extents, in a file of `size`
   bytes. */
int foreign_control(const parcel *parcel, uint32_t version, uint32_t extents, uint64_t size);
/* Opens the same file again with these flags, and closes `fd`. */
int foreign_reopen(int fd, int flags);
/* Replaces a descriptor of the parcel by `fd`, which the parcel then owns. */
void foreign_put(parcel *parcel, size_t index, int fd);
