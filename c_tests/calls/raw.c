// SPDX-License-Identifier: Apache-2.0
// Calls on raw descriptors: registered segments, queries, prepared lists and requests of NIXL. All
// addresses belong to memory and files that exist as long as the process, because NIXL cannot check them.
#include "settings.h"
#include "table.h"

#define BLOCK 4096
#define NUM_BLOCKS 8

static unsigned char memory[NUM_BLOCKS * BLOCK];

static kvmem_nixl_descriptor some_memory(fuzz *fuzz) {
    const uint64_t block = random_below(fuzz, NUM_BLOCKS);
    return (kvmem_nixl_descriptor){
        .address = (uintptr_t)memory + block * BLOCK, .size = BLOCK, .memory_type = KVMEM_MEMORY_DRAM};
}

#define MAX_DESCRIPTORS 4

/* Descriptors of memory, of a region, or of a random type. */
typedef struct some {
    kvmem_nixl_descriptor at[MAX_DESCRIPTORS];
    size_t count;
} some;

static some some_descriptors(fuzz *fuzz) {
    some some = {.count = random_below(fuzz, MAX_DESCRIPTORS + 1)};
    for (size_t i = 0; i < some.count; i++) some.at[i] = some_memory(fuzz);
    if (random_one_in(fuzz, 8) && some.count > 0)
        some.at[some.count - 1].memory_type = (uint32_t)random_below(fuzz, 7);
    if (random_one_in(fuzz, 2)) return some;
    size_t count = 0;
    const size_t capacity = random_below(fuzz, MAX_DESCRIPTORS + 1);
    kvmem_nixl_descriptor *const into = capacity == 0 ? NULL : some.at;
    if (TRY(fuzz, kvmem_region_get_descriptors, table_pick(fuzz, REGIONS), into, capacity,
            or_null(fuzz, &count)) ==
        KVMEM_STATUS_OK && into != NULL)
        some.count = count;
    return some;
}

static void look(fuzz *fuzz) {
    kvmem_agent *agent = table_pick(fuzz, AGENTS);
    if (random_one_in(fuzz, 4)) CREATE(fuzz, PLUGINS, kvmem_agent_get_plugins, agent);
    CREATE(fuzz, PLUGINS, kvmem_agent_get_backends, agent);
    const kvmem_plugins *plugins = table_pick(fuzz, PLUGINS);
    for (size_t i = 0; plugins != NULL && i < plugins->count; i++) CHECK(plugins->items[i].name != NULL);
}

DESTROYS(destroy_plugins, PLUGINS)

static void register_segments(fuzz *fuzz) {
    kvmem_agent *agent = table_pick(fuzz, AGENTS);
    static const char *const names[] = {"UCX", "POSIX", "NOTHING"};
    const char *name = random_of(fuzz, names);
    FUZZ_OPTIONS(kvmem_nixl_options, options);
    options.backends = &name;
    options.backend_count = 1;
    options.struct_size = random_struct_size(fuzz, sizeof(options));
    const some some = some_descriptors(fuzz);
    CREATE(fuzz, SEGMENTS, kvmem_segments_register, agent, or_null(fuzz, some.at), some.count,
           random_one_in(fuzz, 2) ? NULL : &options);
}

TRIES(deregister_segments, kvmem_segments_deregister, SEGMENTS)
DESTROYS(destroy_segments, SEGMENTS)

static void view(fuzz *fuzz) {
    kvmem_agent *agent = table_pick(fuzz, AGENTS);
    const some some = some_descriptors(fuzz);
    void *handle = NULL;
    CREATE(fuzz, VIEWS, kvmem_memory_view_create, agent, some.at, some.count, NULL, or_null(fuzz, &handle));
    table_destroy(fuzz, VIEWS);
}

static void query(fuzz *fuzz) {
    kvmem_agent *agent = table_pick(fuzz, AGENTS);
    const kvmem_nixl_descriptor file = {
        .size = BLOCK, .memory_type = KVMEM_MEMORY_FILE, .metadata = "/dev/null", .metadata_size = 9};
    CREATE(fuzz, QUERIES, kvmem_agent_query, agent, &file, 1, NULL, random_timeout(fuzz));
    const kvmem_query *results = table_pick(fuzz, QUERIES);
    for (size_t i = 0; results != NULL && i < results->count; i++) CHECK(results->items[i].exists <= 1);
}

DESTROYS(destroy_query, QUERIES)

static void use_metadata(fuzz *fuzz) {
    kvmem_agent *agent = table_pick(fuzz, AGENTS);
    const some some = some_descriptors(fuzz);
    CREATE(fuzz, BLOBS, kvmem_agent_get_partial_metadata, agent, some.at, some.count, NULL);
    TRY(fuzz, kvmem_agent_send_partial_metadata, agent, some.at, some.count, or_null(fuzz, "127.0.0.1"),
        (uint32_t)random_below(fuzz, 3));
    TRY(fuzz, kvmem_agent_invalidate_local_metadata, agent, or_null(fuzz, "127.0.0.1"),
        (uint32_t)random_below(fuzz, 3));
    if (random_one_in(fuzz, 4)) {
        size_t count = 0;
        TRY(fuzz, kvmem_agent_invalidate_remote_metadata, agent, NULL, or_null(fuzz, &count));
    }
}

static void report(fuzz *fuzz) {
    kvmem_agent *agent = table_pick(fuzz, AGENTS);
    TRY(fuzz, kvmem_agent_report_notifications, agent, table_pick(fuzz, QUEUES), 1);
    if (random_one_in(fuzz, 2)) TRY(fuzz, kvmem_agent_report_notifications, agent, NULL, 0);
}

/* The steps of two agents that transfer raw descriptors. Each step may fail. */
static void meet_raw(fuzz *fuzz) {
    kvmem_agent *owner = table_pick_one(fuzz, AGENTS);
    kvmem_agent *reader = table_pick_one(fuzz, AGENTS);
    const char *name = DO(fuzz, kvmem_agent_name, owner);
    TRY(fuzz, kvmem_agent_create_backend, owner, "UCX", NULL, 0);
    TRY(fuzz, kvmem_agent_create_backend, reader, "UCX", NULL, 0);
    const kvmem_nixl_descriptor block = some_memory(fuzz);
    CREATE(fuzz, SEGMENTS, kvmem_segments_register, owner, &block, 1, NULL);
    CREATE(fuzz, SEGMENTS, kvmem_segments_register, reader, &block, 1, NULL);
    OWNED(kvmem_blob) metadata = NULL;
    TRY(fuzz, kvmem_agent_get_local_metadata, owner, &metadata);
    TRY(fuzz, kvmem_agent_load_remote_metadata, reader, kvmem_blob_data(metadata), kvmem_blob_size(metadata),
        NULL);
    TRY(fuzz, kvmem_agent_connect, reader, name, NULL, random_timeout(fuzz));
    kvmem_layout_config config;
    config = (kvmem_layout_config){.struct_size = sizeof(config)};
    config.order = KVMEM_ORDER_FULLY_CONTIGUOUS;
    config.num_blocks = config.num_layers = config.outer_dim = config.page_size = 1;
    config.inner_dim = random_one_in(fuzz, 8) ? BLOCK : BLOCK / 2;
    config.dtype_width = 2;
    CREATE(fuzz, LAYOUTS, kvmem_layout_create_remote, reader, name, &config, &block, 1);
    FUZZ_OPTIONS(kvmem_nixl_options, options);
    options.queue = table_pick(fuzz, QUEUES);
    options.flags = random_flags(fuzz, KVMEM_NIXL_NOTIFY | KVMEM_NIXL_SKIP_MERGE | KVMEM_NIXL_REPORT_RELEASE);
    const uint32_t operation = random_one_in(fuzz,
                                             20) ? 3 : KVMEM_REQUEST_READ + (uint32_t)random_below(fuzz, 2);
    CREATE(fuzz, REQUESTS, kvmem_request_create, reader, operation, &block, name, &block, 1, &options);
    CREATE(fuzz, PREPARED, kvmem_prepared_create, reader, NULL, &block, 1, NULL);
    CREATE(fuzz, PREPARED, kvmem_prepared_create, reader, name, &block, 1, NULL);
    OWNED(kvmem_prepared) local = NULL;
    OWNED(kvmem_prepared) remote = NULL;
    TRY(fuzz, kvmem_prepared_create, reader, NULL, &block, 1, NULL, &local);
    TRY(fuzz, kvmem_prepared_create, reader, name, &block, 1, NULL, &remote);
    const uint32_t zero[] = {0};
    CREATE(fuzz, REQUESTS, kvmem_request_make, operation, local, zero, remote, zero, 1, NULL);
}

static void make_request(fuzz *fuzz) {
    const kvmem_prepared *local = table_pick(fuzz, PREPARED);
    const kvmem_prepared *remote = table_pick(fuzz, PREPARED);
    const uint32_t indices[] = {0, (uint32_t)random_below(fuzz, 2)};
    CREATE(fuzz, REQUESTS, kvmem_request_make, KVMEM_REQUEST_WRITE, local, indices, remote, or_null(fuzz,
            indices),
           random_below(fuzz, 3), NULL);
}

static void use_request(fuzz *fuzz) {
    kvmem_request *request = table_pick(fuzz, REQUESTS);
    const size_t size = random_below(fuzz, 3);
    TRY(fuzz, kvmem_request_post, request, size > 0 ? "bytes" : NULL, size);
    TRY(fuzz, kvmem_request_poll, request);
    TRY(fuzz, kvmem_request_wait, request, random_one_in(fuzz, 3) ? random_timeout(fuzz) : 1000000000);
    CREATE(fuzz, BLOBS, kvmem_request_get_backend, request);
    kvmem_request_cost cost;
    TRY(fuzz, kvmem_request_estimate, request, or_null(fuzz, &cost));
    kvmem_request_telemetry telemetry;
    TRY(fuzz, kvmem_request_get_telemetry, request, or_null(fuzz, &telemetry));
    kvmem_agent_telemetry sums;
    TRY(fuzz, kvmem_agent_get_telemetry, table_pick(fuzz, AGENTS), or_null(fuzz, &sums));
}

DESTROYS(destroy_request, REQUESTS)
DESTROYS(destroy_prepared, PREPARED)

const operation raw_operations[] = {
    OPERATION_WITH(1, look, BIT(AGENTS), BIT(PLUGINS)),
    OPERATION_WITH(1, destroy_plugins, BIT(PLUGINS), 0),
    OPERATION_WITH(1, register_segments, BIT(AGENTS), BIT(SEGMENTS)),
    OPERATION_WITH(1, deregister_segments, BIT(SEGMENTS), 0),
    OPERATION_WITH(1, destroy_segments, BIT(SEGMENTS), 0),
    OPERATION_WITH(1, view, BIT(AGENTS), 0),
    OPERATION_WITH(2, query, BIT(AGENTS), BIT(QUERIES)),
    OPERATION_WITH(1, destroy_query, BIT(QUERIES), 0),
    OPERATION_WITH(1, use_metadata, BIT(AGENTS), 0),
    OPERATION_WITH(1, report, BIT(AGENTS) | BIT(QUEUES), 0),
    OPERATION_WITH(4, meet_raw, BIT(AGENTS), BIT(REQUESTS) | BIT(PREPARED) | BIT(SEGMENTS)),
    OPERATION_WITH(1, make_request, BIT(PREPARED), 0),
    OPERATION_WITH(3, use_request, BIT(REQUESTS), 0),
    OPERATION_WITH(1, destroy_request, BIT(REQUESTS), 0),
    OPERATION_WITH(1, destroy_prepared, BIT(PREPARED), 0),
    {0},
};
