// SPDX-License-Identifier: Apache-2.0
// When the end of a run on a GPU is reported, kvmem has no references to the caller's regions for it.
#include "gpu_flight.h"
#include "caller_context.h"

#define RUNS 24

static uint64_t references(const kv_side *side) {
    uint64_t sum = 0;
    for (size_t i = 0; i < side->num_regions; i++) {
        GET(kvmem_region_holders, holders, kvmem_region_get_holders, side->regions[i]);
        sum += holders.references;
    }
    return sum;
}

/* One run between new layouts, whose end is reported by the queue. */
static void run_once(const flight *flight, uint32_t method, uint64_t flags, bool cancel) {
    const kv_side *sides[] = {&flight->source.model, &flight->destination.model};
    const uint64_t before[] = {references(sides[0]), references(sides[1])};
    kvmem_layout *layouts[NUM(sides)];
    for (size_t i = 0; i < NUM(sides); i++)
        layouts[i] = regions_lay_out(&sides[i]->config, sides[i]->regions, sides[i]->num_regions, NULL);
    kv_job options = WITH(flight_options(flight), it.transfer.method = method, KV_SET_FLAGS(flags));
    GET(kvmem_transfer *, transfer, kv_prepare, layouts[0], layouts[1], &options);
    EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
    if (cancel) EXPECT_OK(kvmem_transfer_cancel(transfer, ERR));
    CALL(kvmem_transfer_destroy(transfer));
    CALL(kvmem_layout_destroy(layouts[0]));
    CALL(kvmem_layout_destroy(layouts[1]));
    const kvmem_status status = next_completion(flight->queue).status;
    CHECK(status == KVMEM_STATUS_OK || (cancel && status == KVMEM_STATUS_CANCELLED));
    CHECK_EQ(references(sides[0]), before[0]);
    CHECK_EQ(references(sides[1]), before[1]);
}

static void check_every_end(place from, place to, const uint32_t *methods, size_t num_paths) {
    static const uint64_t flags[] = {0, KVMEM_TRANSFER_BY_LAYER, KV_VERIFY, KV_CHECKSUM};
    OPENED(flight, flight, .from = from, .to = to, .file_flags = KVMEM_DISK_BUFFERED, .has_queue = true);
    for (size_t i = 0; i < RUNS * num_paths; i++)
        run_once(&flight, methods[i % num_paths], flags[i % NUM(flags)], i % 4 == 3);
}

TEST(of_copies_by_the_gpu) {
    static const uint32_t methods[] = {0, KVMEM_METHOD_CUDA_COPY, KVMEM_METHOD_CUDA_KERNEL,
                                       KVMEM_METHOD_CUDA_STAGED};
    static const place places[] = {PLACE_SYSTEM, PLACE_PINNED};
    for (size_t i = 0; i < NUM(places); i++) {
        const size_t num_paths = places[i] == PLACE_PINNED ? NUM(methods) : 2;
        check_every_end(places[i], PLACE_DEVICE, methods, num_paths);
        check_every_end(PLACE_DEVICE, places[i], methods, num_paths);
    }
}

TEST(of_transfers_with_a_file) {
    static const uint32_t methods[] = {0, KVMEM_METHOD_PREAD};
    check_every_end(PLACE_FILE, PLACE_DEVICE, methods, NUM(methods));
    check_every_end(PLACE_DEVICE, PLACE_FILE, methods, NUM(methods));
}
