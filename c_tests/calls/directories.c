// SPDX-License-Identifier: Apache-2.0
// Calls on directories in a folder of the fuzzer, which the agents of this process share.
#include "owned.h"
#include "settings.h"
#include "table.h"

static const char *const names[] = {"fuzz-a", "fuzz-b", "fuzz-c"};

static void create_directory(fuzz *fuzz) {
    FUZZ_OPTIONS(kvmem_directory_options, options);
    options.folder = random_one_in(fuzz, 30) ? "/nowhere/folder" : or_null(fuzz, owned_folder_path());
    options.struct_size = random_struct_size(fuzz, sizeof(options));
    CREATE(fuzz, DIRECTORIES, kvmem_directory_create, or_null(fuzz, &options));
}

static uint64_t patience(fuzz *fuzz) {
    return random_one_in(fuzz, 4) ? random_timeout(fuzz) : SECONDS(1);
}

static void publish(fuzz *fuzz) {
    const kvmem_directory *directory = table_pick(fuzz, DIRECTORIES);
    kvmem_agent *agent = table_pick(fuzz, AGENTS);
    const kvmem_share_options share = OPTIONS(kvmem_share_options, it.flags = random_below(fuzz, 4));
    const kvmem_broker *broker = random_one_in(fuzz, 2) ? table_pick(fuzz, BROKERS) : NULL;
    const kvmem_named_layout layouts[] = {
        {.name = or_null(fuzz, "one"), .layout = table_pick(fuzz, LAYOUTS), .broker = broker,
         .share = random_one_in(fuzz, 2) ? &share : NULL},
        {.name = random_one_in(fuzz, 10) ? "one" : "two", .layout = table_pick(fuzz, LAYOUTS), .broker = broker},
    };
    const size_t count = random_one_in(fuzz, 2) ? 0 : random_below(fuzz, 3);
    TRY(fuzz, kvmem_directory_publish, directory, agent, or_null(fuzz, layouts), count, patience(fuzz));
}

static void withdraw(fuzz *fuzz) {
    const kvmem_directory *directory = table_pick(fuzz, DIRECTORIES);
    TRY(fuzz, kvmem_directory_withdraw, directory, or_null(fuzz, random_of(fuzz, names)), patience(fuzz));
}

static void look_up(fuzz *fuzz) {
    const kvmem_directory *directory = table_pick(fuzz, DIRECTORIES);
    const char *name = random_one_in(fuzz, 30) ? "" : random_of(fuzz, names);
    CREATE(fuzz, ENTRIES, kvmem_directory_look_up, directory, or_null(fuzz, name), patience(fuzz));
}

static void connect_peer(fuzz *fuzz) {
    const kvmem_directory *directory = table_pick(fuzz, DIRECTORIES);
    kvmem_agent *agent = random_one_in(fuzz, 3) ? NULL : table_pick(fuzz, AGENTS);
    /* It waits for a name that may never be published. */
    const uint64_t timeout = random_one_in(fuzz, 4) ? random_timeout(fuzz) : MILLISECONDS(200);
    CREATE(fuzz, ENTRIES, kvmem_directory_connect, directory, agent, or_null(fuzz, random_of(fuzz, names)), timeout);
}

static void use_entry(fuzz *fuzz) {
    const kvmem_directory_entry *entry = table_pick(fuzz, ENTRIES);
    kvmem_agent *agent = table_pick(fuzz, AGENTS);
    kvmem_directory_entry_info info = {0};
    TRY(fuzz, kvmem_directory_entry_get_info, entry, or_null(fuzz, &info));
    TRY(fuzz, kvmem_directory_check, table_pick(fuzz, DIRECTORIES), entry, patience(fuzz));
    TRY(fuzz, kvmem_directory_entry_load, entry, agent);
    FUZZ_OPTIONS(kvmem_open_options, opening);
    opening.flags = random_one_in(fuzz, 2) ? 0 : UINT64_C(1) << random_below(fuzz, 10);
    opening.agent = or_null(fuzz, agent);
    opening.struct_size = random_struct_size(fuzz, sizeof(opening));
    CREATE(fuzz, LAYOUTS, kvmem_directory_entry_open_layout, entry, or_null(fuzz, random_one_in(fuzz, 2) ? "one" : "two"),
           or_null(fuzz, &opening), patience(fuzz));
}

static void watch(fuzz *fuzz) {
    const kvmem_directory *directory = table_pick(fuzz, DIRECTORIES);
    const char *name = random_one_in(fuzz, 2) ? NULL : random_of(fuzz, names);
    if (random_one_in(fuzz, 3)) {
        TRY(fuzz, kvmem_directory_unwatch, directory, name, patience(fuzz));
    } else {
        TRY(fuzz, kvmem_directory_watch, directory, name, patience(fuzz));
    }
    TRY(fuzz, kvmem_directory_report_events, directory,
        random_one_in(fuzz, 2) ? NULL : table_pick(fuzz, QUEUES), 5);
}

static void take_events(fuzz *fuzz) {
    CREATE(fuzz, EVENTS, kvmem_directory_take_events, table_pick(fuzz, DIRECTORIES), random_timeout(fuzz));
}

static void use_events(fuzz *fuzz) {
    const kvmem_directory_events *events = table_pick(fuzz, EVENTS);
    for (size_t i = 0; events != NULL && i < events->count; i++) CHECK(events->items[i].agent != NULL && events->items[i].message != NULL);
}

/* The steps of a peer: watch, receive an event, look up and load. Each step may fail. */
static void meet(fuzz *fuzz) {
    const kvmem_directory *directory = table_pick_one(fuzz, DIRECTORIES);
    kvmem_agent *owner = table_pick_one(fuzz, AGENTS);
    kvmem_agent *reader = table_pick_one(fuzz, AGENTS);
    const char *name = DO(fuzz, kvmem_agent_name, owner);
    TRY(fuzz, kvmem_agent_create_backend, owner, "UCX", NULL, 0);
    TRY(fuzz, kvmem_agent_create_backend, reader, "UCX", NULL, 0);
    TRY(fuzz, kvmem_directory_watch, directory, NULL, SECONDS(1));
    kvmem_layout_config config;
    config = (kvmem_layout_config){.struct_size = sizeof(config)};
    config.order = KVMEM_ORDER_FULLY_CONTIGUOUS;
    config.num_blocks = config.num_layers = config.outer_dim = config.page_size = 1;
    config.inner_dim = config.dtype_width = 1;
    const kvmem_system_options memory = OPTIONS(kvmem_system_options);
    OWNED(kvmem_layout) layout = NULL;
    FUZZ_OPTIONS(kvmem_layout_options, options);
    options.source = KVMEM_LAYOUT_ALLOCATE;
    options.config = &config;
    options.agent = owner;
    options.system = &memory;
    TRY(fuzz, kvmem_layout_build, &options, &layout);
    const kvmem_named_layout layouts[] = {{.name = "one", .layout = layout}};
    TRY(fuzz, kvmem_directory_publish, directory, owner, layouts, layout != NULL, SECONDS(1));
    /* Without agents there are no events. */
    CREATE(fuzz, EVENTS, kvmem_directory_take_events, directory, MILLISECONDS(owner != NULL ? 100 : 1));
    OWNED(kvmem_directory_entry) entry = NULL;
    if (random_one_in(fuzz, 2)) {
        TRY(fuzz, kvmem_directory_connect, directory, reader, name, SECONDS(1), &entry);
    } else {
        TRY(fuzz, kvmem_directory_look_up, directory, name, SECONDS(1), &entry);
        TRY(fuzz, kvmem_directory_entry_load, entry, reader);
    }
    const kvmem_open_options opening = OPTIONS(kvmem_open_options, it.agent = reader,
                                               it.flags = random_one_in(fuzz, 2) ? KVMEM_OPEN_REMOTE : 0);
    CREATE(fuzz, LAYOUTS, kvmem_directory_entry_open_layout, entry, "one", &opening, SECONDS(1));
    kvmem_directory_entry_info info;
    TRY(fuzz, kvmem_directory_entry_get_info, entry, &info);
    TRY(fuzz, kvmem_directory_check, directory, entry, SECONDS(1));
    TRY(fuzz, kvmem_directory_withdraw, directory, name, SECONDS(1));
    TRY(fuzz, kvmem_directory_unwatch, directory, NULL, SECONDS(1));
}

DESTROYS(destroy_directory, DIRECTORIES)
DESTROYS(destroy_entry, ENTRIES)
DESTROYS(destroy_events, EVENTS)

const operation directory_operations[] = {
    OPERATION_WITH(1, create_directory, 0, BIT(DIRECTORIES)),
    OPERATION_WITH(2, publish, BIT(DIRECTORIES) | BIT(AGENTS) | BIT(LAYOUTS), 0),
    OPERATION_WITH(1, withdraw, BIT(DIRECTORIES), 0),
    OPERATION_WITH(1, look_up, BIT(DIRECTORIES), 0),
    OPERATION_WITH(1, connect_peer, BIT(DIRECTORIES) | BIT(AGENTS), 0),
    OPERATION_WITH(1, use_entry, BIT(ENTRIES) | BIT(AGENTS), 0),
    OPERATION_WITH(1, watch, BIT(DIRECTORIES), 0),
    OPERATION_WITH(1, take_events, BIT(DIRECTORIES), 0),
    OPERATION_WITH(1, use_events, BIT(EVENTS), 0),
    OPERATION_WITH(3, meet, BIT(DIRECTORIES) | BIT(AGENTS), BIT(ENTRIES) | BIT(EVENTS)),
    OPERATION_WITH(1, destroy_directory, BIT(DIRECTORIES), 0),
    OPERATION_WITH(1, destroy_entry, BIT(ENTRIES), 0),
    OPERATION_WITH(1, destroy_events, BIT(EVENTS), 0),
    {0},
};
