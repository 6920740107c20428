// SPDX-License-Identifier: Apache-2.0
// Layouts in block storage, over NIXL's plugin GUSLI, whose device is a file: what transfers write to it, and
// that blocks come back.
#include "harness.h"

#include <sys/mman.h>

#define OFFSET MIB
#define DEVICE_SIZE (32 * MIB)
#define COOKIE "sec=0x3"

static const kvmem_block_pair out_pairs[] = {{6, 0}, {0, 63}, {3, 3}};
static const kv_move out = {out_pairs, NUM(out_pairs), 0, 0, 4};
static const kvmem_block_pair back_pairs[] = {{0, 7}, {63, 8}, {3, 60}};
static const kv_move back = {back_pairs, NUM(back_pairs), 0, 0, 4};

/* The plugin finds the device of memory by the device id of the memory, which is 0 for host memory. */
static kvmem_agent *open_device(const char *path) {
    GET(kvmem_agent *, agent, kvmem_agent_create, "storing", NULL);
    const kvmem_parameter parameters[] = {
        {"client_name", "kvmem"},
        {"max_num_simultaneous_requests", "32"},
        {"config_file", TEXT("# Config file\nversion=1\n0 F W N %s " COOKIE "\n", path)},
    };
    EXPECT_OK(kvmem_agent_create_backend(agent, "GUSLI", parameters, NUM(parameters), ERR));
    return agent;
}

static kvmem_layout *lay_out_storage(const kvmem_layout_config *config, kvmem_agent *agent) {
    OWN(kvmem_region, region, kvmem_region_create_block,
        REF(OPTIONS(kvmem_block_options, it.offset = OFFSET, it.size = kv_region_size(config),
                    it.alignment = 4096,
                    it.metadata = COOKIE, it.metadata_size = strlen(COOKIE))));
    return regions_lay_out(config, &region, 1, agent);
}

static kvmem_layout *allocate(const kvmem_layout_config *config, kvmem_agent *agent) {
    kvmem_system_options memory = {.struct_size = sizeof(memory)};
    return MADE(kvmem_layout, kvmem_layout_build,
                REF(OPTIONS(kvmem_layout_options, it.config = config, it.source = KVMEM_LAYOUT_ALLOCATE,
                            it.agent = agent,
                            it.system = &memory)));
}

/* After the registration, which maps other memory there. */
static void fill_block(const kvmem_layout *layout, const kvmem_layout_config *config, uint64_t block,
                       uint32_t seed) {
    for (uint64_t layer = 0; layer < config->num_layers; layer++) {
        for (uint64_t outer = 0; outer < config->outer_dim; outer++) {
            GET(kvmem_block, piece, kvmem_layout_get_block, layout, block, layer, outer);
            kv_fill((unsigned char *)piece.address, piece.size, seed + (uint32_t)(layer * 2 + outer));
        }
    }
}

static void expect_in_file(const char *path, const kvmem_layout_config *config, uint64_t block,
                           uint32_t seed) {
    const size_t piece = kv_piece_size(config), size = kv_block_stride(config);
    unsigned char *found = test_allocate(size), *expected = test_allocate(size);
    for (uint32_t i = 0; i < size / piece; i++) kv_fill(expected + i * piece, piece, seed + i);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    CHECK_EQ(pread(file, found, size, (off_t)(OFFSET + block * size)), (ssize_t)size);
    CHECK_EQ(close(file), 0);
    CHECK_BYTES(found, expected, size);
    free(found);
    free(expected);
}

static void create_device(const char *path) {
    const int device = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK_EQ(ftruncate(device, (off_t)DEVICE_SIZE), 0);
    CHECK_EQ(close(device), 0);
}

TEST(blocks_of_every_kind_are_stored_in_a_device_and_come_back) {
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    SCRATCH_FILE(path, "device");
    create_device(path);
    OWNED(kvmem_agent) agent = open_device(path);
    const kvmem_layout_config stored = kv_large_config(&kv_kinds[0]);
    OWNED(kvmem_layout) storage = lay_out_storage(&stored, agent);
    EACH_KV_KIND(kind) {
        const kvmem_layout_config config = kv_large_config(kind);
        OWNED(kvmem_layout) host = allocate(&config, agent);
        uint32_t from[NUM(out_pairs)], to[NUM(back_pairs)], before[NUM(out_pairs)], after[NUM(back_pairs)];
        for (uint32_t i = 0; i < NUM(out_pairs); i++) {
            from[i] = out_pairs[i].source, to[i] = back_pairs[i].destination;
            fill_block(host, &config, from[i], 100 * i + (uint32_t)(kind - kv_kinds));
        }
        EXPECT_OK(kvmem_layout_checksum(host, from, NUM(from), KVMEM_TIMEOUT_FOREVER, before, ERR));
        CHECK_EQ(kv_run(host, storage, &out).method, KVMEM_METHOD_NIXL);
        for (uint32_t i = 0; i < NUM(out_pairs); i++) {
            expect_in_file(path, &stored, out_pairs[i].destination, 100 * i + (uint32_t)(kind - kv_kinds));
        }
        CHECK_EQ(kv_run(storage, host, &back).method, KVMEM_METHOD_NIXL);
        EXPECT_OK(kvmem_layout_checksum(host, to, NUM(to), KVMEM_TIMEOUT_FOREVER, after, ERR));
        CHECK_BYTES(after, before, sizeof(before));
    }
}

/* The plugin reports a failure when all parts have ended: the memory is free after it. */
TEST(a_failed_read_leaves_nothing_in_use) {
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    SCRATCH_FILE(path, "device");
    create_device(path);
    kvmem_agent *agent = open_device(path);
    const kvmem_layout_config config = kv_large_config(&kv_kinds[0]);
    kvmem_layout *storage = lay_out_storage(&config, agent);
    const size_t size = kv_region_size(&config);
    /* whole pages */
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    kvmem_region *adopted = region_adopt_noting_release(memory, size);
    kvmem_layout *host = regions_lay_out(&config, &adopted, 1, agent);
    kvmem_transfer *transfer = kv_transfer(storage, host, &back);
    RUN(transfer);
    CHECK_EQ(truncate(path, 0), 0);
    RUN_ENDS(KVMEM_STATUS_NIXL, "failed", transfer);
    CHECK_EQ(truncate(path, (off_t)DEVICE_SIZE), 0);
    RUN(transfer);
    const int releases = releases_count();
    kvmem_transfer_destroy(transfer);
    kvmem_layout_destroy(host);
    kvmem_region_destroy(adopted);
    kvmem_layout_destroy(storage);
    kvmem_agent_destroy(agent);
    await_releases(releases + 1);
    CHECK_EQ(munmap(memory, size), 0);
}

/* Whole pages, which the plugin may replace. */
static unsigned char *map_pages(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

#define PAGE 4096
#define MAX_RANGES 16

/* In each of these cases the plugin ended the process, or replaced bytes beside the memory. */
TEST(host_memory_that_the_plugin_cannot_have_is_refused) {
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    SCRATCH_FILE(path, "device");
    create_device(path);
    OWNED(kvmem_agent) agent = open_device(path);
    unsigned char *memory = map_pages(MIB);
    memset(memory, 7, MIB);
    const char *const part = "must be multiples of 4096 bytes";
    static const size_t at[][2] = {{512, PAGE}, {1, PAGE - 1}, {0, PAGE + 1}, {PAGE, 100}};
    for (size_t i = 0; i < NUM(at); i++) {
        const kvmem_nixl_descriptor range = memory_at(memory + at[i][0], at[i][1]);
        REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, part, kvmem_segments_register, agent, &range, 1, NULL);
        CHECK_HAS(test_last_message(), TEXT("host memory at %#zx", (size_t)memory + at[i][0]));
        OWN(kvmem_region, adopted, kvmem_region_adopt_host,
            REF(OPTIONS(kvmem_adopt_options, it.address = memory + at[i][0], it.size = at[i][1])));
        REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, part, kvmem_region_register, adopted, agent);
    }
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OWN(kvmem_region, shifted, kvmem_region_adopt_host,
        REF(OPTIONS(kvmem_adopt_options, it.address = memory + 64, it.size = kv_region_size(&config))));
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, part, kvmem_layout_build,
           REF(OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_REGIONS,
                       it.regions = &shifted, it.count = 1, it.agent = agent)));
    OWN(kvmem_region, whole, kvmem_region_create_system,
        REF(OPTIONS(kvmem_system_options, it.size = 3 * PAGE + 5)));
    OWN(kvmem_region, view, kvmem_region_create_view, whole, 100, PAGE);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, part, kvmem_region_register, view, agent);
    OWN(kvmem_registration, registration, kvmem_region_register, whole, agent);
    for (size_t i = 0; i < MIB; i++) CHECK_EQ(memory[i], 7);

    /* One range is registered. */
    kvmem_nixl_descriptor many[MAX_RANGES];
    for (size_t i = 0; i < MAX_RANGES; i++) many[i] = memory_at(memory + 2 * i * PAGE, PAGE);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "16 ranges of host memory", kvmem_segments_register, agent, ARRAY(many),
           NULL);
    OWN(kvmem_segments, most, kvmem_segments_register, agent, many, MAX_RANGES - 1, NULL);
    OWN(kvmem_region, next, kvmem_region_create_system, REF(OPTIONS(kvmem_system_options, it.size = PAGE)));
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "16 ranges of host memory", kvmem_region_register, next, agent);
    EXPECT_OK(kvmem_segments_deregister(most, ERR));
    OWN(kvmem_registration, now, kvmem_region_register, next, agent);
    CHECK_EQ(munmap(memory, MIB), 0);
}

/* Another backend accepts the memory, so the layout is built. */
TEST(a_transfer_with_memory_that_the_plugin_does_not_have_is_refused) {
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    SCRATCH_FILE(path, "device");
    create_device(path);
    OWNED(kvmem_agent) agent = open_device(path);
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    const size_t size = kv_region_size(&config);
    unsigned char *memory = test_allocate(size + 64);
    OWN(kvmem_region, region, kvmem_region_adopt_host,
        REF(OPTIONS(kvmem_adopt_options, it.address = memory + 64 - (uintptr_t)memory % 64, it.size = size)));
    OWNED(kvmem_layout) host = regions_lay_out(&config, &region, 1, agent);
    OWN(kvmem_region, device, kvmem_region_create_block,
        REF(OPTIONS(kvmem_block_options, it.size = size, it.metadata = COOKIE, it.metadata_size = strlen(COOKIE))));
    OWNED(kvmem_layout) storage = regions_lay_out(&config, &device, 1, agent);
    const kv_move one = KV_MOVE(3, {1, 1});
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "no backend of agent", kv_prepare, host, storage,
           KV_JOB(&one));
    CHECK_HAS(test_last_message(), "its start and its size must be multiples of 4096 bytes");
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "no backend of agent", kv_prepare, storage, host,
           KV_JOB(&one));
    free(memory);
}

/* The plugin runs each part by itself, 32 at a time here. */
TEST(a_transfer_has_more_parts_than_the_plugin_runs_at_a_time) {
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    SCRATCH_FILE(path, "device");
    create_device(path);
    OWNED(kvmem_agent) agent = open_device(path);
    const kvmem_layout_config config = kv_large_config(&kv_kinds[0]);
    OWNED(kvmem_layout) storage = lay_out_storage(&config, agent);
    OWNED(kvmem_layout) host = allocate(&config, agent);
    kvmem_block_pair pairs[60];
    uint32_t blocks[NUM(pairs)], before[NUM(pairs)], after[NUM(pairs)];
    for (uint32_t i = 0; i < NUM(pairs); i++) {
        pairs[i] = (kvmem_block_pair){i, NUM(pairs) - 1 - i};
        blocks[i] = i;
        fill_block(host, &config, i, i);
    }
    const kv_move reversed = {pairs, NUM(pairs), 0, 0, 4};
    EXPECT_OK(kvmem_layout_checksum(host, blocks, NUM(blocks), KVMEM_TIMEOUT_FOREVER, before, ERR));
    kv_run(host, storage, &reversed);
    for (uint32_t i = 0; i < NUM(pairs); i++) fill_block(host, &config, i, 0);
    kv_run(storage, host, &reversed);
    EXPECT_OK(kvmem_layout_checksum(host, blocks, NUM(blocks), KVMEM_TIMEOUT_FOREVER, after, ERR));
    CHECK_BYTES(after, before, sizeof(before));
}

/* Together they have more parts than the plugin runs at a time: their requests wait for each other. */
TEST(transfers_that_run_at_the_same_time_share_the_limit_of_the_plugin) {
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    SCRATCH_FILE(path, "device");
    create_device(path);
    OWNED(kvmem_agent) agent = open_device(path);
    const kvmem_layout_config config = kv_large_config(&kv_kinds[0]);
    OWNED(kvmem_layout) storage = lay_out_storage(&config, agent);
    OWNED(kvmem_layout) host = allocate(&config, agent);
    enum { TRANSFERS = 4, BLOCKS = 15 };
    kvmem_block_pair pairs[TRANSFERS][BLOCKS];
    uint32_t blocks[TRANSFERS * BLOCKS], before[TRANSFERS * BLOCKS], after[TRANSFERS * BLOCKS];
    for (uint32_t i = 0; i < TRANSFERS * BLOCKS; i++) {
        blocks[i] = i;
        fill_block(host, &config, i, i);
        /* every fourth block, so that no two are neighbours */
        pairs[i % TRANSFERS][i / TRANSFERS] = (kvmem_block_pair){i, i};
    }
    EXPECT_OK(kvmem_layout_checksum(host, blocks, NUM(blocks), KVMEM_TIMEOUT_FOREVER, before, ERR));
    for (int is_read = 0; is_read < 2; is_read++) {
        kvmem_transfer *transfers[TRANSFERS];
        for (size_t i = 0; i < TRANSFERS; i++) {
            const kv_move quarter = {pairs[i], BLOCKS, 0, 0, 4};
            transfers[i] =
                is_read ? kv_transfer(storage, host, &quarter) : kv_transfer(host, storage, &quarter);
        }
        for (size_t i = 0; i < TRANSFERS; i++) EXPECT_OK(kvmem_transfer_submit(transfers[i], NULL, ERR));
        for (size_t i = 0; i < TRANSFERS; i++) {
            EXPECT_OK(kvmem_transfer_wait(transfers[i], PATIENCE, ERR));
            kvmem_transfer_destroy(transfers[i]);
        }
        if (!is_read)
            for (uint32_t i = 0; i < NUM(blocks); i++) fill_block(host, &config, i, 0);
    }
    EXPECT_OK(kvmem_layout_checksum(host, blocks, NUM(blocks), KVMEM_TIMEOUT_FOREVER, after, ERR));
    CHECK_BYTES(after, before, sizeof(before));
}

TEST(parameters_that_the_plugin_ends_the_process_for_are_refused) {
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    SCRATCH_FILE(path, "config");
    static const kvmem_parameter refused[][2] = {
        {{"config_file", "# Config file\nversion=2\n0 F W N /dev/null sec=0x3\n"}, {"client_name", "kvmem"}},
        {{"max_num_simultaneous_requests", "0"}, {"config_file", "# Config file\nversion=1\n"}},
    };
    GET(kvmem_agent *, agent, kvmem_agent_create, "storing", NULL);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "has version=2; the plugin GUSLI knows version=1",
                   kvmem_agent_create_backend(agent, "GUSLI", refused[0], 2, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "it must be 1 to 511",
                   kvmem_agent_create_backend(agent, "GUSLI", refused[1], 2, ERR));
    FILE *file = fopen(path, "we");
    fputs(refused[0][0].value, file);
    CHECK_EQ(fclose(file), 0);
    const kvmem_parameter in_file = {"config_file", path};
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "has version=2",
                   kvmem_agent_create_backend(agent, "GUSLI", &in_file, 1, ERR));
    kvmem_agent_destroy(agent);
}
