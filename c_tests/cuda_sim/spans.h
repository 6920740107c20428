// SPDX-License-Identifier: Apache-2.0
// Ranges of addresses that the driver knows, each with what lies behind it.
#pragma once

#include "state.h"

/* A new entry, with the memory behind it held. */
span *span_add(span_kind kind, CUdeviceptr start, size_t size, memory *memory, context *context);
/* Removes the entry, its mapping where the driver made it, and the memory when nothing else shows it. */
void span_remove(span *span);

/* The range that this address lies in; NULL when the driver knows none. */
span *span_at(CUdeviceptr address);
/* The range of this kind that begins here. */
span *span_starting(span_kind kind, CUdeviceptr start);
/* Whether any part of [start, start + size) belongs to a range. */
bool span_overlaps(const span *span, CUdeviceptr start, size_t size);
/* The reservation that holds all of [start, start + size). */
reservation *reservation_around(CUdeviceptr start, size_t size);

/* Memory that the program can't touch: PROT_NONE over a file or, with fd -1, over nothing. */
void *map_untouchable(void *at, size_t size, int fd);
/* The same at this address if nothing is mapped there, else at any other. */
void *map_untouchable_near(void *at, size_t size, int fd);

bool span_is_host(const span *span);
/* The device that it belongs to; for host memory the one whose context made it, or the first. */
CUdevice span_device(const span *span);

/* Removes all that belong to a context, and answers how many. */
uint64_t spans_destroy_of(const context *context);
