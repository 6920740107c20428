// SPDX-License-Identifier: Apache-2.0
// In what order the device does the work of streams. What the driver promises, and nothing more:
//
// - the pieces of one stream one after the other;
// - after cuStreamWaitEvent what comes later on the stream begins when what the event stood for at that call
//   is done: the work before its last record. A later record moves no wait that was made before it. An event
//   that was never recorded holds nothing back;
// - the legacy default stream of a context does a piece after all that the blocking streams of the context
//   were given before it, and they do theirs after all it was given before. The per-thread default stream
//   is a blocking one; streams made with CU_STREAM_NON_BLOCKING have no part in it;
// - a launch of an executable graph begins when the launch of it before is done, also on another stream;
// - between streams of different contexts or devices there is no order but by events.
//
// The host waits where the driver says so: for a stream, an event or a context when it synchronises with it,
// for the default stream and what that waits for in synchronous copies from or to the host, for the context
// when it frees memory of it, for all when it frees or unregisters host memory. Nobody waits for synchronous
// fills and copies inside a device, nor for the last bytes of synchronous copies from pageable memory.
//
// Of all pieces that may be done the one submitted last is taken, so that what should have waited for
// something comes before it. With a seed (KVMEM_SIM_ORDER in the environment, or sim_set_order) it is one of
// them by chance, the same again for the same seed and calls.
#pragma once

#include "queue.h"

/* The stream whose next piece is done next; NULL where nothing is left. */
stream *order_choose(void);
/* Whether a stream was given pieces up to this number that are not done yet. */
bool order_is_left(const stream *asked, uint64_t number);
/* The same for the legacy default stream with what it waits for. */
bool order_is_left_before_legacy(const context *of, uint64_t number);
/* Back to what the environment says. */
void order_reset(void);
