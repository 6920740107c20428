// SPDX-License-Identifier: Apache-2.0
// Transfers between a file and a GPU by NIXL's GDS plugin. Few machines support it: either every byte is
// moved, or creating the transfer fails with a reason, which is printed. Needs a GPU.
#include "gpu_flight.h"
#include "caller_context.h"

REQUIRES(lacks_real_gpu)

static const kv_move scattered = KV_MOVE(3, {6, 0}, {0, 5}, {1, 6}, {3, 3}, {4, 4});
static const kv_move some_adjacent = KV_MOVE(2, {0, 8}, {1, 9}, {2, 10}, {3, 11}, {9, 0}, {15, 1});
static const uint64_t modes[] = {0, KVMEM_DISK_BUFFERED};

/* Returns NULL if the plugin cannot be loaded or cuFile does not start. The POSIX backend supports files that
   cuFile does not support. */
static kvmem_agent *gds_agent(void) {
    GET(kvmem_agent *, agent, kvmem_agent_create, "storage", NULL);
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    const kvmem_status status = kvmem_agent_create_backend(agent, "GDS_MT", NULL, 0, ERR);
    caller_context_check(__FILE__, __LINE__, "kvmem_agent_create_backend");
    if (status == KVMEM_STATUS_OK) return agent;
    CHECK_EQ(status, KVMEM_STATUS_NIXL);
    CHECK_HAS(test_last_message(), "GDS_MT");
    SKIP_PART("GDS: NIXL creates no GDS_MT backend on this machine");
    printf("no backend: %s\n", test_last_message());
    CALL(kvmem_agent_destroy(agent));
    return NULL;
}

/* A transfer from a GPU to a file. */
typedef struct gds_flight {
    kvmem_agent *agent; /* both sides are registered with it; may be NULL */
    flight flight;
} gds_flight;

static void gds_flight_open(gds_flight *gds, place place, const kv_move *move,
                            const kvmem_layout_config *config, uint64_t flags) {
    gds->agent = gds_agent();
    flight_open(&gds->flight, .from = place, .to = PLACE_FILE, .source = config, .agent = gds->agent,
                .move = move, .file_flags = flags);
}

static void gds_flight_close(gds_flight *gds) {
    flight_close(&gds->flight);
    CALL(kvmem_agent_destroy(gds->agent));
}

/* Creates the transfer. Returns false if that is not supported, and prints the reason. Checks that both sides
   are unchanged. */
static bool create_if_supported(gds_flight *gds, uint32_t path, uint64_t flags) {
    flight *flight = &gds->flight;
    /* Creation refuses that without looking for GDS: whatever reads the file, its bytes are in the page cache. */
    const bool is_cached =
        path == 0 && (flags & KVMEM_TRANSFER_ZERO_COPY) && !file_side_is_direct(&flight_file(flight)->file);
    const kvmem_status status = flight_try(flight, it.transfer.method = path, it.transfer.flags = flags);
    if (status != KVMEM_STATUS_OK) {
        CHECK_EQ(status, KVMEM_STATUS_UNSUPPORTED);
        CHECK(flight->transfer == NULL);
        CHECK_HAS(test_last_message(), path != 0 ? kvmem_method_name(path) : is_cached ? "page cache" : "host memory");
        if (gds->agent == NULL && !is_cached)
            CHECK_HAS(test_last_message(), "no agent with a GDS backend knows both layouts");
        printf("not supported: %s\n", test_last_message());
        if (gds->agent != NULL && file_side_is_direct(&flight_file(flight)->file))
            SKIP_PART("GDS: this machine has the backend, but creating transfers fails");
    }
    side_check(&flight->source);
    side_check(&flight->destination);
    return status == KVMEM_STATUS_OK;
}

static void run_twice(gds_flight *gds) {
    OWN(kvmem_blob, text, kvmem_transfer_explain, gds->flight.transfer);
    printf("%.*s", (int)kvmem_blob_size(text), (const char *)kvmem_blob_data(text));
    for (uint32_t again = 0; again < 2; again++) {
        flight_refill(&gds->flight, 50 + again);
        flight_run(&gds->flight);
    }
}

TEST(every_byte_is_moved_or_the_reason_is_reported) {
    static const place places[] = {PLACE_DEVICE, PLACE_ADOPTED, PLACE_ELASTIC};
    RETAIN_DEVICE(0);
    for (size_t k = 0; k < NUM(places) * NUM(modes) * KV_NUM_KINDS; k++) {
        const kvmem_layout_config config = kv_aligned_config(&kv_kinds[k % KV_NUM_KINDS]);
        OPENED(gds_flight, gds, places[k / KV_NUM_KINDS % NUM(places)], &scattered, &config,
               modes[k / KV_NUM_KINDS / NUM(places)]);
        for (int i = 0; i < 2; i++) {
            if (create_if_supported(&gds, KVMEM_METHOD_NIXL, 0)) {
                CHECK_EQ(flight_info(&gds.flight).method, KVMEM_METHOD_NIXL);
                run_twice(&gds);
            }
            flight_reverse(&gds.flight);
        }
    }
}

/* With these flags, paths through host memory are not allowed. */
TEST(without_host_memory_only_gds_is_possible) {
    const uint64_t flags[] = {KVMEM_TRANSFER_NO_HOST_BOUNCE, KVMEM_TRANSFER_ZERO_COPY};
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    for (size_t k = 0; k < NUM(flags) * NUM(modes); k++) {
        OPENED(gds_flight, gds, PLACE_DEVICE, &scattered, &config, modes[k % NUM(modes)]);
        for (int i = 0; i < 2; i++) {
            if (create_if_supported(&gds, 0, flags[k / NUM(modes)])) {
                CHECK_EQ(flight_info(&gds.flight).method, KVMEM_METHOD_NIXL);
                CHECK(file_side_is_direct(&flight_file(&gds.flight)->file));
                run_twice(&gds);
            }
            flight_reverse(&gds.flight);
        }
    }
}

/* Also if GDS is supported. */
TEST(small_blocks_are_staged) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    OPENED(gds_flight, gds, PLACE_DEVICE, &scattered, &config, 0);
    for (int direction = 0; direction < 2; direction++) {
        CHECK(create_if_supported(&gds, 0, 0));
        const uint32_t path = flight_info(&gds.flight).method;
        CHECK(path == KVMEM_METHOD_URING || path == KVMEM_METHOD_PREAD);
        run_twice(&gds);
        flight_reverse(&gds.flight);
    }
}

/* Blocks of 2 MiB, some of them adjacent, on the path that is estimated to be fastest. */
TEST(large_blocks_on_the_selected_path) {
    const kvmem_layout_config config = WITH(kv_aligned_config(&kv_kinds[0]), it.num_blocks = 16,
                                            it.num_layers = 2, it.inner_dim = 16384);
    OPENED(gds_flight, gds, PLACE_DEVICE, &some_adjacent, &config, 0);
    for (int direction = 0; direction < 2; direction++) {
        CHECK(create_if_supported(&gds, 0, 0));
        run_twice(&gds);
        flight_reverse(&gds.flight);
    }
}

/* The trial transfer uses an unnamed temporary file. */
TEST(the_trial_transfer_leaves_no_file) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    OPENED(gds_flight, gds, PLACE_DEVICE, &scattered, &config, 0);
    create_if_supported(&gds, KVMEM_METHOD_NIXL, 0);
    CHECK_EQ(count_directory_entries(flight_file(&gds.flight)->directory.path), 1); /* the file of the side */
    flight_reverse(&gds.flight);
    KEEPS_FILES;
    for (int i = 0; i < 20; i++) {
        create_if_supported(&gds, KVMEM_METHOD_NIXL, 0);
        flight_reverse(&gds.flight);
    }
}
