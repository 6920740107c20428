// SPDX-License-Identifier: Apache-2.0
// Functions of the stand-in driver for tests: they make calls fail, hold work back, and count live objects.
// A test gets them with dlsym from the libcuda.so.1 that the library under test has loaded.
#pragma once

#include "cuda_types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

/* As `nth`: every call from now on. */
#define SIM_EVERY_CALL UINT64_C(0)

/* Makes the nth call from now of a driver function (1 is the next one) return `result`. A function that
 * releases something (cuMemFree_v2, cuMemUnmap, cuCtxPopCurrent_v2, ...) releases it before it fails, as when
 * the driver reports an error of earlier work. Every other function fails without effect. */
void sim_fail(const char *function, uint64_t nth, CUresult result);
/* As sim_fail, but a function that releases something fails without effect, too. */
void sim_fail_without_effect(const char *function, uint64_t nth, CUresult result);
/* Makes the nth call of a function that submits work return CUDA_SUCCESS, but drops the work. The next call
 * that reads the state of the stream returns `result`, once. Queries of an event recorded after the work
 * return it until the event is recorded again. */
void sim_fail_later(const char *function, uint64_t nth, CUresult result);
/* As sim_fail, for the nth driver call from now of any function. */
void sim_fail_nth_of_all(uint64_t nth, CUresult result);
/* Resets device 0 between the (n-1)th and the nth driver call from now, of any function, as another thread would.
 * If is_retained, also retains the primary context again. Drops all work in flight, also work that is held back.
 *
 * A thread that checks a context (cuCtxGetId) and uses it in its next call cannot detect a reset between the two.
 * So the reset is delayed until no thread is between two such calls. */
void sim_reset_device_before(uint64_t nth, bool is_retained);
/* Returns whether the planned reset has happened, and cancels it otherwise. */
bool sim_has_reset_device(void);
/* If true, calls of this thread are neither counted nor made to fail until it is set to false. For calls of a
 * test that acts as the inference engine. */
void sim_exempt_thread(bool is_exempt);
/* Until sim_reset, cuCtxGetId is neither counted nor made to fail while a context is current: the library
 * calls it before each use of an object. */
void sim_exempt_context_checks(void);
/* Returns the function that last failed on demand, or NULL. */
const char *sim_last_failed(void);

/* Calls of one function, and of all functions, since the start or the last sim_reset. */
uint64_t sim_calls(const char *function);
uint64_t sim_call_count(void);
/* Bytes of all calls of cuMemcpyAsync. */
uint64_t sim_copied(void);

/* The device executes work only in calls of the program. A query of a stream or an event executes a few of the
 * unfinished tasks of any stream; a synchronising call executes tasks until its condition holds. order.h
 * specifies the order.
 *
 * sim_hold holds all submitted work back. Queries return CUDA_ERROR_NOT_READY. These calls block until sim_go:
 * - calls that wait for work;
 * - calls that free or unregister memory, load or unload a module, or destroy a context;
 * - copies to host memory that is not page-locked, and large copies from it;
 * - synchronous copies, which wait for the legacy default stream. */
void sim_hold(void);
/* Executes all work that is held back, and ends the hold. */
void sim_go(void);
/* Executes some of the work that is held back, in order. */
void sim_advance(uint64_t tasks);
/* Until sim_go or sim_reset, each query executes one task, and submits it again if it is a fill: with two or
 * more fills on streams the device is never idle, and none of its tasks runs for longer than the time between
 * two queries. */
void sim_feed(void);

/* Makes the next call of a function block, before it has an effect, until sim_go_calls or sim_reset, as a
 * driver that waits. Calls of other threads go on. */
void sim_hold_call(const char *function);
/* At each call from here on, `is_held` is asked with the name of the function, and with the lock of the stand-in held: if it returns
 * true, the call blocks as one that sim_hold_call makes block. */
void sim_ask(bool (*is_held)(const char *function));
/* Returns the number of calls that block. */
uint64_t sim_held_calls(void);
void sim_go_calls(void);

/* Sets the seed of a random order of tasks that streams do not order. 0: the task submitted last runs first.
 * The default is the environment variable KVMEM_SIM_ORDER, or 0. */
void sim_set_order(uint64_t seed);

/* Sets an attribute of every device. An attribute of virtual memory management also changes what calls
   support. */
void sim_set_attribute(CUdevice_attribute attribute, int value);
/* Sets whether devices can access each other's memory. Default: true, unless the environment has
 * KVMEM_SIM_PEER_ACCESS=0. */
void sim_set_peer_access(bool can);

/* Sets whether fabric handles can be requested, exported and imported. Default: false, unless the environment
 * has KVMEM_SIM_FABRIC=1. */
void sim_set_fabric(bool is_permitted);
/* Sets which device ordinal a pointer reports if an IPC handle was opened in a context of a peer device:
 * false, the default: that of the device that owns the memory; true: that of the context. */
void sim_set_ipc_ordinal_of_opener(bool is_of_opener);
/* Sets the offset in a page at which memory of cuMemAlloc starts: a multiple of 256, less than a page.
 * Default: 0. Real devices use such offsets if several programs use the device. */
void sim_set_allocation_offset(size_t offset);

/* Cancels planned failures. */
void sim_cancel_failures(void);
/* Cancels planned failures, clears counts, executes work that is held back, and restores the defaults of all
 * settings. Memory, contexts and streams are unchanged. */
void sim_reset(void);

/* Live objects of this process; all counts are 0 after everything has been released. */
typedef struct sim_counts {
    uint64_t primary_retains;   /* references to primary contexts */
    uint64_t contexts;          /* except primary contexts */
    uint64_t allocations;       /* device memory */
    uint64_t host_allocations;
    uint64_t registrations;     /* of host memory */
    uint64_t reservations;
    uint64_t handles;           /* references to memory handles */
    uint64_t mappings;
    uint64_t ipc_openings;
    uint64_t streams;
    uint64_t events;
    uint64_t modules;
    uint64_t linkers;           /* compilations that were not destroyed */
    uint64_t graphs;            /* including executable graphs */
    uint64_t open_fds;          /* file descriptors of device memory that the program exported or received */
    /* objects that were alive when their context was destroyed; never decreases */
    uint64_t lost_with_context;
} sim_counts;
void sim_live(sim_counts *counts);

/* Accesses by work on streams to addresses without memory of its device, since the start. On a real device
 * each of these destroys the context. */
uint64_t sim_illegal_accesses(void);

/* Copies bytes between memory of devices or the host without a driver call, so nothing is counted or fails.
 * Does not execute work of streams. */
void sim_copy_bytes(uint64_t destination, uint64_t source, size_t size);

/* Number of contexts on the stack of the calling thread. */
size_t sim_current_context_depth(void);

#pragma GCC visibility pop
