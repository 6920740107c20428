// SPDX-License-Identifier: Apache-2.0
// When NIXL's real GDS plugin is taken and when not, over stand-ins for the driver and for cuFile that work,
// bounce, fail, or get a byte wrong. Whether GPUDirect Storage itself works, no stand-in can tell.
#include "file_flight.h"
#include "stance.h"

static const kvmem_block_pair small_pairs[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}, {4, 4}};
static const kv_move small = {small_pairs, NUM(small_pairs), 0, 0, 3};
static const kvmem_block_pair large_pairs[] = {{0, 8}, {1, 9}, {15, 1}};
static const kv_move large = {large_pairs, NUM(large_pairs), 0, 0, 2};

static void open_flight(file_flight *flight, const kv_move *move, uint64_t flags, const char *compatibility,
                        const char *fault) {
    CHECK_EQ(setenv("CUFILE_ALLOW_COMPAT_MODE", compatibility, 1), 0);
    CHECK_EQ(setenv("KVMEM_SIM_CUFILE", fault, 1), 0);
    kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    if (move == &large) { /* blocks of 2 MiB */
        config.num_blocks = 16;
        config.num_layers = 2;
        config.inner_dim = 16384;
    }
    GET(kvmem_agent *, agent, kvmem_agent_create, "storage", NULL);
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    EXPECT_OK(kvmem_agent_create_backend(agent, "GDS_MT", NULL, 0, ERR));
    file_flight_open(flight, move, agent, PLACE_DEVICE, &config, flags);
}

static bool is_nixl(uint32_t path) {
    return path == KVMEM_PATH_NIXL_FILE_WRITE || path == KVMEM_PATH_NIXL_FILE_READ;
}

/* Both ways, by NIXL or by none of its paths, every byte of both sides; what is explained has that in it. */
static void expect_moved(file_flight *flight, bool is_asked, uint64_t flags, bool by_nixl,
                         const char *explained) {
    for (int to_file = 1; to_file >= 0; to_file--) {
        kvmem_transfer *transfer = NULL;
        const uint32_t path = is_asked ? file_flight_nixl_path(to_file) : 0;
        CHECK_EQ(file_flight_create(flight, to_file, path, flags, &transfer), KVMEM_STATUS_OK);
        GET(kvmem_transfer_info, info, kvmem_transfer_get_info, transfer);
        CHECK_EQ(is_nixl(info.path), by_nixl);
        GET(kvmem_blob *, text, kvmem_transfer_explain, transfer, NULL);
        char said[2048] = {0};
        CHECK(kvmem_blob_size(text) < sizeof(said));
        memcpy(said, kvmem_blob_data(text), kvmem_blob_size(text));
        CALL(kvmem_blob_destroy(text));
        CHECK_HAS(said, explained);
        file_flight_run(flight, to_file, transfer);
    }
}

static void expect_refused(file_flight *flight, bool is_asked, uint64_t flags, const char *reason) {
    for (int to_file = 0; to_file < 2; to_file++) {
        kvmem_transfer *transfer = (kvmem_transfer *)&transfer;
        const uint32_t path = is_asked ? file_flight_nixl_path(to_file) : 0;
        CHECK_EQ(file_flight_create(flight, to_file, path, flags, &transfer), KVMEM_STATUS_UNSUPPORTED);
        CHECK_HAS(test_last_message(), reason);
        CHECK(transfer == NULL);
    }
    side_check(&flight->device);
    file_side_check(&flight->file);
}

/* Without direct I/O nothing goes by GDS: the transfer says so, and this part of the case is skipped. */
static bool has_direct_io(file_flight *flight) {
    if (file_side_is_direct(&flight->file)) {
        return true;
    }
    expect_refused(flight, false, KVMEM_TRANSFER_NO_HOST_BOUNCE, "the file is buffered");
    SKIP_PART("direct I/O: the file system of %s has none", temporary_directory());
    return false;
}

TEST(what_cannot_bounce_and_works_is_taken) {
    file_flight flight;
    open_flight(&flight, &large, 0, "false", "");
    if (!has_direct_io(&flight)) {
        file_flight_close(&flight);
        return;
    }
    expect_moved(&flight, false, 0, true, "its bytes pass through host memory");
    expect_moved(&flight, true, 0, true, "");
    expect_moved(&flight, false, KVMEM_TRANSFER_ZERO_COPY, true, "");
    file_flight_close(&flight);
    open_flight(&flight, &small, 0, "false", "");
    expect_moved(&flight, false, 0, false, "moves of 40960 bytes are as many requests");
    expect_moved(&flight, false, KVMEM_TRANSFER_NO_HOST_BOUNCE, true, "");
    expect_moved(&flight, true, 0, true, "");
    file_flight_close(&flight);
}

TEST(what_may_bounce_is_taken_only_where_it_is_asked_for) {
    static const char *const doubt = "cuFile is free to pass bytes through host memory";
    file_flight flight;
    open_flight(&flight, &large, 0, "true", "absent");
    if (has_direct_io(&flight)) {
        expect_moved(&flight, false, 0, false, doubt);
        expect_moved(&flight, true, 0, true, doubt);
        expect_refused(&flight, false, KVMEM_TRANSFER_NO_HOST_BOUNCE, doubt);
        expect_refused(&flight, true, KVMEM_TRANSFER_ZERO_COPY, doubt);
    }
    file_flight_close(&flight);
    open_flight(&flight, &large, KVMEM_DISK_BUFFERED, "false", "");
    expect_moved(&flight, false, 0, false, "the file is buffered");
    expect_moved(&flight, true, 0, true, "the file is buffered");
    expect_refused(&flight, true, KVMEM_TRANSFER_NO_HOST_BOUNCE, "the file is buffered");
    file_flight_close(&flight);
}

/* It is tried out before a byte of the user's moves. */
TEST(what_does_not_work_is_not_taken) {
    static const struct {
        const char *fault;
        const char *reason;
    } faults[] = {
        {"absent", "it was tried out: NIXL file write: "},
        {"fails", "it was tried out: NIXL file write: "},
        {"wrong-write", "it was tried out: NIXL file write: other bytes arrived"},
        {"wrong-read", "it was tried out: NIXL file read: other bytes arrived"},
    };
    for (size_t i = 0; i < NUM(faults); i++) {
        CLEANUP(file_flight_close) file_flight flight;
        open_flight(&flight, &large, 0, "false", faults[i].fault);
        expect_refused(&flight, true, 0, faults[i].reason);
        if (has_direct_io(&flight)) {
            expect_refused(&flight, false, KVMEM_TRANSFER_NO_HOST_BOUNCE, faults[i].reason);
            expect_moved(&flight, false, 0, false, faults[i].reason);
        }
    }
}

/* The plugin fails after it was seen to work: an error, never other bytes. */
TEST(a_failure_later_on_is_an_error) {
    CLEANUP(file_flight_close) file_flight flight;
    open_flight(&flight, &large, 0, "false", "");
    kvmem_transfer *transfer = NULL;
    CHECK_EQ(file_flight_create(&flight, true, KVMEM_PATH_NIXL_FILE_WRITE, 0, &transfer), KVMEM_STATUS_OK);
    CHECK_EQ(setenv("KVMEM_SIM_CUFILE", "fails", 1), 0);
    EXPECT_OK(kvmem_transfer_submit(transfer, ERR));
    EXPECT(KVMEM_STATUS_NIXL, kvmem_transfer_wait(transfer, PATIENCE, ERR));
    CALL(kvmem_transfer_destroy(transfer));
    side_check(&flight.device);
}

/* Memory that the plugin was not told of can't go by it, which is known before anything is submitted. */
TEST(layouts_from_before_the_backend_are_refused) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    CHECK_EQ(setenv("CUFILE_ALLOW_COMPAT_MODE", "false", 1), 0);
    CHECK_EQ(setenv("KVMEM_SIM_CUFILE", "", 1), 0);
    CLEANUP(file_flight_close) file_flight flight = {.move = &small};
    EXPECT_OK(kvmem_agent_create("storage", NULL, &flight.agent, ERR));
    EXPECT_OK(kvmem_agent_create_backend(flight.agent, "POSIX", NULL, 0, ERR));
    flight.directory = scratch_create(temporary_directory());
    file_side_open(&flight.file, &config, flight.agent, &flight.directory, 0, 2);
    EXPECT_OK(kvmem_agent_create_backend(flight.agent, "GDS_MT", NULL, 0, ERR));
    side_open(&flight.device, PLACE_DEVICE, 0, &config, flight.agent, 1);
    expect_refused(&flight, true, 0, "layouts are built after their agent has its backends");
    expect_moved(&flight, false, 0, false, "");
}
