// SPDX-License-Identifier: Apache-2.0
// Calls on agents and registrations: with the real NIXL, and two agents of this process that know each other.
#include "settings.h"
#include "table.h"

/* Agents with the same name are distinct agents, but a peer is identified by its name. */
static const char *const names[] = {"fuzz-a", "fuzz-b"};

static bool has_backend(const char *name) {
    return settings.nixl != NULL && strstr(settings.nixl, name) != NULL;
}

static void load_nixl(fuzz *fuzz) {
    static const char *const others[] = {"/nowhere", "", "/proc/self/exe"};
    TRY(fuzz, kvmem_nixl_load,
        settings.nixl == NULL || random_one_in(fuzz, 3) ? random_of(fuzz, others) : NULL);
}

static void get_nixl_path(fuzz *fuzz) {
    OWNED(kvmem_blob) path = NULL;
    TRY(fuzz, kvmem_nixl_get_path, or_null(fuzz, &path));
}

static void create_agent(fuzz *fuzz) {
    FUZZ_OPTIONS(kvmem_agent_options, options);
    if (settings.nixl == NULL) {
        return; /* without NIXL this always fails, see c_tests/nodeps */
    }
    options.flags = random_one_in(fuzz, 4) ? random_flags(fuzz, KVMEM_AGENT_NO_PROGRESS_THREAD) : 0;
    options.flags &= ~(uint64_t)KVMEM_AGENT_LISTEN_THREAD;
    options.sync_mode = random_one_in(fuzz, 4) ? (uint32_t)random_below(fuzz, 6) : 0;
    options.struct_size = random_struct_size(fuzz, sizeof(options));
    const char *name = random_one_in(fuzz, 20) ? "" : random_of(fuzz, names);
    CREATE(fuzz, AGENTS, kvmem_agent_create, or_null(fuzz, name), random_one_in(fuzz, 2) ? NULL : &options);
}

/* A backend that these settings enable. */
static const char *some_backend(fuzz *fuzz) {
    if (has_backend("UCX") && (!has_backend("POSIX") || random_one_in(fuzz, 2))) return "UCX";
    return has_backend("POSIX") ? "POSIX" : NULL;
}

static void create_backend(fuzz *fuzz) {
    static const char *const odd[] = {"", "NOTHING", "GDS"};
    const char *plugin = random_one_in(fuzz, 20) ? random_of(fuzz, odd) : some_backend(fuzz);
    TRY(fuzz, kvmem_agent_create_backend, table_pick(fuzz, AGENTS), plugin, NULL, random_one_in(fuzz, 40));
}

static void use_agent(fuzz *fuzz) {
    const kvmem_agent *agent = table_pick(fuzz, AGENTS);
    const char *name = DO(fuzz, kvmem_agent_name, agent);
    if ((agent == NULL) != (name == NULL)) fuzz_fail(fuzz, "the name is %s", name != NULL ? name : "NULL");
}

CREATES(get_metadata, BLOBS, kvmem_agent_get_local_metadata, AGENTS)

/* The steps to access a layout of another agent: metadata, descriptor, import. Each step may fail. */
static void meet(fuzz *fuzz) {
    kvmem_agent *owner = table_pick_one(fuzz, AGENTS);
    kvmem_agent *reader = table_pick_one(fuzz, AGENTS);
    const kvmem_layout *layout = table_pick_one(fuzz, LAYOUTS);
    OWNED(kvmem_blob) metadata = NULL;
    OWNED(kvmem_blob) descriptor = NULL;
    const char *backend = has_backend("UCX") ? "UCX" : some_backend(fuzz); /* POSIX sends no notifications */
    TRY(fuzz, kvmem_agent_create_backend, owner, backend, NULL, 0);
    TRY(fuzz, kvmem_agent_create_backend, reader, backend, NULL, 0);
    TRY(fuzz, kvmem_agent_get_local_metadata, owner, &metadata);
    TRY(fuzz, kvmem_agent_load_remote_metadata, reader, kvmem_blob_data(metadata), kvmem_blob_size(metadata),
        NULL);
    if (TRY(fuzz, kvmem_layout_export, layout, &descriptor) == KVMEM_STATUS_OK) {
        const void *data = kvmem_blob_data(descriptor);
        const size_t size = kvmem_blob_size(descriptor);
        CREATE(fuzz, LAYOUTS, kvmem_layout_import, reader, data, size);
    }
    const char *name = DO(fuzz, kvmem_agent_name, owner);
    if (TRY(fuzz, kvmem_agent_notify, reader, name, "met", 3) == KVMEM_STATUS_OK)
        CREATE(fuzz, NOTIFICATIONS, kvmem_agent_take_notifications, owner, 100000000);
    TRY(fuzz, kvmem_agent_check_remote_metadata, reader, name);
    if (random_one_in(fuzz, 3)) TRY(fuzz, kvmem_agent_invalidate_remote_metadata, reader, name, NULL);
}

/* Sometimes the bytes of another blob, which is not metadata. */
static void load_metadata(fuzz *fuzz) {
    const kvmem_blob *blob = table_pick(fuzz, BLOBS);
    const void *data = DO(fuzz, kvmem_blob_data, blob);
    const size_t size = DO(fuzz, kvmem_blob_size, blob);
    kvmem_agent *agent = table_pick(fuzz, AGENTS);
    if (random_one_in(fuzz, 2)) TRY(fuzz, kvmem_agent_load_remote_metadata, agent, data, size, NULL);
    else CREATE_IF(true, fuzz, BLOBS, kvmem_agent_load_remote_metadata, agent, data, size);
}

static const char *peer_name(fuzz *fuzz) {
    static const char *const odd[] = {"", "unknown", NULL};
    return random_one_in(fuzz, 8) ? random_of(fuzz, odd) : random_of(fuzz, names);
}

TRIES_WITH(check_metadata, kvmem_agent_check_remote_metadata, AGENTS, peer_name(fuzz))
TRIES_WITH(invalidate_metadata, kvmem_agent_invalidate_remote_metadata, AGENTS, peer_name(fuzz), NULL)

/* No agent here has a listen thread, because it would listen on all interfaces. */
static void fetch_metadata(fuzz *fuzz) {
    TRY(fuzz, kvmem_agent_fetch_remote_metadata, table_pick(fuzz, AGENTS), peer_name(fuzz),
        or_null(fuzz, "127.0.0.1"), (uint32_t)random_below(fuzz, 3), random_timeout(fuzz));
}

static void send_metadata(fuzz *fuzz) {
    TRY(fuzz, kvmem_agent_send_local_metadata, table_pick(fuzz, AGENTS), or_null(fuzz, "127.0.0.1"),
        (uint32_t)random_below(fuzz, 3));
}

static void notify(fuzz *fuzz) {
    const size_t size = random_below(fuzz, 6);
    TRY(fuzz, kvmem_agent_notify, table_pick(fuzz, AGENTS), peer_name(fuzz), size > 0 ? "bytes" : NULL, size);
}

static void take_notifications(fuzz *fuzz) {
    CREATE(fuzz, NOTIFICATIONS, kvmem_agent_take_notifications, table_pick(fuzz, AGENTS),
           random_timeout(fuzz));
}

static void use_notifications(fuzz *fuzz) {
    const kvmem_notifications *notifications = table_pick(fuzz, NOTIFICATIONS);
    for (size_t i = 0; notifications != NULL && i < notifications->count; i++) CHECK(notifications->items[i].agent != NULL);
}

DESTROYS(destroy_notifications, NOTIFICATIONS)

static void register_region(fuzz *fuzz) {
    kvmem_region *region = table_pick(fuzz, REGIONS);
    CREATE(fuzz, REGISTRATIONS, kvmem_region_register, region, table_pick(fuzz, AGENTS));
    CREATE(fuzz, BLOBS, kvmem_region_get_agent, region, 0);
}

TRIES(deregister, kvmem_registration_deregister, REGISTRATIONS)
DESTROYS(destroy_registration, REGISTRATIONS)
DESTROYS(destroy_agent, AGENTS)

const operation agent_operations[] = {
    OPERATION(1, load_nixl),
    OPERATION(1, get_nixl_path),
    OPERATION_WITH(4, create_agent, 0, BIT(AGENTS)),
    OPERATION_WITH(5, create_backend, BIT(AGENTS), 0),
    OPERATION_WITH(1, use_agent, BIT(AGENTS), 0),
    OPERATION_WITH(4, get_metadata, BIT(AGENTS), BIT(BLOBS)),
    OPERATION_WITH(6, meet, BIT(AGENTS) | BIT(LAYOUTS), BIT(NOTIFICATIONS)),
    OPERATION_WITH(6, load_metadata, BIT(AGENTS) | BIT(BLOBS), 0),
    OPERATION_WITH(1, check_metadata, BIT(AGENTS), 0),
    OPERATION_WITH(2, invalidate_metadata, BIT(AGENTS), 0),
    OPERATION_WITH(1, fetch_metadata, BIT(AGENTS), 0),
    OPERATION_WITH(1, send_metadata, BIT(AGENTS), 0),
    OPERATION_WITH(3, notify, BIT(AGENTS), 0),
    OPERATION_WITH(2, take_notifications, BIT(AGENTS), 0),
    OPERATION_WITH(4, use_notifications, BIT(NOTIFICATIONS), 0),
    OPERATION_WITH(1, destroy_notifications, BIT(NOTIFICATIONS), 0),
    OPERATION_WITH(8, register_region, BIT(REGIONS) | BIT(AGENTS), BIT(REGISTRATIONS)),
    OPERATION_WITH(3, deregister, BIT(REGISTRATIONS), 0),
    OPERATION_WITH(4, destroy_registration, BIT(REGISTRATIONS), 0),
    OPERATION_WITH(2, destroy_agent, BIT(AGENTS), 0),
    {0},
};
