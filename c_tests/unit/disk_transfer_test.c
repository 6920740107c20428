// SPDX-License-Identifier: Apache-2.0
// Transfers between memory and a file without NIXL, byte by byte: by io_uring and by threads.
#include "harness.h"

static const kvmem_block_pair out_pairs[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}, {4, 4}};
static const kvmem_block_pair back_pairs[] = {{5, 1}, {0, 0}, {4, 6}, {4, 5}};
static const kv_move out = {out_pairs, NUM(out_pairs), 0, 0, 3};
static const kv_move back = {back_pairs, NUM(back_pairs), 1, 0, 2};

/* The default path, and each path by name; io_uring only if the kernel allows it. */
static const uint32_t paths[] = {0, KVMEM_METHOD_PREAD, KVMEM_METHOD_URING};
#define EACH_PATH(path)                                                                              \
    for (const uint32_t *path = paths, *end_ = paths + (can_test_io_uring() ? 3 : 2); path < end_; path++)

/* The default: io_uring for direct I/O, threads for the page cache. */
static uint32_t best_method(bool is_direct) {
    return is_direct && has_io_uring() ? KVMEM_METHOD_URING : KVMEM_METHOD_PREAD;
}

static void move_out_and_back(const kvmem_layout_config *memory, const kvmem_layout_config *disk,
                              uint64_t flags, uint32_t path) {
    OPENED(file_pair, pair, memory, disk, NULL, flags);
    const uint32_t expected = path != 0 ? path : best_method(file_side_is_direct(&pair.file));
    kvmem_transfer_info info = file_pair_run(&pair, true, &out, path);
    CHECK_EQ(info.method, expected);
    CHECK_EQ(info.bytes, 5 * 3 * 2 * kv_piece_size(memory));
    CHECK(info.num_requests >= 1 && info.num_requests <= info.num_moves);
    info = file_pair_run(&pair, false, &back, path);
    CHECK_EQ(info.method, expected);
    CHECK_EQ(info.num_pieces, 4 * 2 * 2);
}

static void every_pair_of_kinds(kvmem_layout_config (*config)(const kv_kind *), uint64_t flags) {
    EACH_TWO_KV_KINDS(here, there) {
        EACH_PATH(path) move_out_and_back(REF(config(here)), REF(config(there)), flags, *path);
    }
}

TEST_CALL(every_pair_of_kinds_is_written_and_read_back, every_pair_of_kinds(kv_config, KVMEM_DISK_BUFFERED))
TEST_CALL(direct_io_moves_the_same_bytes, every_pair_of_kinds(kv_aligned_config, 0))

static kvmem_layout_config odd_config(const kv_kind *kind) {
    return WITH(kv_config(kind), it.page_size = 7, it.inner_dim = 391, it.dtype_width = 1);
}

TEST_CALL(odd_sizes_use_the_page_cache, every_pair_of_kinds(odd_config, KVMEM_DISK_BUFFERED))

enum { MANY_BLOCKS = 150, MANY_LAYERS = 16 };

/* 4,800 pieces, more than fit in a list at a time. The blocks are scattered on both sides. */
static void move_many(const kv_kind *in_memory, const kv_kind *in_file, uint32_t path) {
    const kvmem_layout_config memory = WITH(kv_config(in_memory), it.num_blocks = MANY_BLOCKS,
                                            it.num_layers = MANY_LAYERS);
    const kvmem_layout_config disk = WITH(kv_config(in_file), it.num_blocks = MANY_BLOCKS,
                                          it.num_layers = MANY_LAYERS);
    kvmem_block_pair there[MANY_BLOCKS], here[MANY_BLOCKS];
    for (uint32_t i = 0; i < MANY_BLOCKS; i++) {
        there[i] = (kvmem_block_pair){i * 7 % MANY_BLOCKS, i * 11 % MANY_BLOCKS};
        here[i] = (kvmem_block_pair){i, i * 13 % MANY_BLOCKS};
    }
    const kv_move offload = {there, MANY_BLOCKS, 0, 0, MANY_LAYERS}, restore = {here, MANY_BLOCKS, 0, 0,
                                                                                MANY_LAYERS};
    OPENED(file_pair, pair, &memory, &disk, NULL, KVMEM_DISK_BUFFERED);
    OWNED(kvmem_transfer) transfer = file_pair_transfer(&pair, true,
                                                        KV_JOB(&offload, it.transfer.method = path));
    /* Counted before the run, by the run, and after another one. */
    GET(kvmem_transfer_info, planned, kvmem_transfer_get_info, transfer);
    for (int i = 0; i < 2; i++) {
        RUN(transfer);
        file_pair_check_moved(&pair, true, &offload);
        GET(kvmem_transfer_info, info, kvmem_transfer_get_info, transfer);
        CHECK_EQ(info.num_moves, planned.num_moves);
        CHECK_EQ(info.num_requests, planned.num_requests);
    }
    CHECK(planned.num_requests >= 1 && planned.num_requests <= planned.num_moves);
    const kvmem_transfer_info info = file_pair_run(&pair, false, &restore, path);
    CHECK(info.num_requests >= 1 && info.num_requests <= info.num_moves);
}

static void move_many_by_every_path(size_t in_memory, size_t in_file) {
    EACH_PATH(path) move_many(&kv_kinds[in_memory], &kv_kinds[in_file], *path);
}

TEST_CALL(many_pieces_to_blocks_of_a_file, move_many_by_every_path(2, 0))
TEST_CALL(many_pieces_to_layers_of_a_file, move_many_by_every_path(0, 1))

/* Offload, wipe, restore, as an engine does with a temporary file, with the same transfers repeatedly. */
TEST(a_temporary_file_restores_the_blocks_written_to_it) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    const kvmem_block_pair all[] = {{0, 6}, {1, 5}, {2, 4}, {3, 3}, {4, 2}, {5, 1}, {6, 0}};
    const kv_move there_and_back = {all, NUM(all), 0, 0, 3};
    OWNED(kvmem_layout) file = temporary_disk_layout(&config, NULL, 0);
    OPENED(kv_side, host, &config, NULL, 5);
    const kv_job options = kv_job_of(&there_and_back);
    OWN(kvmem_transfer, offload, kv_prepare, host.layout, file, &options);
    OWN(kvmem_transfer, restore, kv_prepare, file, host.layout, &options);
    for (int i = 0; i < 20; i++) {
        RUN(offload);
        memset(host.memory + host.starts[0], 0, kv_region_size(&config));
        RUN(restore);
        kv_side_check(&host);
    }
}

/* Different blocks in each step, with one transfer, whole and by layer. */
static void move_in_steps(uint32_t path, uint64_t flags) {
    static const kvmem_block_pair one[] = {{2, 3}}, swapped[] = {{0, 6}, {6, 0}, {1, 1}}, twice[] = {{0, 4},
                                                                                                     {1, 4}};
    const kv_move steps[] = {{out_pairs, NUM(out_pairs), 0, 0, 3}, {one, 1, 0, 0, 3},
                             {swapped, NUM(swapped), 0, 0, 3}};
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[1]);
    OPENED(file_pair, pair, &config, &config, NULL, 0);
    OWNED(kvmem_transfer) transfer =
        file_pair_transfer(&pair, true, KV_JOB(&steps[1], it.transfer.method = path,
                                               it.transfer.flags = flags));
    for (size_t i = 0; i < 2 * NUM(steps); i++) {
        const kv_move *move = &steps[i % NUM(steps)];
        kvmem_submit_options step =
            OPTIONS(kvmem_submit_options, it.pairs = move->pairs, it.num_pairs = move->num_pairs);
        const kvmem_submit_options bad = WITH(step, it.pairs = twice, it.num_pairs = NUM(twice));
        RUN_WITH(transfer, &step);
        file_pair_check_moved(&pair, true, move);
        EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_transfer_submit(transfer, &bad, ERR));
        RUN(transfer);
        file_pair_check(&pair);
    }
}

TEST(each_step_has_its_own_blocks) {
    EACH_PATH(path) {
        move_in_steps(*path, 0);
        move_in_steps(*path, KVMEM_TRANSFER_BY_LAYER);
    }
}

/* 64 MiB in pieces of 512 KiB: more requests than the kernel has at a time, and pieces that are split. */
TEST(large_transfers_are_correct) {
    kvmem_layout_config config = WITH(kv_aligned_config(&kv_kinds[1]), it.num_blocks = 32, it.num_layers = 2,
                                      it.inner_dim = 16384);
    kvmem_block_pair pairs[16];
    for (uint32_t i = 0; i < NUM(pairs); i++) pairs[i] = (kvmem_block_pair){2 * i, 31 - i};
    const kv_move move = {pairs, NUM(pairs), 0, 0, 2};
    EACH_PATH(path) {
        OPENED(file_pair, pair, &config, &config, NULL, 0);
        file_pair_run(&pair, false, &move, *path);
    }
}

/* Blocks that are scattered in memory and adjacent in the file. */
TEST(blocks_adjacent_in_the_file_are_one_request) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    const kvmem_block_pair pairs[] = {{6, 1}, {0, 2}, {4, 3}, {2, 4}, {1, 5}};
    const kv_move move = {pairs, NUM(pairs), 0, 0, 3};
    OPENED(file_pair, pair, &config, &config, NULL, 0);
    const kvmem_transfer_info info = file_pair_run(&pair, true, &move, 0);
    CHECK_EQ(info.num_moves, 5);
    CHECK_EQ(info.num_requests, 1);
}

#define MANY 3000

/* Each transfer moves one block. All are in flight at the same time, and each has one completion. */
static void start_many(const kvmem_layout *source, const kvmem_layout *destination, kvmem_queue *queue,
                       uint32_t path, kvmem_transfer **transfers) {
    for (uint32_t i = 0; i < MANY; i++) {
        const kv_move move = KV_MOVE(1, {i, MANY - 1 - i});
        kv_job options = WITH(kv_job_of(&move), it.transfer.queue = queue, it.run.user_data = i,
                                              it.transfer.method = path);
        EXPECT_OK(kv_prepare(source, destination, &options, &transfers[i], ERR));
    }
    for (uint32_t i = 0; i < MANY; i++) EXPECT_OK(kvmem_transfer_submit(transfers[i], NULL, ERR));
}

static void await_all(kvmem_queue *queue, uint64_t bytes) {
    CLEANUP(test_free) bool *seen = test_allocate(MANY);
    for (uint32_t landed = 0; landed < MANY;) {
        kvmem_completion completions[64];
        GET(size_t, count, kvmem_queue_wait, queue, PATIENCE, completions, NUM(completions));
        for (size_t i = 0; i < count; i++, landed++) {
            CHECK_EQ(completions[i].status, KVMEM_STATUS_OK);
            CHECK_EQ(completions[i].bytes, bytes);
            CHECK(completions[i].user_data < MANY && !seen[completions[i].user_data]);
            seen[completions[i].user_data] = true;
        }
    }
}

TEST(thousands_in_flight_lose_nothing) {
    kvmem_layout_config config = WITH(kv_aligned_config(&kv_kinds[0]), it.num_blocks = MANY,
                                      it.num_layers = 1, it.outer_dim = 1);
    CLEANUP(test_free) kvmem_transfer **transfers = test_allocate(MANY * sizeof(*transfers));
    OWN(kvmem_queue, queue, kvmem_queue_create);
    for (int to_file = 0; to_file < 2; to_file++) {
        EACH_PATH(path) {
            OPENED(file_pair, pair, &config, &config, NULL, 0);
            kv_side *source = file_pair_source(&pair, to_file);
            kv_side *destination = file_pair_destination(&pair, to_file);
            start_many(source->layout, destination->layout, queue, *path, transfers);
            await_all(queue, 4096);
            for (uint32_t block = 0; block < MANY; block++) {
                const kv_move move = KV_MOVE(1, {block, MANY - 1 - block});
                kv_expect_moved(destination, source, &move);
                kvmem_transfer_destroy(transfers[block]);
            }
            file_pair_check(&pair);
        }
    }
}

/* A transfer in flight keeps everything that it needs. */
TEST(handles_may_be_destroyed_during_a_transfer) {
    kvmem_layout_config config = WITH(kv_aligned_config(&kv_kinds[0]), it.num_blocks = MANY,
                                      it.num_layers = 1, it.outer_dim = 1);
    CLEANUP(test_free) kvmem_transfer **transfers = test_allocate(MANY * sizeof(*transfers));
    EACH_PATH(path) {
        kvmem_layout *file = temporary_disk_layout(&config, NULL, 0);
        OWN(kvmem_queue, queue, kvmem_queue_create);
        OPENED(kv_side, host, &config, NULL, 1);
        start_many(host.layout, file, queue, *path, transfers);
        kvmem_layout_destroy(file);
        for (uint32_t block = 0; block < MANY; block++) kvmem_transfer_destroy(transfers[block]);
        await_all(queue, 4096);
    }
}

TEST(spans_not_aligned_for_direct_io_fail) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    OPENED(file_pair, pair, &config, &config, NULL, KVMEM_DISK_DIRECT_REQUIRED);
    for (int to_file = 0; to_file < 2; to_file++)
        REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "direct I/O", kv_prepare,
               file_pair_source(&pair, to_file)->layout, file_pair_destination(&pair, to_file)->layout,
               KV_JOB(&out));
    CHECK_HAS(test_last_message(), "the same order within a block");
    CHECK_HAS(test_last_message(), "open the file, or the store that it belongs to, with KVMEM_DISK_BUFFERED");
    file_pair_check(&pair);
}

static void refuse(const kvmem_layout *source, const kvmem_layout *destination,
                   kv_job options, kvmem_status status, const char *part) {
    REFUSE(status, part, kv_prepare, source, destination, &options);
}

TEST(layouts_that_do_not_fit_fail) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    OWNED(kvmem_layout) file = temporary_disk_layout(&config, NULL, 0);
    OWNED(kvmem_layout) buffered = temporary_disk_layout(&config, NULL, KVMEM_DISK_BUFFERED);
    OPENED(kv_side, host, &config, NULL, 1);
    const kv_job usual = kv_job_of(&out);
    const kvmem_status unsupported = KVMEM_STATUS_UNSUPPORTED;
    refuse(file, buffered, usual, unsupported, "disk");
    const uint32_t strange[] = {KVMEM_METHOD_MEMCPY, KVMEM_METHOD_NIXL_STAGED, KVMEM_METHOD_CUDA_COPY,
                                KVMEM_METHOD_NIXL_SERVED};
    for (size_t i = 0; i < NUM(strange); i++)
        refuse(host.layout, file, WITH(usual, it.transfer.method = strange[i]), unsupported,
               kvmem_method_name(strange[i]));
    refuse(host.layout, file, WITH(usual, it.transfer.method = KVMEM_METHOD_NIXL), KVMEM_STATUS_INVALID_STATE,
           "agent");
    refuse(host.layout, buffered, WITH(usual, it.transfer.flags = KVMEM_TRANSFER_ZERO_COPY), unsupported,
           "page cache");
    refuse(host.layout, file, WITH(usual, it.run.notification = "done", it.run.notification_size = 4),
           KVMEM_STATUS_INVALID_ARGUMENT, "notification");
}

/* A remedy that would fail, too, is not given: with an agent, peers cannot access a file either. */
TEST(a_file_is_not_exported_with_or_without_an_agent) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    OWNED(kvmem_layout) file = temporary_disk_layout(&config, NULL, 0);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "copy its blocks to a host layout", kvmem_layout_export, file);
}

/* What no blocks change is reported when the transfer is created. */
TEST(layouts_and_flags_that_do_not_fit_fail_at_once) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    OWNED(kvmem_layout) file = temporary_disk_layout(&config, NULL, 0);
    OWNED(kvmem_layout) buffered = temporary_disk_layout(&config, NULL, KVMEM_DISK_BUFFERED);
    OPENED(kv_side, host, &config, NULL, 1);
    REFUSE(KVMEM_STATUS_INVALID_STATE, "the disk layout has no agent", kvmem_transfer_create, host.layout, file,
           REF(OPTIONS(kvmem_transfer_options, it.method = KVMEM_METHOD_NIXL)));
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "page cache", kvmem_transfer_create, buffered, host.layout,
           REF(OPTIONS(kvmem_transfer_options, it.flags = KVMEM_TRANSFER_ZERO_COPY)));
}

TEST(a_transfer_to_a_direct_file_changes_nothing_else) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    OWNED(kvmem_layout) file = temporary_disk_layout(&config, NULL, KVMEM_DISK_DIRECT_REQUIRED);
    OPENED(kv_side, host, &config, NULL, 1);
    OWN(kvmem_transfer, transfer, kv_prepare, host.layout, file,
        KV_JOB(&out, it.transfer.flags = KVMEM_TRANSFER_ZERO_COPY | KVMEM_TRANSFER_NO_HOST_BOUNCE));
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "on streams",
                   kvmem_transfer_submit_on_stream(transfer, NULL, NULL, ERR));
}

/* Every method is named, with the reason if it is not used. */
TEST(the_choice_is_explained) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    const uint64_t flags[] = {KVMEM_DISK_DIRECT_REQUIRED, KVMEM_DISK_BUFFERED};
    for (size_t i = 0; i < NUM(flags); i++) {
        OWNED(kvmem_layout) file = temporary_disk_layout(&config, NULL, flags[i]);
        OPENED(kv_side, host, &config, NULL, 1);
        OWNED(kvmem_transfer) transfer = kv_transfer(file, host.layout, &out);
        kvmem_compared_method explanation;
        const char *said = kv_explained(transfer, &explanation);
        CHECK_EQ(explanation.method, best_method(i == 0));
        CHECK_HAS(said, "io_uring");
        CHECK_HAS(said, "pread/pwrite");
        CHECK_HAS(said, "NIXL");
    }
}

/* The same through the API: the selected method is first, and each other method has its reason. */
TEST(the_compared_methods_are_returned) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    OWNED(kvmem_layout) file = temporary_disk_layout(&config, NULL, KVMEM_DISK_BUFFERED);
    OPENED(kv_side, host, &config, NULL, 1);
    OWNED(kvmem_transfer) transfer = kv_transfer(file, host.layout, &out);
    kvmem_compared_method methods[4];
    GET(size_t, count, kvmem_transfer_get_methods, transfer, methods, NUM(methods));
    CHECK_EQ(count, 3);
    CHECK_EQ(methods[0].method, KVMEM_METHOD_PREAD);
    CHECK_EQ(methods[0].choice, KVMEM_CHOICE_USED);
    for (size_t i = 1; i < count; i++) {
        CHECK(methods[i].method == KVMEM_METHOD_URING || methods[i].method == KVMEM_METHOD_NIXL);
        CHECK(methods[i].choice == KVMEM_CHOICE_NOT_USED || methods[i].choice == KVMEM_CHOICE_IMPOSSIBLE);
        CHECK(methods[i].reason[0] != 0);
        const kv_job job = WITH(kv_job_of(&out), it.transfer.method = methods[i].method);
        OWNED(kvmem_transfer) requested = NULL;
        const kvmem_status status = kv_prepare(file, host.layout, &job, &requested, ERR);
        CHECK_EQ(methods[i].choice == KVMEM_CHOICE_IMPOSSIBLE, status != KVMEM_STATUS_OK);
    }
    CHECK_EQ(transfer_choice(transfer, KVMEM_METHOD_NIXL), KVMEM_CHOICE_IMPOSSIBLE); /* it has no agent */
    /* As many as there is space for, and the number of all. */
    memset(methods, 0xaa, sizeof(methods));
    EXPECT_OK(kvmem_transfer_get_methods(transfer, methods, 1, &count, ERR));
    CHECK_EQ(count, 3);
    CHECK_EQ(methods[0].method, KVMEM_METHOD_PREAD);
    CHECK_EQ(methods[1].method, 0xaaaaaaaa);
}

static kvmem_compared_method expected_speed(const kvmem_transfer *transfer, const char *part) {
    kvmem_compared_method explanation;
    CHECK_HAS(kv_explained(transfer, &explanation), part);
    return explanation;
}

/* Equal, except for the rounding of seconds stored as a float. */
static void expect_assumed(const kvmem_transfer *transfer, uint64_t megabytes_per_second) {
    const kvmem_compared_method explanation = expected_speed(transfer, "assumed, not measured");
    CHECK_EQ(explanation.assumed, 1);
    CHECK_EQ((explanation.bytes_per_second + 500000) / 1000000, megabytes_per_second);
}

static void expect_measured(const kvmem_transfer *transfer) {
    const kvmem_compared_method explanation = expected_speed(transfer, " GB/s in earlier runs\n");
    CHECK_EQ(explanation.assumed, 0);
    CHECK(explanation.bytes_per_second > 0);
}

/* The estimate for a file comes from the durations of earlier runs of any transfer; before the first run, it
   is the default for such a file. */
TEST(the_speed_of_a_file_is_measured_by_its_transfers) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    OWNED(kvmem_layout) file = temporary_disk_layout(&config, NULL, KVMEM_DISK_BUFFERED);
    OWNED(kvmem_layout) unused = temporary_disk_layout(&config, NULL, KVMEM_DISK_BUFFERED);
    OPENED(kv_side, host, &config, NULL, 1);
    OWNED(kvmem_transfer) transfer = kv_transfer(host.layout, file, &out);
    expect_assumed(transfer, 5000);
    RUN(transfer);
    expect_measured(transfer);
    OWNED(kvmem_transfer) later = kv_transfer(host.layout, file, &out);
    expect_measured(later);
    OWNED(kvmem_transfer) elsewhere = kv_transfer(host.layout, unused, &out);
    expect_assumed(elsewhere, 5000);
}
