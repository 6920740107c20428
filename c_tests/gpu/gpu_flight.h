// SPDX-License-Identifier: Apache-2.0
// A transfer between two sides in memory of GPUs or of the host, or in a file: what nearly every test of
// copies begins with. `OPENED(flight, f, .from = PLACE_PINNED, .to = PLACE_DEVICE)` opens the sides, and
// `flight_create(&f, it.path = KVMEM_PATH_CUDA_COPY)` creates the transfer.
#pragma once

#include "sides.h"
#include "streams.h"

/* Six blocks whose ids are scattered at both ends, of all layers. */
extern const kv_move scattered_move;

/* What is not given is a default: 0, or what is said here. */
typedef struct flight_plan {
    place from, to;
    int from_device, to_device;
    /* Side_config of the second kind; alone it is for both. */
    const kvmem_layout_config *source, *destination;
    const kv_move *move;                             /* scattered_move */
    kvmem_agent *agent;                              /* knows both sides */
    uint64_t file_flags;                             /* of a side that is a file */
    uint32_t seed;                                   /* of the source; the destination has the next one */
    bool has_queue;
} flight_plan;

typedef struct flight {
    side source, destination;
    const kv_move *move;
    kvmem_queue *queue;       /* NULL for none */
    kvmem_transfer *transfer; /* NULL before it is created, and where a test has destroyed it */
} flight;

#define flight_open(flight, ...) flight_open_as(flight, &(flight_plan){__VA_ARGS__})
void flight_open_as(flight *flight, const flight_plan *plan);
/* Destroys what is left. */
void flight_close(flight *flight);

/* Options for its move, and its queue. */
kvmem_transfer_options flight_options(const flight *flight);
/* Creates the transfer, in place of one that was created before: `flight_create(&f, it.path = 0, it.flags =
   0)`. */
#define flight_create(flight, ...) flight_create_with(flight, WITH(flight_options(flight), __VA_ARGS__))
void flight_create_with(flight *flight, kvmem_transfer_options options);
/* Creates another transfer between the sides, which is the caller's to destroy. */
#define flight_create_another(flight, ...)                                                           \
    flight_create_another_with(flight, WITH(flight_options(flight), __VA_ARGS__))
kvmem_transfer *flight_create_another_with(const flight *flight, kvmem_transfer_options options);
/* As flight_create, where that may fail. */
#define flight_try(flight, ...) flight_try_with(flight, WITH(flight_options(flight), __VA_ARGS__))
kvmem_status flight_try_with(flight *flight, kvmem_transfer_options options);
/* Fails to create one. */
#define flight_refuse(flight, status, part, ...)                                                     \
    flight_refuse_with(flight, status, part, WITH(flight_options(flight), __VA_ARGS__))
void flight_refuse_with(flight *flight, kvmem_status status, const char *part,
                        kvmem_transfer_options options);

kvmem_transfer_info flight_info(const flight *flight);
/* Has `part` in the explanation of its path, which is returned. */
kvmem_transfer_explanation flight_explain(const flight *flight, const char *part);
/* Bytes that it moves. */
uint64_t flight_bytes(const flight *flight);

void flight_submit(const flight *flight);
void flight_submit_on(const flight *flight, CUstream stream);
/* With the primary context of the first device current, whose stream a default stream is then. */
void flight_submit_on_primary(const flight *flight, CUstream stream);
/* Waits for its end, and compares every byte of both sides. */
void flight_land(flight *flight);
/* The same where it is known to be over. */
void flight_check_moved(flight *flight);
/* Submits it, and lands. */
void flight_run(flight *flight);
/* Waits for its end, which has this status and message. */
void flight_expect_end(const flight *flight, kvmem_status status, const char *part);
/* Takes the next completion from its queue, which is that of this transfer. */
void flight_expect_completion(const flight *flight, kvmem_status status);
/* Takes `count` completions, one of each user data below that, all of transfers that moved so many bytes. */
void expect_each_once(kvmem_queue *queue, size_t count, uint64_t bytes);
/* It is neither over before 20 ms have passed nor can it be submitted again. */
void flight_expect_in_progress(const flight *flight);
/* Has other bytes in the source; in the destination where the source is a file. */
void flight_refill(flight *flight, uint32_t seed);
/* The side that is a file, and the one that is not. */
side *flight_file(flight *flight);
side *flight_memory(flight *flight);
/* Exchanges source and destination; the transfer is destroyed. */
void flight_turn_round(flight *flight);
void flight_destroy_transfer(flight *flight);
