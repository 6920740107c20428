// SPDX-License-Identifier: Apache-2.0
// The order in which the device runs the tasks of streams. It keeps what the driver promises, and nothing
// more:
//
// - The tasks of one stream run one after the other.
// - cuStreamWaitEvent delays the later tasks of the stream until the work before the latest record of the
//   event is complete. A record after the wait has no effect on it. An event that was never recorded delays
//   nothing.
// - A task of the legacy default stream of a context runs after all earlier tasks of the blocking streams of
//   the context, and their tasks run after its earlier tasks. The per-thread default stream is a blocking
//   stream; streams created with CU_STREAM_NON_BLOCKING are not.
// - A launch of an executable graph begins when its previous launch is complete, also on another stream.
// - Streams of different contexts or devices are ordered by events only.
//
// The host waits as the driver documents:
// - for a stream, an event or a context in the synchronising calls;
// - for the default stream, and the streams that it waits for, in synchronous copies from or to the host;
// - for the context when memory of it is freed;
// - for all contexts when host memory is freed or unregistered. It does not wait for synchronous fills, for
//   synchronous copies inside a device, nor for the last bytes of synchronous copies from pageable memory.
//
// Of all tasks that may run, the task submitted last runs first. So a task that lacks a wait runs before the
// task that it should wait for. With a seed (KVMEM_SIM_ORDER in the environment, or sim_set_order) a random
// task runs. The same seed and calls give the same order.
#pragma once

#include "queue.h"

/* Returns the stream whose next task runs next; NULL if there are no tasks. */
stream *order_next_stream(void);
/* Returns whether a stream has unfinished tasks up to this number. */
bool order_is_unfinished(const stream *queried, uint64_t number);
/* The same for the legacy default stream of a context and the streams that it waits for. */
bool order_is_unfinished_before_legacy(const context *of, uint64_t number);
/* Sets the seed of the environment. */
void order_reset(void);
