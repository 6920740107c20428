// SPDX-License-Identifier: Apache-2.0
// KV layouts in every kind of memory this machine has: the sides of transfers, with guard bands and a model
// of what every byte must be.
#pragma once

#include "engine.h"
#include "harness.h"

/* Where a layout is stored: in host memory, then in memory of a GPU. */
typedef enum place {
    PLACE_SYSTEM,         /* host memory of the library's */
    PLACE_PINNED,         /* page-locked memory of the library's */
    PLACE_CHUNKED,        /* the same, every page locked for itself */
    PLACE_ENGINE_PINNED,  /* page-locked memory of the engine's, adopted as host memory */
    PLACE_PIECES,         /* host memory of the engine's, page-locked in pieces that end inside blocks */
    PLACE_PARTLY_LOCKED,  /* the same, of which only pages in the middle are page-locked */
    PLACE_DEVICE,         /* memory of a GPU, the library's */
    PLACE_ADOPTED,        /* the engine's, adopted from the middle of an allocation */
    PLACE_SPANNED,        /* the engine's, the first region across the border of two mappings */
    PLACE_ADJACENT,       /* the engine's, the first region across the border of two allocations */
    PLACE_ELASTIC,        /* elastic memory, allocated for the layout */
    PLACE_ELASTIC_PARTLY, /* the same, of twice as many blocks, of which the first half has memory */
    NUM_PLACES,
    PLACE_FILE = NUM_PLACES, /* a file of the side's own, beside the places in memory */
} place;

/* From where to where blocks go. */
typedef struct route {
    place from, to;
} route;

bool place_is_device(place place);
bool place_is_elastic(place place);
/* Host memory that no kernel reaches all of. */
bool place_is_pageable(place place);
/* A path of the CUDA engine's. */
bool path_is_cuda(uint32_t path);

/* One layout: its memory lies as the model's does, guard bands and all. Elastic memory only does so block by
 * block, and has the padding behind each as its guard bands. */
typedef struct side {
    kv_side model; /* model.memory is what was read back last; regions and layout are the real ones */
    place place;
    int device;
    uint64_t base;          /* the first byte of the first guard band */
    kvmem_region *whole;    /* what the regions are views of; NULL where they are adopted one by one */
    span span;
    pieces pieces;
    adjacent adjacent;
    file_side file;         /* its model is this side's */
    scratch directory;      /* of the file */
    bool is_lost;           /* PLACE_ADOPTED: a reset of the device has freed it */
    uint64_t blocks_in_use; /* elastic: blocks that have memory, from the first on */
} side;

/* A geometry whose blocks reach over pages: 7 blocks, 3 layers, K and V, pieces of 480 bytes. */
kvmem_layout_config side_config(const kv_kind *kind);

void side_open(side *side, place place, int device, const kvmem_layout_config *config, kvmem_agent *agent,
               uint32_t seed);
/* In a file, which is opened with these KVMEM_DISK_*. */
void side_open_file(side *side, const kvmem_layout_config *config, kvmem_agent *agent, uint64_t flags,
                    uint32_t seed);
/* Destroys the handles, as engines may while transfers of them are in flight. */
void side_drop_handles(side *side);
/* Destroys the handles, then the memory. */
void side_close(side *side);
/* Reads every byte of memory back into model.memory. */
void side_read(side *side);
/* The same, also of a file, and compares. */
void side_check(side *side);
/* The same after the move. */
void side_check_moved(side *destination, const side *source, const kv_move *move);
/* Writes bytes of another seed to all of its memory; the model follows. */
void side_refill(side *side, uint32_t seed);
/* Copies by the library and checks that exactly the moved blocks changed at the destination. */
kvmem_transfer_info side_move(side *source, side *destination, const kv_move *move);
