// SPDX-License-Identifier: Apache-2.0
// Allocates memory for each place, writes the bytes of the model, and reads them back.
#include "sides.h"

#include "elastic_side.h"
#include "caller_context.h"

bool place_is_device(place place) { return place >= PLACE_DEVICE && place != PLACE_FILE; }

bool method_is_cuda(uint32_t method) {
    return method >= KVMEM_METHOD_CUDA_COPY && method <= KVMEM_METHOD_CUDA_STAGED;
}

bool place_is_elastic(place place) { return place >= PLACE_ELASTIC && place != PLACE_FILE; }

bool place_is_pageable(place place) { return place == PLACE_SYSTEM || place == PLACE_PARTLY_LOCKED; }

kvmem_layout_config side_config(const kv_kind *kind) { return WITH(kv_config(kind), it.inner_dim = 60); }

static void create_system(side *side) {
    kvmem_system_options options = OPTIONS(kvmem_system_options, it.size = side->model.size);
    EXPECT_OK(kvmem_region_create_system(&options, &side->whole, ERR));
}

static void create_pinned(side *side, uint64_t chunk_size) {
    kvmem_pinned_options options = OPTIONS(kvmem_pinned_options, it.chunk_size = chunk_size,
                                           it.size = side->model.size, it.device = side->device);
    EXPECT_OK(kvmem_region_create_pinned(&options, &side->whole, ERR));
}

static void create_device(side *side) {
    EXPECT_OK(kvmem_region_create_device(REF(OPTIONS(kvmem_device_options, it.size = side->model.size,
                                                     it.device = side->device)), &side->whole, ERR));
}

/* Returns the base with which the border between two ranges of this size is in the middle of the first
   region. */
static uint64_t start_across(const side *side, uint64_t border, uint64_t size) {
    const uint64_t alignment = side->model.config.alignment ? side->model.config.alignment : 1;
    const uint64_t half = kv_region_size(&side->model.config) / 2 / alignment * alignment;
    CHECK(side->model.size <= size);
    return border - side->model.starts[0] - half;
}

static uint64_t open_span(side *side) {
    span_open(&side->span, side->device, 2, 2);
    return start_across(side, side->span.address + side->span.granule, side->span.granule);
}

static uint64_t open_adjacent(side *side) {
    adjacent_open(&side->adjacent, side->device);
    return start_across(side, side->adjacent.addresses[1], side->adjacent.size);
}

#define PAGE UINT64_C(4096)

/* Page-locks all pages in parts of one, two and more pages, or only some pages in the middle. */
static uint64_t open_locked_parts(side *side) {
    const uint64_t pages = (side->model.size + PAGE - 1) / PAGE;
    locked_parts *parts = &side->locked_parts;
    *parts = (locked_parts){.size = pages * PAGE};
    const bool is_partly = side->place == PLACE_PARTLY_LOCKED;
    const uint64_t end = is_partly ? pages * 2 / 3 : pages;
    for (uint64_t start = is_partly ? pages / 3 : 0; start < end; parts->num_parts++) {
        const uint64_t length = parts->num_parts == LOCKED_PARTS_MAX - 1 ? end : 1 + parts->num_parts % 2;
        parts->starts[parts->num_parts] = start;
        start = start + length < end ? start + length : end;
        parts->ends[parts->num_parts] = start;
    }
    locked_parts_open(parts, side->device);
    return (uint64_t)(uintptr_t)parts->address;
}

static void allocate(side *side) {
    switch (side->place) {
    case PLACE_SYSTEM: create_system(side); break;
    case PLACE_PINNED: create_pinned(side, 0); break;
    case PLACE_CHUNKED: create_pinned(side, 4096); break;
    case PLACE_DEVICE: create_device(side); break;
    case PLACE_ENGINE_PINNED:
        side->base = (uint64_t)(uintptr_t)engine_allocate_host(side->device, side->model.size);
        break;
    case PLACE_ADOPTED: side->base = engine_allocate(side->device, side->model.size); break;
    case PLACE_LOCKED_PARTS:
    case PLACE_PARTLY_LOCKED: side->base = open_locked_parts(side); break;
    case PLACE_ADJACENT: side->base = open_adjacent(side); break;
    default: side->base = open_span(side); break;
    }
    if (side->whole != NULL) {
        GET(kvmem_region_info, info, kvmem_region_get_info, side->whole);
        side->base = info.address;
    }
}

static kvmem_region *make_region(side *side, uint64_t start, uint64_t size) {
    kvmem_region *region = NULL;
    if (side->whole != NULL) {
        EXPECT_OK(kvmem_region_create_view(side->whole, start, size, &region, ERR));
        return region;
    }
    kvmem_adopt_options options = OPTIONS(kvmem_adopt_options,
                                          it.address = (void *)(uintptr_t)(side->base + start),
                                          it.size = size);
    if (place_is_device(side->place)) {
        EXPECT_OK(kvmem_region_adopt_device(&options, side->device, &region, ERR));
    } else {
        EXPECT_OK(kvmem_region_adopt_host(&options, &region, ERR));
    }
    return region;
}

/* Returns the number of bytes before the border of two allocations, which a copy of the driver must not
   cross. */
static uint64_t size_before_border(const side *side) {
    return side->place == PLACE_ADJACENT ? side->adjacent.addresses[1] - side->base : side->model.size;
}

static void write_all(side *side) {
    const unsigned char *bytes = side->model.expected;
    const uint64_t border = size_before_border(side);
    CHECK(side->place != PLACE_FILE);
    if (place_is_elastic(side->place)) {
        elastic_side_write(side);
    } else if (place_is_device(side->place)) {
        write_device(side->device, side->base, bytes, border);
        write_device(side->device, side->base + border, bytes + border, side->model.size - border);
    } else {
        memcpy((void *)(uintptr_t)side->base, bytes, side->model.size);
    }
}

void side_open_file(side *side, const kvmem_layout_config *config, kvmem_agent *agent, uint64_t flags,
                    uint32_t seed) {
    *side = (struct side){.place = PLACE_FILE, .directory = scratch_create(temporary_directory())};
    CALL(file_side_open(&side->file, config, agent, &side->directory, flags, seed));
    side->model = side->file.model;
}

void side_open(side *side, place place, int device, const kvmem_layout_config *config, kvmem_agent *agent,
               uint32_t seed) {
    *side = (struct side){.place = place, .device = device};
    if (place_is_elastic(place)) {
        elastic_side_open(side, config, agent, seed);
        return;
    }
    kv_model_open(&side->model, config, seed);
    allocate(side);
    write_all(side);
    for (size_t i = 0; i < side->model.num_regions; i++)
        side->model.regions[i] = make_region(side, side->model.starts[i], kv_region_size(config));
    CALL(kv_side_build(&side->model, agent));
}

static void free_engine_memory(side *side) {
    if (side->place == PLACE_ENGINE_PINNED) engine_free_host(side->device, (void *)(uintptr_t)side->base);
    else if (side->is_lost) engine_forget_lost(side->device);
    else if (side->place == PLACE_ADOPTED) engine_free(side->device, side->base);
    else if (side->place == PLACE_SPANNED) span_close(&side->span);
    else if (side->place == PLACE_ADJACENT) adjacent_close(&side->adjacent);
    else if (side->place == PLACE_LOCKED_PARTS || side->place == PLACE_PARTLY_LOCKED)
        locked_parts_close(&side->locked_parts);
}

void side_drop_handles(side *side) {
    CALL(kvmem_layout_destroy(side->model.layout));
    for (size_t i = 0; i < side->model.num_regions; i++) {
        DESTROYED(kvmem_region, side->model.regions[i]);
    }
    CALL(kvmem_region_destroy(side->whole));
    CALL(kvmem_region_destroy(side->file.file));
    side->model.layout = NULL;
    side->whole = side->file.file = NULL;
}

void side_close(side *side) {
    if (side->place == PLACE_FILE) {
        side->file.model = side->model; /* side_drop_handles may have destroyed its handles */
        CALL(file_side_close(&side->file));
        scratch_remove(&side->directory);
    } else {
        CALL(kv_side_close(&side->model));
        CALL(kvmem_region_destroy(side->whole));
        free_engine_memory(side);
    }
    *side = (struct side){0};
}

void side_read(side *side) {
    unsigned char *bytes = side->model.memory;
    const uint64_t border = size_before_border(side);
    if (place_is_elastic(side->place)) {
        elastic_side_read(side);
    } else if (place_is_device(side->place)) {
        read_device(side->device, bytes, side->base, border);
        read_device(side->device, bytes + border, side->base + border, side->model.size - border);
    } else {
        memcpy(bytes, (void *)(uintptr_t)side->base, side->model.size);
    }
}

void side_check(side *side) {
    if (side->place == PLACE_FILE) {
        CALL(file_side_check(&side->file));
    } else {
        side_read(side);
        CHECK_BYTES(side->model.memory, side->model.expected, side->model.size);
    }
}

void side_check_moved(side *destination, const side *source, const kv_move *move) {
    kv_expect_moved(&destination->model, &source->model, move);
    side_check(destination);
}

void side_refill(side *side, uint32_t seed) {
    kv_fill(side->model.expected, side->model.size, seed);
    /* blocks without memory are never read */
    memcpy(side->model.memory, side->model.expected, side->model.size);
    write_all(side);
}

kvmem_transfer_info side_move(side *source, side *destination, const kv_move *move) {
    const kvmem_transfer_info info = kv_run(source->model.layout, destination->model.layout, move);
    caller_context_check(__FILE__, __LINE__, "a transfer from creation to destruction");
    side_check_moved(destination, source, move);
    side_check(source);
    return info;
}
