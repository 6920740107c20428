// SPDX-License-Identifier: Apache-2.0
// Blocks between a file and GPU memory, through a ring of page-locked memory: every byte of both, whatever
// the slots hold, and what is refused.
#include "sides.h"
#include "stance.h"

static const kvmem_block_pair scattered[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}, {4, 4}};
static const kvmem_block_pair fan_out[] = {{3, 0}, {3, 1}, {5, 6}};
static const kv_move moves[] = {
    {scattered, NUM(scattered), 0, 0, 3},
    {fan_out, NUM(fan_out), 1, 0, 2},
    {scattered, NUM(scattered), 0, 2, 1},
};
static const place device_places[] = {PLACE_DEVICE, PLACE_ADOPTED, PLACE_SPANNED, PLACE_ELASTIC};
static const place pinned_places[] = {PLACE_PINNED, PLACE_CHUNKED, PLACE_ENGINE_PINNED};

typedef struct flight {
    scratch directory;
    side device;
    file_side file;
} flight;

static void flight_open(flight *flight, place place, const kvmem_layout_config *device,
                        const kvmem_layout_config *disk, uint64_t flags) {
    flight->directory = scratch_create(temporary_directory());
    side_open(&flight->device, place, 0, device, NULL, 1);
    file_side_open(&flight->file, disk, NULL, &flight->directory, flags, 2);
}

static void flight_close(flight *flight) {
    CALL(file_side_close(&flight->file));
    side_close(&flight->device);
    scratch_remove(&flight->directory);
}

/* Page-locked memory takes part itself; to a GPU's the bytes go through some. */
static uint32_t uring_path(const flight *flight) {
    return place_is_device(flight->device.place) ? KVMEM_PATH_URING_STAGED : KVMEM_PATH_URING;
}

static uint32_t pread_path(const flight *flight) {
    return place_is_device(flight->device.place) ? KVMEM_PATH_PREAD_STAGED : KVMEM_PATH_PREAD;
}

static uint32_t best_path(const flight *flight) {
    return file_side_is_direct(&flight->file) && has_io_uring() ? uring_path(flight) : pread_path(flight);
}

static kvmem_status create(const flight *flight, bool to_file, const kvmem_transfer_options *options,
                           kvmem_transfer **transfer) {
    const kvmem_layout *device = flight->device.model.layout;
    const kvmem_layout *file = flight->file.model.layout;
    const kvmem_status status =
        kvmem_transfer_create(to_file ? device : file, to_file ? file : device, options, transfer, ERR);
    stance_check(__FILE__, __LINE__, "kvmem_transfer_create");
    return status;
}

/* Moves one way and looks at every byte of both sides. */
static void run(flight *flight, bool to_file, const kv_move *move, uint32_t path, uint64_t staging_size) {
    kv_side *source = to_file ? &flight->device.model : &flight->file.model;
    kv_side *destination = to_file ? &flight->file.model : &flight->device.model;
    kvmem_transfer_options options = WITH(kv_transfer_options(move), it.path = path,
                                          it.staging_size = staging_size);
    OWNED(kvmem_transfer) transfer = NULL;
    CHECK_EQ(create(flight, to_file, &options, &transfer), KVMEM_STATUS_OK);
    GET(kvmem_transfer_info, info, kvmem_transfer_get_info, transfer);
    CHECK_EQ(info.path, path != 0 ? path : best_path(flight));
    CHECK(info.num_requests > 0);
    for (int again = 0; again < 2; again++) {
        RUN(transfer);
        EXPECT_OK(kvmem_transfer_poll(transfer, ERR));
        kv_expect_moved(destination, source, move);
        side_check(&flight->device);
        file_side_check(&flight->file);
    }
}

static void out_and_back(flight *flight, const kv_move *move, uint64_t staging_size) {
    const uint32_t paths[] = {0, pread_path(flight), uring_path(flight)};
    for (size_t i = 0; i < (can_test_io_uring() ? 3 : 2); i++) {
        side_refill(&flight->device, 50 + (uint32_t)i);
        run(flight, true, move, paths[i], staging_size);
        side_refill(&flight->device, 90 + (uint32_t)i);
        run(flight, false, move, paths[i], staging_size);
    }
}

/* Kinds and moves take turns; the slots hold one piece each, so that most copies go round the ring. */
static void every_kind_from_and_to(const place *places, size_t num_places,
                                   kvmem_layout_config (*config)(const kv_kind *), uint64_t flags,
                                   uint64_t staging_size) {
    retain_device(0);
    for (size_t turn = 0; turn < num_places * KV_NUM_KINDS; turn++) {
        const kvmem_layout_config device = config(&kv_kinds[turn % KV_NUM_KINDS]);
        const kvmem_layout_config disk = config(&kv_kinds[(turn + turn / KV_NUM_KINDS) % KV_NUM_KINDS]);
        flight flight;
        flight_open(&flight, places[turn / KV_NUM_KINDS], &device, &disk, flags);
        out_and_back(&flight, &moves[turn % NUM(moves)], staging_size);
        flight_close(&flight);
    }
    release_device(0);
}

TEST(buffered_files_from_and_to_every_place) {
    every_kind_from_and_to(device_places, NUM(device_places), side_config, KVMEM_DISK_BUFFERED, 4 * 480);
}

TEST(direct_files_from_and_to_every_place) {
    every_kind_from_and_to(device_places, NUM(device_places), kv_aligned_config, 0, 4 * 4096);
}

TEST(files_from_and_to_pinned_memory) {
    every_kind_from_and_to(pinned_places, NUM(pinned_places), side_config, KVMEM_DISK_BUFFERED, 0);
    every_kind_from_and_to(pinned_places, NUM(pinned_places), kv_aligned_config, 0, 0);
}

/* Pieces of 512 KiB through slots that hold one and a half. */
TEST(pieces_that_are_cut_are_exact_too) {
    kvmem_layout_config config = WITH(kv_aligned_config(&kv_kinds[1]), it.num_blocks = 16, it.num_layers = 2,
                                      it.inner_dim = 16384);
    static const kvmem_block_pair pairs[] = {{0, 8}, {1, 9}, {2, 10}, {3, 11}, {9, 0}, {15, 1}};
    const kv_move move = {pairs, NUM(pairs), 0, 0, 2};
    OPENED(flight, flight, PLACE_DEVICE, &config, &config, 0);
    out_and_back(&flight, &move, 4 * 768 * 1024);
    out_and_back(&flight, &move, 0);
}

static void refuse(const flight *flight, const kvmem_transfer_options *options, kvmem_status status,
                   const char *part) {
    for (int to_file = 0; to_file < 2; to_file++) {
        kvmem_transfer *transfer = (kvmem_transfer *)&transfer;
        CHECK_EQ(create(flight, to_file, options, &transfer), status);
        CHECK_HAS(test_last_message(), part);
        CHECK(transfer == NULL);
    }
}

TEST(what_does_not_fit_is_refused) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[1]);
    OPENED(flight, flight, PLACE_DEVICE, &config, &config, 0);
    kvmem_transfer_options options = WITH(kv_transfer_options(&moves[0]), it.staging_size = 4 * 4096 - 1);
    refuse(&flight, &options, KVMEM_STATUS_INVALID_ARGUMENT, "staging_size is 16383 bytes");
    refuse(&flight, &options, KVMEM_STATUS_INVALID_ARGUMENT, "a piece of 4096 bytes");
    options.staging_size = UINT64_MAX;
    refuse(&flight, &options, KVMEM_STATUS_INVALID_ARGUMENT, "");
    options.staging_size = 0;
    options.flags = KVMEM_TRANSFER_NO_HOST_BOUNCE;
    refuse(&flight, &options, KVMEM_STATUS_UNSUPPORTED, "host memory");
    options.flags = KVMEM_TRANSFER_ZERO_COPY;
    refuse(&flight, &options, KVMEM_STATUS_UNSUPPORTED, "host memory");
    options.flags = 0;
    const uint32_t strange[] = {KVMEM_PATH_URING, KVMEM_PATH_PREAD, KVMEM_PATH_NIXL_FILE_READ,
                                KVMEM_PATH_CUDA_COPY};
    for (size_t i = 0; i < NUM(strange); i++) {
        options.path = strange[i];
        refuse(&flight, &options, KVMEM_STATUS_UNSUPPORTED, kvmem_path_name(strange[i]));
    }
    side_check(&flight.device);
    file_side_check(&flight.file);
}

/* GDS is NIXL's, and here no agent knows either side: that is said wherever it would have mattered. */
TEST(why_it_is_not_gds_is_told) {
    const char *const reason = "no agent with a GDS backend knows both layouts";
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[1]);
    OPENED(flight, flight, PLACE_DEVICE, &config, &config, 0);
    kvmem_transfer_options options = kv_transfer_options(&moves[0]);
    options.flags = KVMEM_TRANSFER_NO_HOST_BOUNCE;
    refuse(&flight, &options, KVMEM_STATUS_UNSUPPORTED, reason);
    options.flags = 0;
    for (int to_file = 0; to_file < 2; to_file++) {
        const uint32_t path = to_file ? KVMEM_PATH_NIXL_FILE_WRITE : KVMEM_PATH_NIXL_FILE_READ;
        OWNED(kvmem_transfer) transfer = NULL;
        options.path = path;
        CHECK_EQ(create(&flight, to_file, &options, &transfer), KVMEM_STATUS_UNSUPPORTED);
        CHECK_HAS(test_last_message(), reason);
        CHECK_EQ(create(&flight, !to_file, &options, &transfer), KVMEM_STATUS_UNSUPPORTED);
        CHECK_HAS(test_last_message(), "is not possible between these layouts");
        options.path = 0;
        CHECK_EQ(create(&flight, to_file, &options, &transfer), KVMEM_STATUS_OK);
        OWN(kvmem_blob, text, kvmem_transfer_explain, transfer, NULL);
        char said[2048] = {0};
        CHECK(kvmem_blob_size(text) < sizeof(said));
        memcpy(said, kvmem_blob_data(text), kvmem_blob_size(text));
        char line[256];
        snprintf(line, sizeof(line), "%s: not used: %s", kvmem_path_name(path), reason);
        CHECK_HAS(said, line);
    }
}

/* Blocks past the seventh have no memory: what touches them does not start, and what does not is as ever. */
TEST(elastic_blocks_without_memory_are_refused) {
    static const kvmem_block_pair beyond[] = {{1, 2}, {9, 3}};
    static const kvmem_block_pair back[] = {{2, 1}, {3, 13}};
    const kvmem_layout_config disk = kv_aligned_config(&kv_kinds[2]);
    const kvmem_layout_config device = kv_aligned_config(&kv_kinds[0]);
    RETAIN_DEVICE(0);
    OPENED(flight, flight, PLACE_ELASTIC_PARTLY, &device, &disk, 0);
    for (int to_file = 0; to_file < 2; to_file++) {
        const kv_move move = {to_file ? beyond : back, 2, 0, 0, 3};
        const kvmem_transfer_options options = kv_transfer_options(&move);
        kvmem_transfer *transfer = NULL;
        CHECK_EQ(create(&flight, to_file, &options, &transfer), KVMEM_STATUS_OK);
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "not committed", kvmem_transfer_submit(transfer, ERR));
        EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_poll(transfer, ERR));
        CALL(kvmem_transfer_destroy(transfer));
        side_check(&flight.device);
        file_side_check(&flight.file);
    }
    out_and_back(&flight, &moves[0], 4 * 4096);
}

TEST(spans_that_direct_io_does_not_take_are_refused) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    OPENED(flight, flight, PLACE_DEVICE, &config, &config, KVMEM_DISK_DIRECT_REQUIRED);
    const kvmem_transfer_options options = kv_transfer_options(&moves[0]);
    refuse(&flight, &options, KVMEM_STATUS_INVALID_ARGUMENT, "direct I/O");
}

TEST(a_file_cut_short_is_an_error) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    const uint64_t modes[] = {0, KVMEM_DISK_BUFFERED};
    for (size_t i = 0; i < NUM(modes); i++) {
        OPENED(flight, flight, PLACE_DEVICE, &config, &config, modes[i]);
        kvmem_transfer_options options = WITH(kv_transfer_options(&moves[0]), it.staging_size = 8 * 4096);
        OWNED(kvmem_transfer) transfer = NULL;
        CHECK_EQ(create(&flight, false, &options, &transfer), KVMEM_STATUS_OK);
        file_side_truncate(&flight.file, flight.file.model.size / 2);
        EXPECT_OK(kvmem_transfer_submit(transfer, ERR));
        EXPECT_MESSAGE(KVMEM_STATUS_IO, "truncated", kvmem_transfer_wait(transfer, PATIENCE, ERR));
    }
}

#define MANY 500

/* Many small transfers share the ring; all are in flight at once. */
TEST(hundreds_in_flight_lose_nothing) {
    kvmem_layout_config config = WITH(kv_aligned_config(&kv_kinds[0]), it.num_blocks = MANY,
                                      it.num_layers = 1, it.outer_dim = 1);
    static kvmem_transfer *transfers[MANY];
    OWN(kvmem_queue, queue, kvmem_queue_create);
    OPENED(flight, flight, PLACE_DEVICE, &config, &config, 0);
    for (int to_file = 0; to_file < 2; to_file++) {
        kv_side *source = to_file ? &flight.device.model : &flight.file.model;
        kv_side *destination = to_file ? &flight.file.model : &flight.device.model;
        side_refill(&flight.device, 5);
        for (uint32_t i = 0; i < MANY; i++) {
            const kvmem_block_pair pair = {i, MANY - 1 - i};
            const kv_move move = {&pair, 1, 0, 0, 1};
            kvmem_transfer_options options = WITH(kv_transfer_options(&move), it.queue = queue,
                                                  it.user_data = i);
            CHECK_EQ(create(&flight, to_file, &options, &transfers[i]), KVMEM_STATUS_OK);
            kv_expect_moved(destination, source, &move);
        }
        for (uint32_t i = 0; i < MANY; i++) {
            EXPECT_OK(kvmem_transfer_submit(transfers[i], ERR));
        }
        for (size_t landed = 0, count = 0; landed < MANY; landed += count) {
            kvmem_completion completions[64];
            EXPECT_OK(kvmem_queue_wait(queue, PATIENCE, completions, NUM(completions), &count, ERR));
            for (size_t i = 0; i < count; i++) {
                CHECK_EQ(completions[i].status, KVMEM_STATUS_OK);
            }
        }
        for (uint32_t i = 0; i < MANY; i++) {
            CALL(kvmem_transfer_destroy(transfers[i]));
        }
        side_check(&flight.device);
        file_side_check(&flight.file);
    }
}
