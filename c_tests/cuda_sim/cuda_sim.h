// SPDX-License-Identifier: Apache-2.0
// The test's side of the stand-in driver: failing on demand, holding work back, and counting what is alive.
// A test finds these functions with dlsym in the libcuda.so.1 that the library under test has loaded.
#pragma once

#include "cuda_types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

/* In place of a count of calls: all of them from now on. */
#define SIM_EVERY_CALL UINT64_C(0)

/* The nth call from now of a driver function (1 is the next one) answers `result`. A function that gives
 * something back (cuMemFree_v2, cuMemUnmap, cuCtxPopCurrent_v2, ...) has done so all the same, as when the
 * driver reports an error of earlier work; every other function has done nothing. */
void sim_fail(const char *function, uint64_t nth, CUresult result);
/* The same, but the call does nothing at all, also where it gives something back. */
void sim_refuse(const char *function, uint64_t nth, CUresult result);
/* The nth call of a function that submits work answers CUDA_SUCCESS, its work is not done, and the next call
 * that looks at its stream answers `result`, once. An event recorded after it does until recorded again. */
void sim_fail_later(const char *function, uint64_t nth, CUresult result);
/* As sim_fail, for the nth driver call from now of whatever function. */
void sim_fail_nth_of_all(uint64_t nth, CUresult result);
/* Another thread resets device 0 between the (n-1)th and the nth driver call from now, of whatever function, and
 * retains the context again if told so. A thread that checks a context (cuCtxGetId) and uses it in its next call
 * cannot notice a reset between these two, whatever it does: so the reset comes later, when no thread is
 * between two such calls. What is in flight is dropped, also if it is held back. */
void sim_reset_device_before(uint64_t nth, bool is_retained);
/* Whether it has; it does not from here. */
bool sim_has_reset_device(void);
/* From here calls of this thread are neither counted nor made to fail, as those of an engine beside the
 * library; until told otherwise. */
void sim_spare(bool is_spared);
/* Until the reset, cuCtxGetId is neither counted nor made to fail while a context is current: the library calls it
 * before each use of an object. */
void sim_spare_checks(void);
/* The function that failed on demand last; NULL when none has. */
const char *sim_last_failed(void);

/* Calls since the start or the last reset, of one function and of all. */
uint64_t sim_calls(const char *function);
uint64_t sim_call_count(void);

/* Work is done when somebody looks or waits: a query of a stream or event has the device do a few pieces of
 * all that is left, whosever they are. In what order pieces are done: order.h.
 *
 * From here all submitted work waits: queries answer CUDA_ERROR_NOT_READY, and what waits for work blocks. So
 * does what frees, unregisters, or ends a context, and a copy to host memory that is not page-locked, or of
 * much from there. Synchronous copies wait for the legacy default stream. */
void sim_hold(void);
/* Does all that waits, and holds nothing back any more. */
void sim_go(void);

/* From here what streams leave open is done in an order by chance, of this seed; 0: what was submitted last
 * comes first, which is so unless KVMEM_SIM_ORDER in the environment is another seed. */
void sim_set_order(uint64_t seed);

/* From here every device answers this for the attribute, and behaves so where it is one of the VMM. */
void sim_set_attribute(CUdevice_attribute attribute, int value);
/* Whether devices can reach the memory of each other. Default: they can, unless the environment has
 * KVMEM_SIM_PEER_ACCESS=0. */
void sim_set_peer_access(bool can);

/* Whether memory can be created with fabric handles, exported and imported by them; it can't, unless told
 * here or by KVMEM_SIM_FABRIC=1 in the environment. */
void sim_set_fabric(bool is_permitted);
/* Which device's ordinal a pointer has that was opened by an IPC handle in a context of a peer of its
 * memory's device: that of its memory or, when told so, that of the context. */
void sim_set_ipc_ordinal_of_opener(bool is_of_opener);
/* How many bytes behind a page cuMemAlloc's memory starts: less than a page, and a multiple of 256, as on a
 * real device that is used by several programs; 0, unless told. */
void sim_set_allocation_offset(size_t offset);

/* Forgets planned failures. */
void sim_forget_failures(void);
/* Forgets planned failures and counts, does what waits, and takes back what was set; leaves memory, contexts
 * and streams as they are. */
void sim_reset(void);

/* What is alive in this process: all zero when everything has been given back. */
typedef struct sim_counts {
    uint64_t primary_retains;   /* of primary contexts, not released */
    uint64_t contexts;          /* created, not destroyed */
    uint64_t allocations;       /* device memory */
    uint64_t host_allocations;
    uint64_t registrations;     /* of host memory */
    uint64_t reservations;
    uint64_t handles;           /* references to memory handles: releases that are due */
    uint64_t mappings;
    uint64_t ipc_openings;
    uint64_t streams;
    uint64_t events;
    uint64_t modules;
    uint64_t graphs;            /* and executable ones */
    uint64_t open_fds;          /* open files on device memory that the program exported or received */
    uint64_t lost_with_context; /* objects that were alive when their context was destroyed; never falls */
} sim_counts;
void sim_live(sim_counts *counts);

/* How often work on streams read or wrote where its device has no memory, since the start: on a real device
 * each of these destroys the context. */
uint64_t sim_illegal_accesses(void);

/* Copies bytes from memory to memory, of devices or the host, past the driver: no call is counted, none
 * fails. What streams still hold back is not done by it. */
void sim_copy_bytes(uint64_t destination, uint64_t source, size_t size);

/* Contexts on the stack of the calling thread. */
size_t sim_current_context_depth(void);

#pragma GCC visibility pop
