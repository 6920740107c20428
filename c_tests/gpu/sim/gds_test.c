// SPDX-License-Identifier: Apache-2.0
// When NIXL's real GDS plugin is used, with stand-ins for the driver and for cuFile that work, copy through
// host memory, fail, or change a byte. They cannot test GPUDirect Storage itself.
#include "gpu_flight.h"
#include "caller_context.h"
#include "patience.h"

static const kv_move small = KV_MOVE(3, {6, 0}, {0, 5}, {1, 6}, {3, 3}, {4, 4});
static const kv_move large = KV_MOVE(2, {0, 8}, {1, 9}, {15, 1});

/* Sets whether cuFile allows compatibility mode, and the fault of its stand-in. */
static void set_cufile(const char *compatibility, const char *fault) {
    CHECK_EQ(setenv("CUFILE_ALLOW_COMPAT_MODE", compatibility, 1), 0);
    CHECK_EQ(setenv("KVMEM_SIM_CUFILE", fault, 1), 0);
}

/* A transfer from a GPU to a file, both registered with an agent. */
typedef struct gds_flight {
    kvmem_agent *agent;
    flight flight;
} gds_flight;

static void gds_flight_open(gds_flight *gds, const kv_move *move, uint64_t flags, const char *compatibility,
                            const char *fault) {
    set_cufile(compatibility, fault);
    kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    if (move == &large) { /* blocks of 2 MiB */
        config = WITH(config, it.num_blocks = 16, it.num_layers = 2, it.inner_dim = 16384);
    }
    EXPECT_OK(kvmem_agent_create("storage", NULL, &gds->agent, ERR));
    EXPECT_OK(kvmem_agent_create_backend(gds->agent, "POSIX", NULL, 0, ERR));
    EXPECT_OK(kvmem_agent_create_backend(gds->agent, "GDS_MT", NULL, 0, ERR));
    flight_open(&gds->flight, .from = PLACE_DEVICE, .to = PLACE_FILE, .source = &config, .agent = gds->agent,
                .move = move, .file_flags = flags);
}

static void gds_flight_close(gds_flight *gds) {
    flight_close(&gds->flight);
    CALL(kvmem_agent_destroy(gds->agent));
}

/* Runs in both directions and compares every byte. Checks whether NIXL is used, and the explanation. */
static void expect_moved(flight *flight, bool is_requested, uint64_t flags, bool by_nixl,
                         const char *explained) {
    for (int i = 0; i < 2; i++) {
        flight_create(flight, it.transfer.method = is_requested ? KVMEM_METHOD_NIXL : 0,
                      it.transfer.flags = flags);
        CHECK_EQ(flight_info(flight).method == KVMEM_METHOD_NIXL, by_nixl);
        flight_explain(flight, explained);
        for (uint32_t again = 0; again < 2; again++) {
            flight_refill(flight, 50 + again);
            flight_run(flight);
        }
        flight_reverse(flight);
    }
}

static void expect_refused(flight *flight, bool is_requested, uint64_t flags, const char *reason) {
    for (int i = 0; i < 2; i++) {
        flight_refuse(flight, KVMEM_STATUS_UNSUPPORTED, reason,
                      it.transfer.method = is_requested ? KVMEM_METHOD_NIXL : 0,
                      it.transfer.flags = flags);
        flight_reverse(flight);
    }
    side_check(&flight->source);
    side_check(&flight->destination);
}

/* GDS needs direct I/O. Without it, checks the error of the transfer, and skips this part of the case. */
static bool has_direct_io(flight *flight) {
    if (file_side_is_direct(&flight_file(flight)->file)) return true;
    expect_refused(flight, false, KVMEM_TRANSFER_NO_HOST_BOUNCE, "the file is buffered");
    SKIP_PART("direct I/O: the file system of %s has none", temporary_directory());
    return false;
}

TEST(gds_that_works_without_compatibility_mode_is_used) {
    OPENED(gds_flight, big, &large, 0, "false", "");
    if (!has_direct_io(&big.flight)) return;
    expect_moved(&big.flight, false, 0, true, "its bytes pass through host memory");
    expect_moved(&big.flight, true, 0, true, "");
    expect_moved(&big.flight, false, KVMEM_TRANSFER_ZERO_COPY, true, "");
    OPENED(gds_flight, little, &small, 0, "false", "");
    expect_moved(&little.flight, false, 0, false, "each move of 40960 bytes would be one request");
    expect_moved(&little.flight, false, KVMEM_TRANSFER_NO_HOST_BOUNCE, true, "");
    expect_moved(&little.flight, true, 0, true, "");
}

TEST(gds_that_may_copy_through_host_memory_is_used_only_if_requested) {
    static const char *const doubt = "cuFile may pass bytes through host memory";
    OPENED(gds_flight, direct, &large, 0, "true", "absent");
    if (has_direct_io(&direct.flight)) {
        expect_moved(&direct.flight, false, 0, false, doubt);
        expect_moved(&direct.flight, true, 0, true, doubt);
        expect_refused(&direct.flight, false, KVMEM_TRANSFER_NO_HOST_BOUNCE, doubt);
        expect_refused(&direct.flight, true, KVMEM_TRANSFER_ZERO_COPY, doubt);
    }
    OPENED(gds_flight, buffered, &large, KVMEM_DISK_BUFFERED, "false", "");
    expect_moved(&buffered.flight, false, 0, false, "the file is buffered");
    expect_moved(&buffered.flight, true, 0, true, "the file is buffered");
    expect_refused(&buffered.flight, true, KVMEM_TRANSFER_NO_HOST_BOUNCE, "the file is buffered");
}

/* A trial transfer runs before the first transfer of the caller. */
TEST(gds_that_fails_the_trial_is_not_used) {
    static const struct {
        const char *fault;
        const char *reason;
    } faults[] = {
        {"absent", "a trial transfer failed: NIXL writes: "},
        {"fails", "a trial transfer failed: NIXL writes: "},
        {"wrong-write", "a trial transfer failed: NIXL writes: other bytes arrived"},
        {"wrong-read", "a trial transfer failed: NIXL reads: other bytes arrived"},
    };
    for (size_t i = 0; i < NUM(faults); i++) {
        OPENED(gds_flight, gds, &large, 0, "false", faults[i].fault);
        expect_refused(&gds.flight, true, 0, faults[i].reason);
        if (has_direct_io(&gds.flight)) {
            expect_refused(&gds.flight, false, KVMEM_TRANSFER_NO_HOST_BOUNCE, faults[i].reason);
            expect_moved(&gds.flight, false, 0, false, faults[i].reason);
        }
    }
}

/* The caller waits for a trial until its own deadline; the trial goes on without it, and later runs use GDS. */
TEST(a_trial_that_waits_does_not_hold_up_runs) {
    OPENED(gds_flight, gds, &large, 0, "false", "waits");
    if (!file_side_is_direct(&flight_file(&gds.flight)->file)) SKIP("direct I/O: the file system has none");
    const kv_job limited = WITH(flight_options(&gds.flight), it.run.run_timeout_ns = SECONDS(1));
    flight_create_with(&gds.flight, limited);
    CHECK_EQ(flight_info(&gds.flight).method == KVMEM_METHOD_NIXL, false);
    flight_explain(&gds.flight, "a trial transfer has not ended yet");
    /* Whether the method is possible is not known. */
    flight_refuse(&gds.flight, KVMEM_STATUS_TIMED_OUT, "a trial transfer has not ended yet",
                  it.transfer.method = KVMEM_METHOD_NIXL, it.run.run_timeout_ns = MILLISECONDS(1));
    flight_run(&gds.flight);
    set_cufile("false", "");
    const uint64_t end = patience_end();
    do {
        flight_create(&gds.flight, it.transfer.method = 0);
        patience_wait(end, "the end of the trial");
    } while (flight_info(&gds.flight).method != KVMEM_METHOD_NIXL);
    flight_refill(&gds.flight, 52);
    flight_run(&gds.flight);
}

/* A failure after a successful trial is an error, and never results in wrong bytes. */
TEST(a_failure_after_the_trial_is_an_error) {
    OPENED(gds_flight, gds, &large, 0, "false", "");
    flight_create(&gds.flight, it.transfer.method = KVMEM_METHOD_NIXL);
    set_cufile("false", "fails");
    flight_submit(&gds.flight);
    flight_expect_end(&gds.flight, KVMEM_STATUS_NIXL, "");
    side_check(&gds.flight.source);
}

/* Their memory is not registered with the plugin, which is detected when the transfer is created. */
TEST(layouts_built_before_the_backend_are_rejected) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    set_cufile("false", "");
    CLEANUP(gds_flight_close) gds_flight gds = {.flight = {.move = &small}};
    EXPECT_OK(kvmem_agent_create("storage", NULL, &gds.agent, ERR));
    EXPECT_OK(kvmem_agent_create_backend(gds.agent, "POSIX", NULL, 0, ERR));
    side_open_file(&gds.flight.destination, &config, gds.agent, 0, 2);
    EXPECT_OK(kvmem_agent_create_backend(gds.agent, "GDS_MT", NULL, 0, ERR));
    side_open(&gds.flight.source, PLACE_DEVICE, 0, &config, gds.agent, 1);
    expect_refused(&gds.flight, true, 0, "build layouts after their agent has its backends");
    expect_moved(&gds.flight, false, 0, false, "");
}
