// SPDX-License-Identifier: Apache-2.0
// KV layouts in every kind of memory: the sides of transfers, with guard bands and a model of the expected
// bytes.
#pragma once

#include "engine.h"
#include "harness.h"

/* Where a layout is stored: first the places in host memory, then those in memory of a GPU. */
typedef enum place {
    PLACE_SYSTEM,         /* host memory allocated by kvmem */
    PLACE_PINNED,         /* page-locked memory allocated by kvmem */
    PLACE_CHUNKED,        /* the same, page-locked page by page */
    PLACE_ENGINE_PINNED,  /* page-locked memory of the engine, adopted as host memory */
    PLACE_LOCKED_PARTS,   /* host memory of the engine, page-locked in parts that end inside blocks */
    PLACE_PARTLY_LOCKED,  /* the same, with only some pages in the middle page-locked */
    PLACE_DEVICE,         /* GPU memory allocated by kvmem */
    PLACE_ADOPTED,        /* GPU memory of the engine, adopted from the middle of an allocation */
    PLACE_SPANNED,        /* GPU memory of the engine; the first region extends over two mappings */
    PLACE_ADJACENT,       /* GPU memory of the engine; the first region extends over two allocations */
    PLACE_ELASTIC,        /* elastic memory, allocated for the layout */
    PLACE_ELASTIC_PARTLY, /* the same, for twice as many blocks; the first half has memory */
    NUM_PLACES,
    PLACE_FILE = NUM_PLACES, /* a file; not one of the places in memory */
} place;

/* The places of the source and the destination. */
typedef struct route {
    place from, to;
} route;

bool place_is_device(place place);
bool place_is_elastic(place place);
/* Host memory that is not, or not completely, page-locked. */
bool place_is_pageable(place place);
/* Paths on which a GPU copies. */
bool method_is_cuda(uint32_t method);

/* One layout. Its memory has the same contents and guard bands as the model. In elastic memory only each
 * block has the same contents, and the padding after it is its guard band. */
typedef struct side {
    /* model.memory: the bytes read back last; model.regions and model.layout: those under test */
    kv_side model;
    place place;
    int device;
    uint64_t base;          /* the first byte of the first guard band */
    kvmem_region *whole;    /* the regions are views of it; NULL if they are adopted one by one */
    span span;
    locked_parts locked_parts;
    adjacent adjacent;
    file_side file;         /* has the same model */
    scratch directory;      /* of the file */
    bool is_lost;           /* PLACE_ADOPTED: a reset of the device has freed the memory */
    uint64_t blocks_in_use; /* elastic: number of blocks that have memory, from the first on */
} side;

/* A geometry whose blocks extend over pages: 7 blocks, 3 layers, K and V, pieces of 480 bytes. */
kvmem_layout_config side_config(const kv_kind *kind);

void side_open(side *side, place place, int device, const kvmem_layout_config *config, kvmem_agent *agent,
               uint32_t seed);
/* In a file that is opened with these KVMEM_DISK_* flags. */
void side_open_file(side *side, const kvmem_layout_config *config, kvmem_agent *agent, uint64_t flags,
                    uint32_t seed);
/* Destroys the handles, which engines may do while transfers are in flight. */
void side_drop_handles(side *side);
/* Destroys the handles, then the memory. */
void side_close(side *side);
/* Reads every byte of memory into model.memory. */
void side_read(side *side);
/* Reads every byte, also of a file, and compares it with the model. */
void side_check(side *side);
/* Applies the move to the model of the destination, and checks the destination. */
void side_check_moved(side *destination, const side *source, const kv_move *move);
/* Writes bytes of another seed to all of its memory and to the model. */
void side_refill(side *side, uint32_t seed);
/* Runs a transfer, and checks that exactly the moved blocks of the destination changed. */
kvmem_transfer_info side_move(side *source, side *destination, const kv_move *move);
