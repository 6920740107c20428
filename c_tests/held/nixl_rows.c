// SPDX-License-Identifier: Apache-2.0
// Every function that waits for NIXL, with the stand-in for NIXL, while one of NIXL's calls does not return: it ends at the limit of
// its agent, or at its own deadline. Other agents work, also with the same region.
#include "held.h"

#include "completions.h"
#include "stand_in.h"

HELD_CASES

enum { PAGE = 4096, WHOLE, FRESH, DOOMED, SEGMENT, DOOMED_SEGMENT, REMOTE, NUM_PAGES = REMOTE + 1 - WHOLE };

static unsigned char memory[NUM_PAGES * PAGE] __attribute__((aligned(PAGE)));

static unsigned char *page(int which) { return memory + (which - WHOLE) * PAGE; }

/* Objects of the agent 'near', by kind. Those that are doomed are there for the function that destroys such
   an object. */
typedef struct objects {
    kvmem_agent *near, *far, *other, *doomed_agent;
    kvmem_region *region, *fresh, *doomed_region;
    kvmem_registration *registration, *doomed_registration;
    kvmem_layout_config config;
    kv_side side, far_side;
    kvmem_layout *local, *remote, *shareable, *doomed_layout;
    kvmem_lease *lease; /* of `remote` */
    message far_metadata, descriptor;
    kvmem_queue *queue;
    kvmem_transfer *transfer, *doomed_transfer;
    kvmem_nixl_descriptor memory, remote_memory;
    kvmem_segments *segments, *doomed_segments;
    kvmem_prepared *prepared, *prepared_remote, *doomed_prepared;
    kvmem_request *request, *doomed_request;
    kvmem_memory_view *view, *doomed_view;
    scratch folder;
    kvmem_directory *directory;
    kvmem_directory_entry *entry;
    kvmem_share *share; /* of the layout of 'far' */
} objects;
static objects all;
static objects *const o = &all;

static kvmem_region *adopt(int which) {
    return MADE(kvmem_region, kvmem_region_adopt_host,
                REF(OPTIONS(kvmem_adopt_options, it.address = page(which), it.size = PAGE)));
}

static kvmem_layout *allocate_layout(void) {
    const kvmem_system_options system = OPTIONS(kvmem_system_options, it.flags = KVMEM_SYSTEM_SHAREABLE);
    return MADE(kvmem_layout, kvmem_layout_build,
                REF(OPTIONS(kvmem_layout_options, it.source = KVMEM_LAYOUT_ALLOCATE, it.config = &o->config,
                            it.agent = o->near, it.system = &system)));
}

static kvmem_transfer *create_transfer(const kvmem_layout *to) {
    static const kvmem_block_pair pair = {0, 0};
    return MADE(kvmem_transfer, kv_prepare, o->remote, to,
                REF(JOB(it.run.pairs = &pair, it.run.num_pairs = 1, it.transfer.queue = o->queue,
                        it.run.run_timeout_ns = held_limit(), it.transfer.method = KVMEM_METHOD_NIXL)));
}

static const kvmem_lease_options *lease_options(void) {
    static kvmem_lease_options options;
    options = (kvmem_lease_options){.struct_size = sizeof(options), .timeout_ns = held_limit()};
    return &options;
}

void held_open(void) {
    nixl_find_stand_in();
    NIXL(nixl_sim_set_routing(1));
    NIXL(nixl_sim_set_moving(UINT64_MAX));
    const kvmem_agent_options options = OPTIONS(kvmem_agent_options, it.call_timeout_ns = held_limit(),
                                                it.flags = KVMEM_AGENT_TELEMETRY);
    o->near = MADE(kvmem_agent, kvmem_agent_create, "near", &options);
    EXPECT_OK(kvmem_agent_create_backend(o->near, "UCX", NULL, 0, ERR));
    o->far = agent_open("far");
    o->other = agent_open("other");
    o->doomed_agent = MADE(kvmem_agent, kvmem_agent_create, "doomed", &options);
    o->config = kv_config(&kv_kinds[0]);
    kv_side_open(&o->side, &o->config, o->near, 1);
    kv_side_open(&o->far_side, &o->config, o->far, 2);
    EXPECT_OK(kvmem_layout_serve(o->far_side.layout, NULL, ERR));
    o->far_metadata = agent_metadata(o->far);
    o->descriptor = layout_descriptor(o->far_side.layout);
    agent_load(o->near, &o->far_metadata);
    o->local = o->side.layout;
    EXPECT_OK(kvmem_layout_import(o->near, o->descriptor.data, o->descriptor.size, &o->remote, ERR));
    o->lease = MADE(kvmem_lease, kvmem_lease_create, o->remote, REF((uint32_t){0}), 1, lease_options());
    o->shareable = allocate_layout();
    o->doomed_layout = allocate_layout();
    o->queue = MADE(kvmem_queue, kvmem_queue_create);
    o->transfer = create_transfer(o->local);
    o->region = adopt(WHOLE);
    o->registration = MADE(kvmem_registration, kvmem_region_register, o->region, o->near);
    o->fresh = adopt(FRESH);
    o->doomed_region = adopt(DOOMED);
    o->doomed_registration = MADE(kvmem_registration, kvmem_region_register, o->doomed_region, o->near);
    o->memory = memory_at(page(SEGMENT), PAGE);
    o->remote_memory = memory_at(page(REMOTE), PAGE);
    const kvmem_nixl_descriptor doomed = memory_at(page(DOOMED_SEGMENT), PAGE);
    o->segments = MADE(kvmem_segments, kvmem_segments_register, o->near, &o->memory, 1, NULL);
    o->doomed_segments = MADE(kvmem_segments, kvmem_segments_register, o->near, &doomed, 1, NULL);
    o->prepared = MADE(kvmem_prepared, kvmem_prepared_create, o->near, NULL, &o->memory, 1, NULL);
    o->prepared_remote = MADE(kvmem_prepared, kvmem_prepared_create, o->near, "far", &o->remote_memory, 1,
                              NULL);
    o->doomed_prepared = MADE(kvmem_prepared, kvmem_prepared_create, o->near, NULL, &o->memory, 1, NULL);
    const kvmem_nixl_options soon = OPTIONS(kvmem_nixl_options, it.run_timeout_ns = held_limit());
    o->request = MADE(kvmem_request, kvmem_request_create, o->near, KVMEM_REQUEST_READ, &o->memory, "far",
                      &o->remote_memory, 1,
                      &soon);
    do EXPECT_OK(kvmem_request_post(o->request, NULL, 0, ERR));
    while (kvmem_request_wait(o->request, PATIENCE, ERR) == KVMEM_STATUS_TIMED_OUT);
    o->doomed_request = MADE(kvmem_request, kvmem_request_create, o->near, KVMEM_REQUEST_READ, &o->memory,
                             "far",
                             &o->remote_memory, 1, NULL);
    void *handle = NULL;
    o->view = MADE(kvmem_memory_view, kvmem_memory_view_create, o->near, &o->memory, 1, NULL, &handle);
    CHECK(handle != NULL);
    o->doomed_view = MADE(kvmem_memory_view, kvmem_memory_view_create, o->near, &o->memory, 1, NULL, &handle);
    o->folder = scratch_create(temporary_directory());
    o->directory = MADE(kvmem_directory, kvmem_directory_create,
                        REF(OPTIONS(kvmem_directory_options, it.folder = o->folder.path)));
    const kvmem_named_layout cache = {.name = "cache", .layout = o->far_side.layout};
    EXPECT_OK(kvmem_directory_publish(o->directory, o->far, &cache, 1, PATIENCE, ERR));
    EXPECT_OK(kvmem_directory_look_up(o->directory, "far", PATIENCE, &o->entry, ERR));
    o->share = MADE(kvmem_share, kvmem_share_create_layout, o->far_side.layout,
                    REF(OPTIONS(kvmem_share_options, it.transport = KVMEM_SHARE_REMOTE)));
}

void held_close(void) {
    kvmem_share_destroy(o->share);
    kvmem_directory_entry_destroy(o->entry);
    kvmem_directory_destroy(o->directory);
    scratch_remove(&o->folder);
    kvmem_memory_view_destroy(o->view);
    kvmem_memory_view_destroy(o->doomed_view);
    kvmem_request_destroy(o->request);
    kvmem_request_destroy(o->doomed_request);
    kvmem_prepared_destroy(o->prepared);
    kvmem_prepared_destroy(o->prepared_remote);
    kvmem_prepared_destroy(o->doomed_prepared);
    kvmem_segments_destroy(o->segments);
    kvmem_segments_destroy(o->doomed_segments);
    kvmem_registration_destroy(o->registration);
    kvmem_registration_destroy(o->doomed_registration);
    kvmem_region_destroy(o->region);
    kvmem_region_destroy(o->fresh);
    kvmem_region_destroy(o->doomed_region);
    kvmem_transfer_destroy(o->transfer);
    kvmem_transfer_destroy(o->doomed_transfer);
    kvmem_lease_destroy(o->lease);
    kvmem_queue_destroy(o->queue);
    kvmem_layout_destroy(o->remote);
    kvmem_layout_destroy(o->shareable);
    kvmem_layout_destroy(o->doomed_layout);
    message_free(&o->far_metadata);
    message_free(&o->descriptor);
    kv_side_close(&o->side);
    kv_side_close(&o->far_side);
    kvmem_agent_destroy(o->near);
    kvmem_agent_destroy(o->far);
    kvmem_agent_destroy(o->other);
    kvmem_agent_destroy(o->doomed_agent);
}

#define FUNCTION(name) static kvmem_status name(void)
#define MAKES(name, type, ...)                                                                       \
    FUNCTION(name) { return TRIED(type, __VA_ARGS__); }
#define CALLS(name, call)                                                                            \
    FUNCTION(name) { return call; }
#define DESTROYS(name, type, handle)                                                                 \
    FUNCTION(name) {                                                                                 \
        type##_destroy(handle);                                                                      \
        handle = NULL;                                                                               \
        return KVMEM_STATUS_OK;                                                                      \
    }

MAKES(register_region, kvmem_registration, kvmem_region_register, o->fresh, o->near)
CALLS(deregister_region, kvmem_registration_deregister(o->doomed_registration, ERR))
DESTROYS(destroy_registration, kvmem_registration, o->doomed_registration)
/* While NIXL still deregisters it for the earlier registration. */
FUNCTION(register_again) {
    destroy_registration();
    return TRIED(kvmem_registration, kvmem_region_register, o->doomed_region, o->near);
}
MAKES(register_segments, kvmem_segments, kvmem_segments_register, o->near, &o->remote_memory, 1, NULL)
CALLS(deregister_segments, kvmem_segments_deregister(o->doomed_segments, ERR))
DESTROYS(destroy_segments, kvmem_segments, o->doomed_segments)
MAKES(create_agent, kvmem_agent, kvmem_agent_create, "late",
      REF(OPTIONS(kvmem_agent_options, it.call_timeout_ns = held_limit())))
CALLS(create_backend, kvmem_agent_create_backend(o->near, "POSIX", NULL, 0, ERR))
MAKES(get_plugins, kvmem_plugins, kvmem_agent_get_plugins, o->near)
MAKES(get_backends, kvmem_plugins, kvmem_agent_get_backends, o->near)
MAKES(get_metadata, kvmem_blob, kvmem_agent_get_local_metadata, o->near)
MAKES(get_partial, kvmem_blob, kvmem_agent_get_partial_metadata, o->near, &o->memory, 1, NULL)
MAKES(load, kvmem_blob, kvmem_agent_load_remote_metadata, o->near, o->far_metadata.data, o->far_metadata.size)
CALLS(load_entry, kvmem_directory_entry_load(o->entry, o->near, ERR))
MAKES(connect_by_directory, kvmem_directory_entry, kvmem_directory_connect, o->directory, o->near, "far",
      held_limit())
MAKES(open_by_directory, kvmem_layout, kvmem_directory_entry_open_layout, o->entry, "cache",
      REF(OPTIONS(kvmem_open_options, it.flags = KVMEM_OPEN_REMOTE, it.agent = o->near)), held_limit())
MAKES(open_share, kvmem_layout, kvmem_share_open_layout, o->share,
      REF(OPTIONS(kvmem_open_options, it.flags = KVMEM_OPEN_REMOTE, it.agent = o->near)))
CALLS(publish, kvmem_directory_publish(o->directory, o->near, NULL, 0, held_limit(), ERR))
CALLS(check, kvmem_agent_check_remote_metadata(o->near, "stranger", ERR))
CALLS(invalidate, kvmem_agent_invalidate_remote_metadata(o->near, "far", NULL, ERR))
CALLS(invalidate_all, kvmem_agent_invalidate_remote_metadata(o->near, NULL, NULL, ERR))
CALLS(notify, kvmem_agent_notify(o->near, "far", "x", 1, ERR))
/* It calls nothing of NIXL, and waits for the calls before it. */
FUNCTION(get_sums) {
    (void)notify();
    return kvmem_agent_get_telemetry(o->near, &(kvmem_agent_telemetry){0}, ERR);
}
CALLS(connect_peer, kvmem_agent_connect(o->near, "far", NULL, KVMEM_TIMEOUT_FOREVER, ERR))
CALLS(connect_soon, kvmem_agent_connect(o->near, "far", NULL, held_limit(), ERR))
MAKES(take, kvmem_notifications, kvmem_agent_take_notifications, o->near, MILLISECONDS(20))
MAKES(query, kvmem_query, kvmem_agent_query, o->near, &o->memory, 1, NULL, KVMEM_TIMEOUT_FOREVER)
MAKES(prepare, kvmem_prepared, kvmem_prepared_create, o->near, NULL, &o->memory, 1, NULL)
DESTROYS(destroy_prepared, kvmem_prepared, o->doomed_prepared)
MAKES(create_request, kvmem_request, kvmem_request_create, o->near, KVMEM_REQUEST_READ, &o->memory, "far",
      &o->remote_memory, 1,
      NULL)
MAKES(make_request, kvmem_request, kvmem_request_make, KVMEM_REQUEST_READ, o->prepared, REF((uint32_t){0}),
      o->prepared_remote, REF((uint32_t){0}), 1, NULL)
DESTROYS(destroy_request, kvmem_request, o->doomed_request)
FUNCTION(run_request) {
    const kvmem_status status = kvmem_request_post(o->request, NULL, 0, ERR);
    return status == KVMEM_STATUS_OK ? kvmem_request_wait(o->request, KVMEM_TIMEOUT_FOREVER, ERR) : status;
}
MAKES(get_chosen, kvmem_blob, kvmem_request_get_backend, o->request)
CALLS(estimate, kvmem_request_estimate(o->request, &(kvmem_request_cost){0}, ERR))
CALLS(get_measured, kvmem_request_get_telemetry(o->request, &(kvmem_request_telemetry){0}, ERR))
MAKES(create_view, kvmem_memory_view, kvmem_memory_view_create, o->near, &o->memory, 1, NULL, REF((void *){0}))
DESTROYS(destroy_view, kvmem_memory_view, o->doomed_view)
FUNCTION(build_layout) {
    const kvmem_system_options system = OPTIONS(kvmem_system_options, it.size = 0);
    const kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.source = KVMEM_LAYOUT_ALLOCATE,
                                                 it.config = &o->config, it.agent = o->near, it.system = &system);
    return TRIED(kvmem_layout, kvmem_layout_build, &options);
}
MAKES(export_layout, kvmem_blob, kvmem_layout_export, o->local)
MAKES(share_layout, kvmem_share, kvmem_share_create_layout, o->shareable, NULL)
DESTROYS(destroy_layout, kvmem_layout, o->doomed_layout)
/* The last holder of a layout, and so of its registrations. */
static void leave_layout_to_transfer(void) {
    o->doomed_transfer = create_transfer(o->doomed_layout);
    DESTROYED(kvmem_layout, o->doomed_layout);
}
DESTROYS(destroy_transfer, kvmem_transfer, o->doomed_transfer)
DESTROYS(destroy_agent, kvmem_agent, o->doomed_agent)
MAKES(import_layout, kvmem_layout, kvmem_layout_import, o->near, o->descriptor.data, o->descriptor.size)
MAKES(create_remote_layout, kvmem_layout, kvmem_layout_create_remote, o->near, "far", &o->config,
      REF(region_descriptor(o->far_side.regions[0])), 1)
CALLS(create_epochs, kvmem_layout_create_epochs(o->local, NULL, ERR))
CALLS(serve, kvmem_layout_serve(o->local, NULL, ERR))
MAKES(create_lease, kvmem_lease, kvmem_lease_create, o->remote, REF((uint32_t){1}), 1, lease_options())
CALLS(renew_lease, kvmem_lease_renew(o->lease, SECONDS(30), ERR))
FUNCTION(run_transfer) {
    const kvmem_status status = kvmem_transfer_submit(o->transfer, NULL, ERR);
    return status == KVMEM_STATUS_OK ? kvmem_transfer_wait(o->transfer, KVMEM_TIMEOUT_FOREVER, ERR) : status;
}
FUNCTION(start_transfer) {
    static const kvmem_block_pair pair = {0, 0};
    const kv_job job = JOB(it.run.pairs = &pair, it.run.num_pairs = 1, it.run.run_timeout_ns = held_limit(),
                           it.transfer.method = KVMEM_METHOD_NIXL);
    OWNED(kvmem_transfer) transfer = NULL;
    kvmem_status status = kvmem_transfer_start(o->local, o->remote, &job.transfer, &job.run, &transfer, ERR);
    THEN(status, kvmem_transfer_wait(transfer, KVMEM_TIMEOUT_FOREVER, ERR));
    return status;
}
FUNCTION(create_staged) {
    static const kvmem_block_pair pair = {0, 0};
    const kv_job options = JOB(it.run.pairs = &pair, it.run.num_pairs = 1,
                                                   it.transfer.method = KVMEM_METHOD_NIXL_STAGED);
    return TRIED(kvmem_transfer, kv_prepare, o->remote, o->local, &options);
}

const held_row held_rows[] = {
    {.functions = "kvmem_agent_create", .run = create_agent},
    {.functions = "kvmem_region_register", .run = register_region},
    {.functions = "kvmem_registration_deregister", .run = deregister_region},
    {.functions = "kvmem_registration_destroy", .run = destroy_registration, .is_never_late = true},
    {.functions = "kvmem_region_register", .run = register_again},
    {.functions = "kvmem_segments_register", .run = register_segments},
    {.functions = "kvmem_segments_deregister", .run = deregister_segments},
    {.functions = "kvmem_segments_destroy", .run = destroy_segments, .is_never_late = true},
    {.functions = "kvmem_agent_create_backend", .run = create_backend},
    {.functions = "kvmem_agent_get_plugins", .run = get_plugins},
    {.functions = "kvmem_agent_get_backends", .run = get_backends},
    {.functions = "kvmem_agent_get_local_metadata", .run = get_metadata},
    {.functions = "kvmem_agent_get_partial_metadata", .run = get_partial},
    {.functions = "kvmem_agent_load_remote_metadata", .run = load},
    {.functions = "kvmem_directory_entry_load", .run = load_entry},
    {.functions = "kvmem_directory_connect", .run = connect_by_directory},
    {.functions = "kvmem_directory_entry_open_layout", .run = open_by_directory},
    {.functions = "kvmem_directory_publish", .run = publish},
    {.functions = "kvmem_agent_check_remote_metadata", .run = check, .in_time = KVMEM_STATUS_NOT_FOUND},
    {.functions = "kvmem_agent_invalidate_remote_metadata", .run = invalidate},
    {.functions = "kvmem_agent_invalidate_remote_metadata", .run = invalidate_all},
    {.functions = "kvmem_agent_notify", .run = notify},
    {.functions = "kvmem_agent_get_telemetry", .run = get_sums},
    {.functions = "kvmem_agent_connect", .run = connect_peer},
    {.functions = "kvmem_agent_connect", .run = connect_soon},
    {.functions = "kvmem_agent_take_notifications", .run = take, .in_time = KVMEM_STATUS_TIMED_OUT}, /* there is none */
    {.functions = "kvmem_agent_query", .run = query, .in_time = KVMEM_STATUS_NIXL},
    {.functions = "kvmem_prepared_create", .run = prepare},
    {.functions = "kvmem_prepared_destroy", .run = destroy_prepared, .is_never_late = true},
    {.functions = "kvmem_request_create", .run = create_request},
    {.functions = "kvmem_request_make", .run = make_request},
    {.functions = "kvmem_request_destroy", .run = destroy_request, .is_never_late = true},
    {.functions = "kvmem_request_post kvmem_request_wait", .run = run_request},
    {.functions = "kvmem_request_get_backend", .run = get_chosen, .in_time = KVMEM_STATUS_NIXL},
    {.functions = "kvmem_request_estimate", .run = estimate, .in_time = KVMEM_STATUS_NIXL},
    {.functions = "kvmem_request_get_telemetry", .run = get_measured, .in_time = KVMEM_STATUS_NIXL},
    {.functions = "kvmem_memory_view_create", .run = create_view},
    {.functions = "kvmem_memory_view_destroy", .run = destroy_view, .is_never_late = true},
    {.functions = "kvmem_layout_build", .run = build_layout},
    {.functions = "kvmem_layout_destroy", .run = destroy_layout, .is_never_late = true},
    {.functions = "kvmem_layout_export", .run = export_layout},
    {.functions = "kvmem_share_create_layout", .run = share_layout},
    {.functions = "kvmem_share_open_layout", .run = open_share},
    {.functions = "kvmem_layout_create_remote", .run = create_remote_layout},
    {.functions = "kvmem_layout_import", .run = import_layout},
    {.functions = "kvmem_layout_create_epochs", .run = create_epochs},
    {.functions = "kvmem_layout_serve", .run = serve},
    {.functions = "kvmem_lease_create", .run = create_lease},
    {.functions = "kvmem_lease_renew", .run = renew_lease},
    {.functions = "kvmem_transfer_prepare", .run = create_staged},
    {.functions = "kvmem_transfer_submit kvmem_transfer_wait", .run = run_transfer},
    {.functions = "kvmem_transfer_destroy", .prepare = leave_layout_to_transfer, .run = destroy_transfer, .is_never_late = true},
    {.functions = "kvmem_agent_destroy", .run = destroy_agent, .is_never_late = true},
    {.functions = "kvmem_transfer_start", .run = start_transfer},
};
const size_t held_num_rows = NUM(held_rows);

/* Getters of objects that the function of no row destroys. One that waits for NIXL would wait for ever. */
static void get_all(void) {
    GET(kvmem_region_info, of_region, kvmem_region_get_info, o->region);
    CHECK_EQ(of_region.registration_count, 1);
    kvmem_region *const regions[] = {o->region, o->fresh, o->doomed_region};
    for (size_t i = 0; i < NUM(regions); i++) {
        GET(kvmem_region_info, info, kvmem_region_get_info, regions[i]);
        GET(kvmem_region_holders, holders, kvmem_region_get_holders, regions[i]);
    }
    OWN(kvmem_blob, of_registered, kvmem_region_get_agent, o->region, 0);
    CHECK_STR(kvmem_blob_data(of_registered), "near");
    GET(kvmem_registration_info, of_registration, kvmem_registration_get_info, o->registration);
    CHECK_EQ(of_registration.registered, 1);
    kvmem_layout *const layouts[] = {o->local, o->remote};
    for (size_t i = 0; i < NUM(layouts); i++) {
        CHECK_STR(layout_info(layouts[i]).agent, i == 0 ? "near" : "far");
    }
    OWN(kvmem_region, first, kvmem_layout_get_region, o->local, 0);
    GET(kvmem_transfer_info, of_transfer, kvmem_transfer_get_info, o->transfer);
    OWN(kvmem_blob, explained, kvmem_transfer_explain, o->transfer);
    (void)kvmem_transfer_poll(o->transfer, ERR);
    (void)kvmem_request_poll(o->request, ERR);
    kvmem_completion completion;
    size_t count;
    EXPECT_OK(kvmem_queue_wait(o->queue, 0, &completion, 1, &count, ERR));
    CHECK_STR(kvmem_agent_name(o->near), "near");
    GET(kvmem_directory_entry_info, of_entry, kvmem_directory_entry_get_info, o->entry);
}

/* Another agent registers the same regions, and other memory. */
static void use_another_agent(void) {
    kvmem_region *const regions[] = {o->region, o->fresh, o->doomed_region};
    for (size_t i = 0; i < NUM(regions); i++) {
        OWN(kvmem_registration, same, kvmem_region_register, regions[i], o->other);
        GET(kvmem_region_info, after, kvmem_region_get_info, regions[i]);
        CHECK(after.registration_count > 0);
        EXPECT_OK(kvmem_registration_deregister(same, ERR));
    }
    const kvmem_nixl_descriptor own = memory_at(page(REMOTE), PAGE);
    OWN(kvmem_segments, segments, kvmem_segments_register, o->other, &own, 1, NULL);
}

void held_beside(void) {
    get_all();
    use_another_agent();
}
