/* SPDX-License-Identifier: Apache-2.0 */
/* kvmem: KV-cache memory for LLM inference engines. Generated from src/ffi; do not edit.
 *
 * This header is the introduction, and includes what every engine needs:
 *
 *     kvmem/base.h       statuses, errors, timeouts, blobs, log, versions
 *     kvmem/region.h     memory on one tier, allocated here or by the engine
 *     kvmem/layout.h     where each block is located in regions
 *     kvmem/transfer.h   blocks are moved between two layouts; queues of completions
 *     kvmem/share.h      regions and layouts for other processes on this machine
 *
 * Others are included by the files that need them:
 *
 *     kvmem/cuda.h       transfers on streams, devices, IPC handles, virtual memory management
 *     kvmem/nixl.h       agents, layouts of peers on other machines, registrations, notifications
 *     kvmem/directory.h  agents and layouts are found by name
 *     kvmem/store.h      blocks under keys in a folder, which survive the process
 *     kvmem/statistics.h what the process has moved, how long it took, and what exists in it
 *     kvmem/nixl_raw.h   requests on raw descriptors, and the rest of NIXL
 *
 * Objects.  A region is a range of memory on one tier: host memory, page-locked host memory, GPU memory or a
 *           file. A layout says where each block of a KV cache is located in regions. A transfer moves blocks
 *           between two layouts. A queue collects completions of transfers. A share carries a region or a
 *           layout to another process; a broker publishes shares by name. A registration makes a region known
 *           to a NIXL agent, so that peers can access it. A directory finds agents and layouts by name. A
 *           store keeps blocks under keys in a folder, for later processes.
 *
 * Example.  Move blocks 7 and 8 of a layout to blocks 42 and 43 of another one:
 *
 *     const kvmem_block_pair pairs[] = {{7, 42}, {8, 43}};
 *     const kvmem_submit_options blocks = {.struct_size = sizeof blocks, .pairs = pairs, .num_pairs = 2};
 *     kvmem_transfer *transfer = NULL;
 *     kvmem_error *error = NULL;
 *     kvmem_status status = kvmem_transfer_start(source, destination, NULL, &blocks, &transfer, &error);
 *     if (status == KVMEM_STATUS_OK) status = kvmem_transfer_wait(transfer, KVMEM_TIMEOUT_FOREVER, &error);
 *     if (status != KVMEM_STATUS_OK) fprintf(stderr, "%s\n", kvmem_error_message(error, NULL));
 *     kvmem_error_destroy(error);
 *     kvmem_transfer_destroy(transfer);
 *
 * The rest of this introduction is true for all functions, and their comments do not repeat it: they describe
 * the parameters whose name and type do not say all, and the statuses that are special to a function.
 *
 * Errors.   A function that can fail returns a kvmem_status, and its last parameter is `kvmem_error **error`.
 *           If it fails, *error receives a new error, which the caller destroys; NULL ignores it. On success
 *           *error is not changed. A failed call sets output handles to NULL and changes no other output.
 *           Nothing is stored in thread-local storage. These statuses have the same meaning everywhere:
 *           KVMEM_STATUS_OK: success.
 *           KVMEM_STATUS_INVALID_ARGUMENT: a required pointer is NULL, or options are invalid.
 *           KVMEM_STATUS_OUT_OF_RANGE: there is no GPU with this ordinal, or an index is too large.
 *           KVMEM_STATUS_OUT_OF_MEMORY: the process has no free file descriptors, cannot start a thread, or
 *           the kernel or the CUDA driver has no free memory. If a small allocation on the heap fails, the
 *           process ends, because Rust's collections do not report such failures.
 *           KVMEM_STATUS_UNAVAILABLE_CUDA, KVMEM_STATUS_CUDA: a GPU is used, and there is no usable driver,
 *           or the driver has failed.
 *           KVMEM_STATUS_UNAVAILABLE_NIXL, KVMEM_STATUS_NIXL: an agent is used, and there is no usable NIXL,
 *           or NIXL has failed.
 *           KVMEM_STATUS_TIMED_OUT: an agent is used, and NIXL has not returned within its call_timeout_ns.
 *           KVMEM_STATUS_CORRUPT, KVMEM_STATUS_VERSION_MISMATCH: bytes that another process or an earlier one
 *           has made are damaged, malicious or of another kind, or have a version that this library cannot
 *           read.
 *
 * Handles.  The caller owns every handle that it receives through a kvmem_x **, blobs and lists included, and
 *           destroys it once with kvmem_x_destroy, when no other call uses it. Handles may be destroyed in
 *           any order: an object lives as long as another object uses it. Destroying NULL does nothing, and
 *           destroying never fails.
 *           A handle of another type, or a destroyed one, fails with KVMEM_STATUS_INVALID_ARGUMENT;
 *           destroying it is logged and frees nothing. A destroyed handle is recognized only until its memory
 *           is reused.
 *           A handle that was created before a fork fails with KVMEM_STATUS_INVALID_STATE in the child. The
 *           child may destroy it, and may create its own handles.
 *
 * Options.  An options struct begins with struct_size, which the caller sets to sizeof the struct. A field
 *           that is 0 or NULL has its default; fields without a default, such as sizes, must be set:
 *           `kvmem_x_options o = {.struct_size = sizeof o}` in C, and in C++ `kvmem_x_options o{};` and
 *           `o.struct_size = sizeof o;`. NULL options are the defaults, unless a field must be set.
 *           Unknown flags and values fail with KVMEM_STATUS_INVALID_ARGUMENT, as do reserved fields that are
 *           not 0. What options and arrays point to is copied, or read during the call.
 *           A struct of an older or newer version of the header is accepted if struct_size is at least that
 *           of the first published version, at most 4096, and all bytes of unknown fields are 0.
 *
 * Strings.  Parameters are NUL-terminated; they are UTF-8, except for paths. A returned const char * is
 *           borrowed: it is valid as long as the object it was read from, or static if there is none. Text
 *           that a call composes is a kvmem_blob. kvmem never fills a buffer of the caller.
 *
 * Arrays.   A function that fills an array of the caller writes at most `capacity` elements, and returns in
 *           `count` how many there are, which may be more. The array may be NULL if `capacity` is 0.
 *
 * Numbers.  Sizes are in bytes, times in nanoseconds. A block id is a uint32_t; layers and outer slots are
 *           uint64_t. `device` is a GPU, by its ordinal in the order of CUDA_VISIBLE_DEVICES.
 *
 * Waiting.  The parameter `timeout_ns` is the time that the call may wait: 0 does not wait, and
 *           KVMEM_TIMEOUT_FOREVER sets no limit. A call that has not got what it waits for by then fails with
 *           KVMEM_STATUS_TIMED_OUT. Other times are fields of options, with 0 for their default:
 *           `run_timeout_ns` is the time that a run may take, whether a call waits for it or not;
 *           `stall_timeout_ns` the time without progress after which a run or session ends; and
 *           `call_timeout_ns` of an agent the limit of its calls that have no timeout_ns. docs/errors.md
 *           lists what each function waits for; others wait for nothing.
 *
 * Threads.  All functions may be called by any thread, and may use one object at the same time, except its
 *           kvmem_x_destroy. A call that starts a transfer or request (kvmem_transfer_start,
 *           kvmem_transfer_submit, kvmem_request_post), asks for its state or waits (kvmem_transfer_wait,
 *           kvmem_transfer_wait_layers, kvmem_request_poll, kvmem_request_wait, kvmem_queue_wait,
 *           kvmem_agent_take_notifications) may run code of NIXL on the calling thread: give that thread an
 *           ordinary stack, and do not end it by pthread_cancel. Callbacks must not unwind.
 */

#ifndef KVMEM_H
#define KVMEM_H

#include "kvmem/base.h"
#include "kvmem/region.h"
#include "kvmem/layout.h"
#include "kvmem/transfer.h"
#include "kvmem/share.h"

#endif /* KVMEM_H */
