// SPDX-License-Identifier: Apache-2.0
// Blocks between a file and a GPU by NIXL's GDS plugin. Few machines have what it needs: either every byte
// arrives, or the transfer is refused for a reason, which is told here. Needs a GPU.
#include "gpu_flight.h"
#include "stance.h"

REQUIRES(lacks_real_gpu)

static const kv_move scattered = KV_MOVE(3, {6, 0}, {0, 5}, {1, 6}, {3, 3}, {4, 4});
static const kv_move neighbours = KV_MOVE(2, {0, 8}, {1, 9}, {2, 10}, {3, 11}, {9, 0}, {15, 1});
static const uint64_t modes[] = {0, KVMEM_DISK_BUFFERED};
static const uint32_t nixl_paths[] = {KVMEM_PATH_NIXL_FILE_WRITE, KVMEM_PATH_NIXL_FILE_READ};

/* NULL where the plugin does not load, or cuFile does not start. Files that cuFile does not take POSIX
   does. */
static kvmem_agent *gds_agent(void) {
    GET(kvmem_agent *, agent, kvmem_agent_create, "storage", NULL);
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    const kvmem_status status = kvmem_agent_create_backend(agent, "GDS_MT", NULL, 0, ERR);
    stance_check(__FILE__, __LINE__, "kvmem_agent_create_backend");
    if (status == KVMEM_STATUS_OK) return agent;
    CHECK_EQ(status, KVMEM_STATUS_NIXL);
    CHECK_HAS(test_last_message(), "GDS_MT");
    SKIP_PART("GDS: NIXL creates no GDS_MT backend on this machine");
    printf("no backend: %s\n", test_last_message());
    CALL(kvmem_agent_destroy(agent));
    return NULL;
}

/* From a GPU to a file. */
typedef struct gds_flight {
    kvmem_agent *agent; /* knows both sides; NULL for none */
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

/* False where it is refused, with the reason told. Nothing was written to find that out. */
static bool create_or_refuse(gds_flight *gds, uint32_t path, uint64_t flags) {
    flight *flight = &gds->flight;
    const kvmem_status status = flight_try(flight, it.path = path, it.flags = flags);
    if (status != KVMEM_STATUS_OK) {
        CHECK_EQ(status, KVMEM_STATUS_UNSUPPORTED);
        CHECK(flight->transfer == NULL);
        CHECK_HAS(test_last_message(), path != 0 ? kvmem_path_name(path) : "host memory");
        if (gds->agent == NULL)
            CHECK_HAS(test_last_message(), "no agent with a GDS backend knows both layouts");
        printf("refused: %s\n", test_last_message());
        if (gds->agent != NULL && file_side_is_direct(&flight_file(flight)->file))
            SKIP_PART("GDS: this machine has the backend, and transfers by it are refused");
    }
    side_check(&flight->source);
    side_check(&flight->destination);
    return status == KVMEM_STATUS_OK;
}

static void run_twice(gds_flight *gds) {
    OWN(kvmem_blob, text, kvmem_transfer_explain, gds->flight.transfer, NULL);
    printf("%.*s", (int)kvmem_blob_size(text), (const char *)kvmem_blob_data(text));
    for (uint32_t again = 0; again < 2; again++) {
        flight_refill(&gds->flight, 50 + again);
        flight_run(&gds->flight);
    }
}

TEST(every_byte_arrives_or_the_reason_is_told) {
    static const place places[] = {PLACE_DEVICE, PLACE_ADOPTED, PLACE_ELASTIC};
    RETAIN_DEVICE(0);
    for (size_t turn = 0; turn < NUM(places) * NUM(modes) * KV_NUM_KINDS; turn++) {
        const kvmem_layout_config config = kv_aligned_config(&kv_kinds[turn % KV_NUM_KINDS]);
        OPENED(gds_flight, gds, places[turn / KV_NUM_KINDS % NUM(places)], &scattered, &config,
               modes[turn / KV_NUM_KINDS / NUM(places)]);
        for (size_t i = 0; i < NUM(nixl_paths); i++) {
            if (create_or_refuse(&gds, nixl_paths[i], 0)) {
                CHECK_EQ(flight_info(&gds.flight).path, nixl_paths[i]);
                run_twice(&gds);
            }
            flight_turn_round(&gds.flight);
        }
    }
}

/* What bounces in host memory is not taken where that is refused, and GDS that does not is. */
TEST(without_a_bounce_it_is_gds_or_nothing) {
    const uint64_t refusals[] = {KVMEM_TRANSFER_NO_HOST_BOUNCE, KVMEM_TRANSFER_ZERO_COPY};
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    for (size_t k = 0; k < NUM(refusals) * NUM(modes); k++) {
        OPENED(gds_flight, gds, PLACE_DEVICE, &scattered, &config, modes[k % NUM(modes)]);
        for (size_t i = 0; i < NUM(nixl_paths); i++) {
            if (create_or_refuse(&gds, 0, refusals[k / NUM(modes)])) {
                CHECK_EQ(flight_info(&gds.flight).path, nixl_paths[i]);
                CHECK(file_side_is_direct(&flight_file(&gds.flight)->file));
                run_twice(&gds);
            }
            flight_turn_round(&gds.flight);
        }
    }
}

/* Small blocks go through the ring also where there is GDS, and of why that is, something is said. */
TEST(small_blocks_go_through_the_ring) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    OPENED(gds_flight, gds, PLACE_DEVICE, &scattered, &config, 0);
    for (int way = 0; way < 2; way++) {
        CHECK(create_or_refuse(&gds, 0, 0));
        const uint32_t path = flight_info(&gds.flight).path;
        CHECK(path == KVMEM_PATH_URING_STAGED || path == KVMEM_PATH_PREAD_STAGED);
        run_twice(&gds);
        flight_turn_round(&gds.flight);
    }
}

/* Blocks of 2 MiB, some of them neighbours, as is expected to be fastest: GDS where it is proven. */
TEST(large_blocks_go_one_way_or_the_other) {
    const kvmem_layout_config config = WITH(kv_aligned_config(&kv_kinds[0]), it.num_blocks = 16,
                                            it.num_layers = 2, it.inner_dim = 16384);
    OPENED(gds_flight, gds, PLACE_DEVICE, &neighbours, &config, 0);
    for (int way = 0; way < 2; way++) {
        CHECK(create_or_refuse(&gds, 0, 0));
        run_twice(&gds);
        flight_turn_round(&gds.flight);
    }
}

/* It is tried out on a file of its own, which has no name and does not stay open. */
TEST(trying_it_out_leaves_nothing_behind) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    OPENED(gds_flight, gds, PLACE_DEVICE, &scattered, &config, 0);
    create_or_refuse(&gds, nixl_paths[0], 0);
    CHECK_EQ(count_directory_entries(flight_file(&gds.flight)->directory.path), 1); /* the side's own file */
    flight_turn_round(&gds.flight);
    KEEPS_FILES;
    for (int i = 0; i < 20; i++) {
        create_or_refuse(&gds, nixl_paths[1 - i % 2], 0);
        flight_turn_round(&gds.flight);
    }
}
