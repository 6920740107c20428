// SPDX-License-Identifier: Apache-2.0
// Calls on raw descriptors: lists, registered segments, queries, prepared lists and requests of NIXL. All
// addresses belong to memory and files that exist as long as the process, because NIXL cannot check them.
#include "settings.h"
#include "table.h"

#define BLOCK 4096
#define NUM_BLOCKS 8

static unsigned char memory[NUM_BLOCKS * BLOCK];

static kvmem_descriptor some_descriptor(fuzz *fuzz) {
    const uint64_t block = random_below(fuzz, NUM_BLOCKS);
    return (kvmem_descriptor){.address = (uintptr_t)memory + block * BLOCK, .size = BLOCK};
}

static void create_list(fuzz *fuzz) {
    const uint32_t type = random_one_in(fuzz, 8) ? (uint32_t)random_below(fuzz, 7) : KVMEM_MEMORY_DRAM;
    CREATE(fuzz, DESCRIPTORS, kvmem_descriptors_create, type);
}

static void add_descriptors(fuzz *fuzz) {
    const kvmem_descriptor added[] = {some_descriptor(fuzz), some_descriptor(fuzz)};
    TRY(fuzz, kvmem_descriptors_add, table_pick(fuzz, DESCRIPTORS), or_null(fuzz, added), random_below(fuzz,
            3));
}

static void add_region(fuzz *fuzz) {
    kvmem_descriptors *list = table_pick(fuzz, DESCRIPTORS);
    TRY(fuzz, kvmem_descriptors_add_region, list, table_pick(fuzz, REGIONS));
}

static void change_list(fuzz *fuzz) {
    kvmem_descriptors *list = table_pick(fuzz, DESCRIPTORS);
    const size_t count = DO(fuzz, kvmem_descriptors_count, list);
    const kvmem_descriptor other = some_descriptor(fuzz);
    kvmem_descriptor got;
    TRY(fuzz, kvmem_descriptors_get, list, random_index(fuzz, count), or_null(fuzz, &got));
    TRY(fuzz, kvmem_descriptors_set, list, random_index(fuzz, count), or_null(fuzz, &other));
    DO(fuzz, kvmem_descriptors_memory_type, list);
    TRY(fuzz, kvmem_descriptors_trim, list);
    switch (random_below(fuzz, 4)) {
    case 0: TRY(fuzz, kvmem_descriptors_remove, list, random_index(fuzz, count)); break;
    case 1: TRY(fuzz, kvmem_descriptors_resize, list, random_below(fuzz, count + 1)); break;
    case 2: TRY(fuzz, kvmem_descriptors_clear, list); break;
    default: break;
    }
}

static void write_list(fuzz *fuzz) {
    const kvmem_descriptors *list = table_pick(fuzz, DESCRIPTORS);
    CREATE(fuzz, BLOBS, kvmem_descriptors_print, list);
    CREATE(fuzz, BLOBS, kvmem_descriptors_export, list);
}

static void read_list(fuzz *fuzz) {
    OWNED(kvmem_blob) blob = NULL;
    TRY(fuzz, kvmem_descriptors_export, table_pick(fuzz, DESCRIPTORS), &blob);
    const void *data = DO(fuzz, kvmem_blob_data, blob);
    const size_t size = DO(fuzz, kvmem_blob_size, blob);
    CREATE(fuzz, DESCRIPTORS, kvmem_descriptors_import, data, size - (size > 0 && random_one_in(fuzz, 8)));
}

DESTROYS(destroy_list, DESCRIPTORS)

static void look(fuzz *fuzz) {
    kvmem_agent *agent = table_pick(fuzz, AGENTS);
    if (random_one_in(fuzz, 4)) CREATE(fuzz, PLUGINS, kvmem_agent_get_plugins, agent);
    CREATE(fuzz, PLUGINS, kvmem_agent_get_backends, agent);
    const kvmem_plugins *plugins = table_pick(fuzz, PLUGINS);
    const size_t count = DO(fuzz, kvmem_plugins_count, plugins);
    kvmem_plugin plugin;
    TRY(fuzz, kvmem_plugins_get, plugins, random_index(fuzz, count), or_null(fuzz, &plugin));
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
    CREATE(fuzz, SEGMENTS, kvmem_segments_register, agent, table_pick(fuzz, DESCRIPTORS),
           random_one_in(fuzz, 2) ? NULL : &options);
}

TRIES(deregister_segments, kvmem_segments_deregister, SEGMENTS)
DESTROYS(destroy_segments, SEGMENTS)

static void view(fuzz *fuzz) {
    kvmem_agent *agent = table_pick(fuzz, AGENTS);
    CREATE(fuzz, VIEWS, kvmem_memory_view_create, agent, table_pick(fuzz, DESCRIPTORS), NULL);
    DO(fuzz, kvmem_memory_view_handle, table_pick(fuzz, VIEWS));
    table_destroy(fuzz, VIEWS);
}

static void query(fuzz *fuzz) {
    kvmem_agent *agent = table_pick(fuzz, AGENTS);
    const kvmem_descriptor file = {.size = BLOCK, .metadata = "/dev/null", .metadata_size = 9};
    OWNED(kvmem_descriptors) files = NULL;
    TRY(fuzz, kvmem_descriptors_create, KVMEM_MEMORY_FILE, &files);
    TRY(fuzz, kvmem_descriptors_add, files, &file, 1);
    CREATE(fuzz, QUERIES, kvmem_agent_query, agent, files, NULL);
    const kvmem_query *results = table_pick(fuzz, QUERIES);
    const size_t count = DO(fuzz, kvmem_query_count, results);
    kvmem_query_result result;
    TRY(fuzz, kvmem_query_get, results, random_index(fuzz, count), or_null(fuzz, &result));
}

DESTROYS(destroy_query, QUERIES)

static void use_metadata(fuzz *fuzz) {
    kvmem_agent *agent = table_pick(fuzz, AGENTS);
    const kvmem_descriptors *list = table_pick(fuzz, DESCRIPTORS);
    CREATE(fuzz, BLOBS, kvmem_agent_get_partial_metadata, agent, list, NULL);
    TRY(fuzz, kvmem_agent_send_partial_metadata, agent, list, or_null(fuzz, "127.0.0.1"),
        (uint32_t)random_below(fuzz, 3));
    TRY(fuzz, kvmem_agent_invalidate_local_metadata, agent, or_null(fuzz, "127.0.0.1"),
        (uint32_t)random_below(fuzz, 3));
    if (random_one_in(fuzz, 4)) {
        size_t count = 0;
        TRY(fuzz, kvmem_agent_invalidate_all_remote_metadata, agent, or_null(fuzz, &count));
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
    OWNED(kvmem_descriptors) list = NULL;
    TRY(fuzz, kvmem_descriptors_create, KVMEM_MEMORY_DRAM, &list);
    const kvmem_descriptor block = some_descriptor(fuzz);
    TRY(fuzz, kvmem_descriptors_add, list, &block, 1);
    CREATE(fuzz, SEGMENTS, kvmem_segments_register, owner, list, NULL);
    CREATE(fuzz, SEGMENTS, kvmem_segments_register, reader, list, NULL);
    OWNED(kvmem_blob) metadata = NULL;
    TRY(fuzz, kvmem_agent_get_local_metadata, owner, &metadata);
    TRY(fuzz, kvmem_agent_load_remote_metadata, reader, kvmem_blob_data(metadata), kvmem_blob_size(metadata),
        NULL);
    TRY(fuzz, kvmem_agent_connect, reader, name, NULL);
    kvmem_layout_config config;
    config = (kvmem_layout_config){.struct_size = sizeof(config)};
    config.order = KVMEM_ORDER_FULLY_CONTIGUOUS;
    config.num_blocks = config.num_layers = config.outer_dim = config.page_size = 1;
    config.inner_dim = random_one_in(fuzz, 8) ? BLOCK : BLOCK / 2;
    config.dtype_width = 2;
    CREATE(fuzz, LAYOUTS, kvmem_layout_create_remote, reader, name, &config, list);
    FUZZ_OPTIONS(kvmem_nixl_options, options);
    options.queue = table_pick(fuzz, QUEUES);
    options.flags = random_flags(fuzz, KVMEM_NIXL_NOTIFY | KVMEM_NIXL_SKIP_MERGE);
    const uint32_t operation = random_one_in(fuzz,
                                             20) ? 3 : KVMEM_REQUEST_READ + (uint32_t)random_below(fuzz, 2);
    CREATE(fuzz, REQUESTS, kvmem_request_create, reader, operation, list, name, list, &options);
    CREATE(fuzz, PREPARED, kvmem_prepared_create, reader, NULL, list, NULL);
    CREATE(fuzz, PREPARED, kvmem_prepared_create, reader, name, list, NULL);
    OWNED(kvmem_prepared) local = NULL;
    OWNED(kvmem_prepared) remote = NULL;
    TRY(fuzz, kvmem_prepared_create, reader, NULL, list, NULL, &local);
    TRY(fuzz, kvmem_prepared_create, reader, name, list, NULL, &remote);
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
    OPERATION_WITH(2, create_list, 0, BIT(DESCRIPTORS)),
    OPERATION_WITH(3, add_descriptors, BIT(DESCRIPTORS), 0),
    OPERATION_WITH(2, add_region, BIT(DESCRIPTORS) | BIT(REGIONS), 0),
    OPERATION_WITH(2, change_list, BIT(DESCRIPTORS), 0),
    OPERATION_WITH(1, write_list, BIT(DESCRIPTORS), 0),
    OPERATION_WITH(1, read_list, BIT(DESCRIPTORS), 0),
    OPERATION_WITH(1, destroy_list, BIT(DESCRIPTORS), 0),
    OPERATION_WITH(1, look, BIT(AGENTS), BIT(PLUGINS)),
    OPERATION_WITH(1, destroy_plugins, BIT(PLUGINS), 0),
    OPERATION_WITH(1, register_segments, BIT(AGENTS) | BIT(DESCRIPTORS), BIT(SEGMENTS)),
    OPERATION_WITH(1, deregister_segments, BIT(SEGMENTS), 0),
    OPERATION_WITH(1, destroy_segments, BIT(SEGMENTS), 0),
    OPERATION_WITH(1, view, BIT(AGENTS) | BIT(DESCRIPTORS), 0),
    OPERATION_WITH(2, query, BIT(AGENTS), BIT(QUERIES)),
    OPERATION_WITH(1, destroy_query, BIT(QUERIES), 0),
    OPERATION_WITH(1, use_metadata, BIT(AGENTS) | BIT(DESCRIPTORS), 0),
    OPERATION_WITH(1, report, BIT(AGENTS) | BIT(QUEUES), 0),
    OPERATION_WITH(4, meet_raw, BIT(AGENTS), BIT(REQUESTS) | BIT(PREPARED) | BIT(SEGMENTS)),
    OPERATION_WITH(1, make_request, BIT(PREPARED), 0),
    OPERATION_WITH(3, use_request, BIT(REQUESTS), 0),
    OPERATION_WITH(1, destroy_request, BIT(REQUESTS), 0),
    OPERATION_WITH(1, destroy_prepared, BIT(PREPARED), 0),
    {0},
};
