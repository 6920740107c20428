// SPDX-License-Identifier: Apache-2.0
// A transfer between two sides in memory of GPUs or of the host, or in a file, for most tests of copies.
// `OPENED(flight, f, .from = PLACE_PINNED, .to = PLACE_DEVICE)` opens the sides, and
// `flight_create(&f, it.transfer.method = KVMEM_METHOD_CUDA_COPY)` creates the transfer.
#pragma once

#include "sides.h"
#include "streams.h"

/* user_data of its runs. */
#define FLIGHT_USER_DATA 42

/* Six blocks with scattered ids on both sides, all layers. */
extern const kv_move scattered_move;

/* Fields that are not set have the default in the comment, or 0. */
typedef struct flight_plan {
    place from, to;
    int from_device, to_device;
    /* Default of `source`: side_config of the second kind; of `destination`: the same as `source`. */
    const kvmem_layout_config *source, *destination;
    const kv_move *move;                             /* default: scattered_move */
    kvmem_agent *agent;                              /* both sides are registered with it */
    uint64_t file_flags;                             /* of a side that is a file */
    uint32_t seed;                                   /* of the source; the destination has seed + 1 */
    bool has_queue;
} flight_plan;

typedef struct flight {
    side source, destination;
    const kv_move *move;
    kvmem_queue *queue;       /* may be NULL */
    kvmem_transfer *transfer; /* NULL before it is created and after it is destroyed */
} flight;

#define flight_open(flight, ...) flight_open_as(flight, &(flight_plan){__VA_ARGS__})
void flight_open_as(flight *flight, const flight_plan *plan);
/* Destroys the transfer, the queue and the sides. */
void flight_close(flight *flight);

/* Returns options for its move and its queue. */
kv_job flight_options(const flight *flight);
/* Creates the transfer, and destroys the previous one: `flight_create(&f, it.transfer.method = 0,
   it.transfer.flags = 0)`. */
#define flight_create(flight, ...) flight_create_with(flight, WITH(flight_options(flight), __VA_ARGS__))
void flight_create_with(flight *flight, kv_job options);
/* Creates another transfer between the sides, which the caller destroys. */
#define flight_create_another(flight, ...)                                                           \
    flight_create_another_with(flight, WITH(flight_options(flight), __VA_ARGS__))
kvmem_transfer *flight_create_another_with(const flight *flight, kv_job options);
/* As flight_create, and returns the status. */
#define flight_try(flight, ...) flight_try_with(flight, WITH(flight_options(flight), __VA_ARGS__))
kvmem_status flight_try_with(flight *flight, kv_job options);
/* Checks that creating a transfer fails with this status and message. */
#define flight_refuse(flight, status, part, ...)                                                     \
    flight_refuse_with(flight, status, part, WITH(flight_options(flight), __VA_ARGS__))
void flight_refuse_with(flight *flight, kvmem_status status, const char *part,
                        kv_job options);

kvmem_transfer_info flight_info(const flight *flight);
/* Returns the explanation of its method, and checks that its text contains `part`. */
kvmem_compared_method flight_explain(const flight *flight, const char *part);
/* Returns the number of bytes that it moves. */
uint64_t flight_bytes(const flight *flight);

void flight_submit(const flight *flight);
void flight_submit_on(const flight *flight, CUstream stream);
/* With the primary context of device 0 current, so that a default stream is one of that context. */
void flight_submit_on_primary(const flight *flight, CUstream stream);
/* Waits for its end, and compares every byte of both sides. */
void flight_finish(flight *flight);
/* Compares every byte of both sides after its end. */
void flight_check_moved(flight *flight);
/* Submits it, waits, and compares. */
void flight_run(flight *flight);
/* The same for a transfer with a deadline and a queue, once its blocks are free: repeated while runs are
   late. */
void flight_run_in_time(flight *flight);
/* Waits for its end, and checks its status and message. */
void flight_expect_end(const flight *flight, kvmem_status status, const char *part);
/* Waits for the next completion in its queue, and checks that it is of this transfer. */
void flight_expect_completion(const flight *flight, kvmem_status status);
/* Waits for `count` completions: one with each user_data from 0 to count - 1, each of a transfer of
   `bytes`. */
void expect_each_once(kvmem_queue *queue, size_t count, uint64_t bytes);
/* Checks that it is in progress for 20 ms, and that submitting it again fails. */
void flight_expect_in_progress(const flight *flight);
/* Changes the bytes of the source, or of the destination if the source is a file. */
void flight_refill(flight *flight, uint32_t seed);
/* Return the side that is a file, and the other one. */
side *flight_file(flight *flight);
side *flight_memory(flight *flight);
/* Swaps source and destination, and destroys the transfer. */
void flight_reverse(flight *flight);
void flight_destroy_transfer(flight *flight);
