// SPDX-License-Identifier: Apache-2.0
// Blocks between a file and a GPU by NIXL's GDS plugin. Few machines have what it needs: either every byte
// arrives, or the transfer is refused for a reason, which is told here. Needs a GPU.
#include "file_flight.h"
#include "stance.h"

#include <dirent.h>

REQUIRES(lacks_real_gpu)

static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}, {4, 4}};
static const kv_move scattered = {pairs, NUM(pairs), 0, 0, 3};
static const kvmem_block_pair neighbour_pairs[] = {{0, 8}, {1, 9}, {2, 10}, {3, 11}, {9, 0}, {15, 1}};
static const kv_move neighbours = {neighbour_pairs, NUM(neighbour_pairs), 0, 0, 2};
static const uint64_t modes[] = {0, KVMEM_DISK_BUFFERED};

/* NULL where the plugin does not load, or cuFile does not start. Files that cuFile does not take POSIX
   does. */
static kvmem_agent *gds_agent(void) {
    GET(kvmem_agent *, agent, kvmem_agent_create, "storage", NULL);
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    const kvmem_status status = kvmem_agent_create_backend(agent, "GDS_MT", NULL, 0, ERR);
    stance_check(__FILE__, __LINE__, "kvmem_agent_create_backend");
    if (status == KVMEM_STATUS_OK) {
        return agent;
    }
    CHECK_EQ(status, KVMEM_STATUS_NIXL);
    CHECK_HAS(test_last_message(), "GDS_MT");
    SKIP_PART("GDS: NIXL creates no GDS_MT backend on this machine");
    printf("no backend: %s\n", test_last_message());
    CALL(kvmem_agent_destroy(agent));
    return NULL;
}

static void open_flight(file_flight *flight, place place, const kvmem_layout_config *config, uint64_t flags) {
    file_flight_open(flight, &scattered, gds_agent(), place, config, flags);
}

/* NULL where it is refused, with the reason told. Nothing was written to find that out. */
static kvmem_transfer *created_or_refused(file_flight *flight, bool to_file, uint32_t path, uint64_t flags) {
    kvmem_transfer *transfer = NULL;
    const kvmem_status status = file_flight_create(flight, to_file, path, flags, &transfer);
    if (status != KVMEM_STATUS_OK) {
        CHECK_EQ(status, KVMEM_STATUS_UNSUPPORTED);
        CHECK(transfer == NULL);
        CHECK_HAS(test_last_message(), path != 0 ? kvmem_path_name(path) : "host memory");
        if (flight->agent == NULL) {
            CHECK_HAS(test_last_message(), "no agent with a GDS backend knows both layouts");
        }
        printf("refused: %s\n", test_last_message());
        if (flight->agent != NULL && file_side_is_direct(&flight->file)) {
            SKIP_PART("GDS: this machine has the backend, and transfers by it are refused");
        }
    }
    side_check(&flight->device);
    file_side_check(&flight->file);
    return transfer;
}

static void tell(const kvmem_transfer *transfer) {
    OWN(kvmem_blob, text, kvmem_transfer_explain, transfer, NULL);
    printf("%.*s", (int)kvmem_blob_size(text), (const char *)kvmem_blob_data(text));
}

static uint32_t path_of(const kvmem_transfer *transfer) {
    GET(kvmem_transfer_info, info, kvmem_transfer_get_info, transfer);
    return info.path;
}

static void run(file_flight *flight, bool to_file, kvmem_transfer *transfer) {
    tell(transfer);
    file_flight_run(flight, to_file, transfer);
}

TEST(every_byte_arrives_or_the_reason_is_told) {
    static const place places[] = {PLACE_DEVICE, PLACE_ADOPTED, PLACE_ELASTIC};
    RETAIN_DEVICE(0);
    for (size_t turn = 0; turn < NUM(places) * NUM(modes) * KV_NUM_KINDS; turn++) {
        const kvmem_layout_config config = kv_aligned_config(&kv_kinds[turn % KV_NUM_KINDS]);
        CLEANUP(file_flight_close) file_flight flight;
        open_flight(&flight, places[turn / KV_NUM_KINDS % NUM(places)], &config,
                    modes[turn / KV_NUM_KINDS / NUM(places)]);
        for (int to_file = 1; to_file >= 0; to_file--) {
            const uint32_t path = file_flight_nixl_path(to_file);
            kvmem_transfer *transfer = created_or_refused(&flight, to_file, path, 0);
            if (transfer != NULL) {
                CHECK_EQ(path_of(transfer), path);
                run(&flight, to_file, transfer);
            }
        }
    }
}

/* What bounces in host memory is not taken where that is refused, and GDS that does not is. */
TEST(without_a_bounce_it_is_gds_or_nothing) {
    const uint64_t refusals[] = {KVMEM_TRANSFER_NO_HOST_BOUNCE, KVMEM_TRANSFER_ZERO_COPY};
    for (size_t i = 0; i < NUM(refusals) * NUM(modes); i++) {
        const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
        CLEANUP(file_flight_close) file_flight flight;
        open_flight(&flight, PLACE_DEVICE, &config, modes[i % NUM(modes)]);
        for (int to_file = 1; to_file >= 0; to_file--) {
            kvmem_transfer *transfer = created_or_refused(&flight, to_file, 0, refusals[i / NUM(modes)]);
            if (transfer != NULL) {
                CHECK_EQ(path_of(transfer), file_flight_nixl_path(to_file));
                CHECK(file_side_is_direct(&flight.file));
                run(&flight, to_file, transfer);
            }
        }
    }
}

/* Small blocks go through the ring also where there is GDS, and of why that is, something is said. */
TEST(small_blocks_go_through_the_ring) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    CLEANUP(file_flight_close) file_flight flight;
    open_flight(&flight, PLACE_DEVICE, &config, 0);
    for (int to_file = 1; to_file >= 0; to_file--) {
        kvmem_transfer *transfer = created_or_refused(&flight, to_file, 0, 0);
        CHECK(transfer != NULL);
        CHECK(path_of(transfer) == KVMEM_PATH_URING_STAGED || path_of(transfer) == KVMEM_PATH_PREAD_STAGED);
        run(&flight, to_file, transfer);
    }
}

/* Blocks of 2 MiB, some of them neighbours, as is expected to be fastest: GDS where it is proven. */
TEST(large_blocks_go_one_way_or_the_other) {
    kvmem_layout_config config = WITH(kv_aligned_config(&kv_kinds[0]), it.num_blocks = 16, it.num_layers = 2,
                                      it.inner_dim = 16384);
    CLEANUP(file_flight_close) file_flight flight;
    open_flight(&flight, PLACE_DEVICE, &config, 0);
    flight.move = &neighbours;
    for (int to_file = 1; to_file >= 0; to_file--) {
        kvmem_transfer *transfer = created_or_refused(&flight, to_file, 0, 0);
        CHECK(transfer != NULL);
        run(&flight, to_file, transfer);
    }
}

static size_t count_entries(const char *path) {
    DIR *directory = opendir(path);
    CHECK(directory != NULL);
    size_t count = 0;
    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

/* It is tried out on a file of its own, which has no name and does not stay open. */
TEST(trying_it_out_leaves_nothing_behind) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    CLEANUP(file_flight_close) file_flight flight;
    open_flight(&flight, PLACE_DEVICE, &config, 0);
    CALL(kvmem_transfer_destroy(created_or_refused(&flight, true, file_flight_nixl_path(true), 0)));
    CHECK_EQ(count_entries(flight.directory.path), 3); /* with itself and its parent */
    KEEPS_FILES;
    for (int i = 0; i < 20; i++) {
        CALL(kvmem_transfer_destroy(created_or_refused(&flight, i % 2, file_flight_nixl_path(i % 2), 0)));
    }
}
