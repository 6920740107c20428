// SPDX-License-Identifier: Apache-2.0
// Once the end of a run on a GPU is reported, nothing in the library holds the caller's regions for it.
#include "sides.h"
#include "stance.h"

#define RUNS 24

static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}, {1, 6}};
static const kv_move move = {pairs, NUM(pairs), 0, 0, 3};

static uint64_t references(const kv_side *side) {
    uint64_t sum = 0;
    for (size_t i = 0; i < side->num_regions; i++) {
        GET(kvmem_region_holders, holders, kvmem_region_get_holders, side->regions[i]);
        sum += holders.references;
    }
    return sum;
}

/* One run between layouts that are made for it, whose end is known from the queue. */
static void run_once(kv_side *const *sides, kvmem_queue *queue, uint32_t path, uint64_t flags, bool cancel) {
    const uint64_t before[] = {references(sides[0]), references(sides[1])};
    kvmem_layout *layouts[2];
    for (int side = 0; side < 2; side++) {
        layouts[side] =
            regions_lay_out(&sides[side]->config, sides[side]->regions, sides[side]->num_regions, NULL);
    }
    kvmem_transfer_options options = WITH(kv_transfer_options(&move), it.path = path, it.flags = flags,
                                          it.queue = queue);
    GET(kvmem_transfer *, transfer, kvmem_transfer_create, layouts[0], layouts[1], &options);
    EXPECT_OK(kvmem_transfer_submit(transfer, ERR));
    if (cancel) {
        EXPECT_OK(kvmem_transfer_cancel(transfer, ERR));
    }
    CALL(kvmem_transfer_destroy(transfer));
    CALL(kvmem_layout_destroy(layouts[0]));
    CALL(kvmem_layout_destroy(layouts[1]));
    const kvmem_status status = next_completion(queue).status;
    CHECK(status == KVMEM_STATUS_OK || (cancel && status == KVMEM_STATUS_CANCELLED));
    CHECK_EQ(references(sides[0]), before[0]);
    CHECK_EQ(references(sides[1]), before[1]);
}

static void every_end_holds_nothing(kv_side *const *sides, const uint32_t *paths, size_t num_paths) {
    static const uint64_t flags[] = {0, KVMEM_TRANSFER_BY_LAYER, KVMEM_TRANSFER_VERIFY};
    OWN(kvmem_queue, queue, kvmem_queue_create);
    for (size_t i = 0; i < RUNS * num_paths; i++) {
        run_once(sides, queue, paths[i % num_paths], flags[i % NUM(flags)], i % 4 == 3);
    }
}

TEST(of_copies_by_the_gpu) {
    static const uint32_t paths[] = {0, KVMEM_PATH_CUDA_COPY, KVMEM_PATH_CUDA_KERNEL, KVMEM_PATH_CUDA_STAGED};
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    static const place places[] = {PLACE_SYSTEM, PLACE_PINNED};
    for (size_t i = 0; i < NUM(places); i++) {
        OPENED(side, host, places[i], 0, &config, NULL, 1);
        OPENED(side, device, PLACE_DEVICE, 0, &config, NULL, 2);
        const size_t num_paths = places[i] == PLACE_PINNED ? NUM(paths) : 2;
        every_end_holds_nothing((kv_side *const[]){&host.model, &device.model}, paths, num_paths);
        every_end_holds_nothing((kv_side *const[]){&device.model, &host.model}, paths, num_paths);
    }
}

TEST(of_transfers_with_a_file) {
    static const uint32_t paths[] = {0, KVMEM_PATH_PREAD_STAGED};
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    CLEANUP(scratch_remove) scratch directory = scratch_create(temporary_directory());
    OPENED(side, device, PLACE_DEVICE, 0, &config, NULL, 1);
    OPENED(file_side, file, &config, NULL, &directory, KVMEM_DISK_BUFFERED, 2);
    every_end_holds_nothing((kv_side *const[]){&file.model, &device.model}, paths, NUM(paths));
    every_end_holds_nothing((kv_side *const[]){&device.model, &file.model}, paths, NUM(paths));
}
