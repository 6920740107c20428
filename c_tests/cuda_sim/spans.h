// SPDX-License-Identifier: Apache-2.0
// The address ranges that the driver knows, and the memory they are mapped to.
#pragma once

#include "state.h"

/* Adds a range that refers to the memory. */
span *span_add(span_kind kind, CUdeviceptr start, size_t size, memory *memory, context *context);
/* Removes the range, its mapping if the driver created it, and the memory if nothing else refers to it. */
void span_remove(span *span);

/* Returns the range that contains the address, or NULL. */
span *span_at(CUdeviceptr address);
/* Returns a range that overlaps [start, start + size), or NULL. */
span *span_within(CUdeviceptr start, size_t size);
/* Returns the range of this kind that starts at the address, or NULL. */
span *span_starting(span_kind kind, CUdeviceptr start);
/* Returns whether the range overlaps [start, start + size). */
bool span_overlaps(const span *span, CUdeviceptr start, size_t size);
/* Returns the reservation that contains all of [start, start + size), or NULL. */
reservation *reservation_containing(CUdeviceptr start, size_t size);

/* Maps memory that the program cannot access (PROT_NONE): of a file, or anonymous if fd is -1. */
void *map_inaccessible(void *at, size_t size, int fd);
/* The same at this address if nothing is mapped there, otherwise at any address. */
void *map_inaccessible_near(void *at, size_t size, int fd);

bool span_is_host(const span *span);
/* Returns the device that owns the memory; for host memory the device of its context, or 0. */
CUdevice span_device(const span *span);

/* Removes all ranges of a context, and returns their number. */
uint64_t spans_destroy_of(const context *context);
