// SPDX-License-Identifier: Apache-2.0
// Transfers between a file and GPU memory through a ring of page-locked memory, with slots of several sizes,
// compared byte by byte; transfers that cannot be created.
#include "gpu_flight.h"
#include "caller_context.h"

static const kvmem_block_pair scattered[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}, {4, 4}};
static const kvmem_block_pair fan_out[] = {{3, 0}, {3, 1}, {5, 6}};
static const kv_move moves[] = {
    {scattered, NUM(scattered), 0, 0, 3},
    {fan_out, NUM(fan_out), 1, 0, 2},
    {scattered, NUM(scattered), 0, 2, 1},
};
static const place device_places[] = {PLACE_DEVICE, PLACE_ADOPTED, PLACE_SPANNED, PLACE_ELASTIC};
static const place pinned_places[] = {PLACE_PINNED, PLACE_CHUNKED, PLACE_ENGINE_PINNED};

static uint32_t best_method(flight *flight) {
    const bool is_direct = file_side_is_direct(&flight_file(flight)->file);
    return is_direct && has_io_uring() ? KVMEM_METHOD_URING : KVMEM_METHOD_PREAD;
}

static void run_twice(flight *flight, uint32_t method, uint64_t staging_size) {
    flight_create(flight, it.transfer.method = method, it.transfer.staging_size = staging_size);
    CHECK_EQ(flight_info(flight).method, method != 0 ? method : best_method(flight));
    CHECK(flight_info(flight).num_requests > 0);
    for (int again = 0; again < 2; again++) {
        flight_run(flight);
        EXPECT_OK(kvmem_transfer_poll(flight->transfer, ERR));
    }
}

static void run_in_both_directions(flight *flight, uint64_t staging_size) {
    const uint32_t methods[] = {0, KVMEM_METHOD_PREAD, KVMEM_METHOD_URING};
    for (uint32_t i = 0; i < (can_test_io_uring() ? 6 : 4); i++) {
        flight_refill(flight, 50 + i);
        run_twice(flight, methods[i / 2], staging_size);
        flight_reverse(flight);
    }
}

/* Alternates kinds and moves. With slots of one piece, most copies wrap around the ring. */
static void every_kind_from_and_to(const place *places, size_t num_places,
                                   kvmem_layout_config (*config)(const kv_kind *), uint64_t flags,
                                   uint64_t staging_size) {
    RETAIN_DEVICE(0);
    for (size_t i = 0; i < num_places * KV_NUM_KINDS; i++) {
        const kvmem_layout_config memory = config(&kv_kinds[i % KV_NUM_KINDS]);
        const kvmem_layout_config disk = config(&kv_kinds[(i + i / KV_NUM_KINDS) % KV_NUM_KINDS]);
        OPENED(flight, flight, .from = places[i / KV_NUM_KINDS], .to = PLACE_FILE, .source = &memory,
               .destination = &disk, .file_flags = flags, .move = &moves[i % NUM(moves)]);
        run_in_both_directions(&flight, staging_size);
    }
}

TEST_CALL(buffered_files_from_and_to_every_place,
          every_kind_from_and_to(device_places, NUM(device_places), side_config, KVMEM_DISK_BUFFERED,
                                 4 * 480))
TEST_CALL(direct_files_from_and_to_every_place,
          every_kind_from_and_to(device_places, NUM(device_places), kv_aligned_config, 0, 4 * 4096))

TEST(files_from_and_to_pinned_memory) {
    every_kind_from_and_to(pinned_places, NUM(pinned_places), side_config, KVMEM_DISK_BUFFERED, 0);
    every_kind_from_and_to(pinned_places, NUM(pinned_places), kv_aligned_config, 0, 0);
}

TEST(gpudirect_storage_without_an_agent_is_impossible_whatever_is_requested) {
    RETAIN_DEVICE(0);
    OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_FILE, .file_flags = KVMEM_DISK_BUFFERED);
    const uint32_t methods[] = {0, KVMEM_METHOD_PREAD};
    for (size_t i = 0; i < NUM(methods); i++) {
        flight_create(&flight, it.transfer.method = methods[i]);
        CHECK_EQ(transfer_choice(flight.transfer, KVMEM_METHOD_NIXL), KVMEM_CHOICE_IMPOSSIBLE);
    }
    flight_refuse(&flight, KVMEM_STATUS_UNSUPPORTED, "no agent with a GDS backend", it.transfer.method = KVMEM_METHOD_NIXL);
}

/* Pieces of 512 KiB, slots of 768 KiB. */
TEST(pieces_are_split_between_slots) {
    const kv_move move = KV_MOVE(2, {0, 8}, {1, 9}, {2, 10}, {3, 11}, {9, 0}, {15, 1});
    const kvmem_layout_config config = WITH(kv_aligned_config(&kv_kinds[1]), it.num_blocks = 16,
                                            it.num_layers = 2, it.inner_dim = 16384);
    OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_FILE, .source = &config, .move = &move);
    run_in_both_directions(&flight, 4 * 768 * 1024);
    run_in_both_directions(&flight, 0);
}

/* To the file and from it. */
#define REFUSE_BOTH_DIRECTIONS(flight, status, part, ...)                                                  \
    do {                                                                                             \
        for (int direction = 0; direction < 2; direction++) {                                                          \
            flight_refuse(flight, status, part, __VA_ARGS__);                                        \
            flight_reverse(flight);                                                               \
        }                                                                                            \
    } while (0)

TEST(invalid_options_are_rejected) {
    static const uint64_t unsupported[] = {KVMEM_TRANSFER_NO_HOST_BOUNCE, KVMEM_TRANSFER_ZERO_COPY};
    static const uint32_t others[] = {KVMEM_METHOD_MEMCPY, KVMEM_METHOD_NIXL_STAGED, KVMEM_METHOD_NIXL_SERVED,
                                      KVMEM_METHOD_CUDA_COPY};
    const kvmem_status invalid = KVMEM_STATUS_INVALID_ARGUMENT;
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[1]);
    OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_FILE, .source = &config, .move = &moves[0]);
    REFUSE_BOTH_DIRECTIONS(&flight, invalid, "staging_size is 16383 bytes",
                           it.transfer.staging_size = 4 * 4096 - 1);
    REFUSE_BOTH_DIRECTIONS(&flight, invalid, "a piece of 4096 bytes",
                           it.transfer.staging_size = 4 * 4096 - 1);
    REFUSE_BOTH_DIRECTIONS(&flight, invalid, "", it.transfer.staging_size = UINT64_MAX);
    for (size_t i = 0; i < NUM(unsupported); i++)
        REFUSE_BOTH_DIRECTIONS(&flight, KVMEM_STATUS_UNSUPPORTED, "host memory",
                               it.transfer.flags = unsupported[i]);
    for (size_t i = 0; i < NUM(others); i++)
        REFUSE_BOTH_DIRECTIONS(&flight, KVMEM_STATUS_UNSUPPORTED, kvmem_method_name(others[i]),
                         it.transfer.method = others[i]);
    side_check(&flight.source);
    side_check(&flight.destination);
}

/* GPUDirect Storage needs an agent with which both sides are registered. */
TEST(errors_and_explanations_contain_why_gds_is_not_used) {
    const char *const reason = "no agent with a GDS backend knows both layouts";
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[1]);
    OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_FILE, .source = &config, .move = &moves[0]);
    REFUSE_BOTH_DIRECTIONS(&flight, KVMEM_STATUS_UNSUPPORTED, reason,
                           it.transfer.flags = KVMEM_TRANSFER_NO_HOST_BOUNCE);
    for (int i = 0; i < 2; i++) { /* to the file, then from it */
        flight_refuse(&flight, KVMEM_STATUS_UNSUPPORTED, reason, it.transfer.method = KVMEM_METHOD_NIXL);
        flight_create(&flight, it.transfer.method = 0);
        flight_explain(&flight, TEXT("%s: not used: %s", kvmem_method_name(KVMEM_METHOD_NIXL), reason));
        flight_reverse(&flight);
    }
}

/* Only the first seven blocks have memory. Transfers with other blocks fail, transfers without them
   succeed. */
TEST(elastic_blocks_without_memory_are_rejected) {
    static const kvmem_block_pair out[] = {{1, 2}, {9, 3}}, back[] = {{2, 1}, {3, 13}};
    static const kv_move beyond[] = {{out, NUM(out), 0, 0, 3}, {back, NUM(back), 0, 0, 3}};
    const kvmem_layout_config disk = kv_aligned_config(&kv_kinds[2]);
    const kvmem_layout_config device = kv_aligned_config(&kv_kinds[0]);
    RETAIN_DEVICE(0);
    OPENED(flight, flight, .from = PLACE_ELASTIC_PARTLY, .to = PLACE_FILE, .source = &device,
           .destination = &disk);
    for (size_t i = 0; i < NUM(beyond); i++) {
        flight.move = &beyond[i];
        flight_create(&flight, it.transfer.method = 0);
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "not committed",
                       kvmem_transfer_submit(flight.transfer, NULL, ERR));
        EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_poll(flight.transfer, ERR));
        side_check(&flight.source);
        side_check(&flight.destination);
        flight_reverse(&flight);
    }
    flight.move = &moves[0];
    run_in_both_directions(&flight, 4 * 4096);
}

TEST(unaligned_blocks_are_rejected_if_direct_io_is_required) {
    OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_FILE, .file_flags = KVMEM_DISK_DIRECT_REQUIRED,
           .move = &moves[0]);
    REFUSE_BOTH_DIRECTIONS(&flight, KVMEM_STATUS_INVALID_ARGUMENT, "direct I/O", it.transfer.method = 0);
}

TEST(reading_from_a_truncated_file_fails) {
    static const uint64_t modes[] = {0, KVMEM_DISK_BUFFERED};
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    for (size_t i = 0; i < NUM(modes); i++) {
        OPENED(flight, flight, .from = PLACE_FILE, .to = PLACE_DEVICE, .source = &config,
               .file_flags = modes[i], .move = &moves[0]);
        flight_create(&flight, it.transfer.staging_size = 8 * 4096);
        file_side_truncate(&flight.source.file, flight.source.model.size / 2);
        flight_submit(&flight);
        flight_expect_end(&flight, KVMEM_STATUS_IO, "truncated");
    }
}

#define MANY 500

/* Many small transfers share the ring, and all are in flight together. */
TEST(hundreds_in_flight_are_each_reported_once) {
    const kvmem_layout_config config = WITH(kv_aligned_config(&kv_kinds[0]), it.num_blocks = MANY,
                                            it.num_layers = 1, it.outer_dim = 1);
    OPENED(flight, flight, .from = PLACE_DEVICE, .to = PLACE_FILE, .source = &config, .has_queue = true);
    for (int direction = 0; direction < 2; direction++) {
        static kvmem_transfer *transfers[MANY];
        flight_refill(&flight, 5);
        for (uint32_t i = 0; i < MANY; i++) {
            const kvmem_block_pair pair = {i, MANY - 1 - i};
            const kv_move move = {&pair, 1, 0, 0, 1};
            flight.move = &move;
            transfers[i] = flight_create_another(&flight, it.run.user_data = i);
            kv_expect_moved(&flight.destination.model, &flight.source.model, &move);
        }
        for (uint32_t i = 0; i < MANY; i++) EXPECT_OK(kvmem_transfer_submit(transfers[i], NULL, ERR));
        expect_each_once(flight.queue, MANY, kv_piece_size(&config));
        for (uint32_t i = 0; i < MANY; i++) CALL(kvmem_transfer_destroy(transfers[i]));
        side_check(&flight.source);
        side_check(&flight.destination);
        flight_reverse(&flight);
    }
}
