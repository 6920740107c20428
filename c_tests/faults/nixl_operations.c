// SPDX-License-Identifier: Apache-2.0
// Agents, with the stand-in for NIXL: metadata, registrations, requests on raw descriptors, layouts of peers that are read and served,
// and leases over NIXL. Both agents are in this process, and their threads belong to the operation, too.
#include "walk.h"

#include "stand_in.h"

FAULT_WALK_CASES

const bool operations_have_peer = true;

#define LIMIT SECONDS(10)
#define PAGE 4096

static unsigned char memory[2 * PAGE] __attribute__((aligned(PAGE)));
static kvmem_agent *near, *far;
static kv_side here, there;
static kvmem_layout *remote; /* `there`, as `near` has imported it */
static message far_metadata, descriptor;
static const kvmem_block_pair pairs[] = {{0, 1}, {6, 0}};
static const uint32_t blocks[] = {0, 6};

void operations_open(void) {
    nixl_find_stand_in();
    NIXL(nixl_sim_set_routing(1));
    NIXL(nixl_sim_set_moving(UINT64_MAX));
    near = agent_open("near");
    far = agent_open("far");
    kv_side_open(&here, REF(kv_config(&kv_kinds[0])), near, 1);
    kv_side_open(&there, REF(kv_config(&kv_kinds[0])), far, 2);
    EXPECT_OK(kvmem_layout_serve(there.layout, REF(OPTIONS(kvmem_serve_options, it.flags = KVMEM_SERVE_WRITE)), ERR));
    agents_introduce(near, far);
    far_metadata = agent_metadata(far);
    descriptor = layout_descriptor(there.layout);
    EXPECT_OK(kvmem_layout_import(near, descriptor.data, descriptor.size, &remote, ERR));
}

void operations_close(void) {
    message_free(&far_metadata);
    message_free(&descriptor);
    kvmem_layout_destroy(remote);
    kv_side_close(&there);
    kv_side_close(&here);
    kvmem_agent_destroy(far);
    kvmem_agent_destroy(near);
}

/* Nothing writes beside the blocks of `here` that are read. */
void operations_check(void) {
    kv_side_check_guards(&here);
    kv_side_check(&there);
}

OPERATION(create_an_agent) {
    OWNED(kvmem_agent) agent = NULL;
    kvmem_agent_telemetry sums;
    kvmem_status status = kvmem_agent_create(
        "late", REF(OPTIONS(kvmem_agent_options, it.call_timeout_ns = LIMIT, it.flags = KVMEM_AGENT_TELEMETRY)), &agent, ERR);
    THEN(status, kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
    THEN(status, TRIED(kvmem_plugins, kvmem_agent_get_plugins, agent));
    THEN(status, TRIED(kvmem_plugins, kvmem_agent_get_backends, agent));
    THEN(status, kvmem_agent_get_telemetry(agent, &sums, ERR));
    return status;
}

OPERATION(exchange_metadata) {
    const kvmem_nixl_descriptor one = memory_at(here.memory + here.starts[0], 64);
    kvmem_status status = TRIED(kvmem_blob, kvmem_agent_get_local_metadata, near);
    THEN(status, TRIED(kvmem_blob, kvmem_agent_get_partial_metadata, near, &one, 1, NULL));
    THEN(status, TRIED(kvmem_blob, kvmem_agent_load_remote_metadata, near, far_metadata.data, far_metadata.size));
    THEN(status, kvmem_agent_check_remote_metadata(near, "far", ERR));
    THEN(status, kvmem_agent_connect(near, "far", NULL, LIMIT, ERR));
    return status;
}

/* Of an agent that nothing else uses. */
OPERATION(forget_a_peer) {
    OWNED(kvmem_agent) agent = NULL;
    size_t count = 0;
    kvmem_status status = kvmem_agent_create("forgetful", NULL, &agent, ERR);
    THEN(status, kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
    THEN(status, kvmem_agent_load_remote_metadata(agent, far_metadata.data, far_metadata.size, NULL, ERR));
    THEN(status, kvmem_agent_invalidate_remote_metadata(agent, "far", &count, ERR));
    return status;
}

OPERATION(notify) {
    OWNED(kvmem_notifications) taken = NULL;
    kvmem_status status = kvmem_agent_notify(near, "far", "x", 1, ERR);
    THEN(status, kvmem_agent_take_notifications(far, LIMIT, &taken, ERR));
    return status;
}

OPERATION(report_notifications_to_a_queue) {
    OWNED(kvmem_queue) queue = NULL;
    OWNED(kvmem_notifications) taken = NULL;
    kvmem_completion completion;
    size_t count = 0;
    kvmem_status status = kvmem_queue_create(&queue, ERR);
    THEN(status, kvmem_agent_report_notifications(far, queue, 7, ERR));
    THEN(status, kvmem_agent_notify(near, "far", "x", 1, ERR));
    THEN(status, kvmem_queue_wait(queue, LIMIT, &completion, 1, &count, ERR));
    THEN(status, kvmem_agent_take_notifications(far, 0, &taken, ERR));
    (void)kvmem_agent_report_notifications(far, NULL, 0, NULL); /* it keeps the error of what has failed before */
    return status;
}

OPERATION(register_a_region) {
    OWNED(kvmem_region) region = NULL;
    OWNED(kvmem_registration) registration = NULL;
    kvmem_status status =
        kvmem_region_create_system(REF(OPTIONS(kvmem_system_options, it.size = PAGE)), &region, ERR);
    THEN(status, kvmem_region_register(region, near, &registration, ERR));
    THEN(status, TRIED(kvmem_blob, kvmem_region_get_agent, region, 0));
    THEN(status, kvmem_registration_deregister(registration, ERR));
    return status;
}

OPERATION(use_raw_descriptors) {
    const kvmem_nixl_descriptor own = memory_at(memory, PAGE), other = memory_at(memory + PAGE, PAGE);
    OWNED(kvmem_segments) segments = NULL;
    OWNED(kvmem_segments) others = NULL;
    OWNED(kvmem_prepared) local = NULL;
    OWNED(kvmem_prepared) distant = NULL;
    OWNED(kvmem_request) request = NULL;
    OWNED(kvmem_memory_view) view = NULL;
    void *handle = NULL;
    const uint32_t first = 0;
    kvmem_status status = kvmem_segments_register(near, &own, 1, NULL, &segments, ERR);
    THEN(status, kvmem_segments_register(far, &other, 1, NULL, &others, ERR));
    THEN(status, kvmem_prepared_create(near, NULL, &own, 1, NULL, &local, ERR));
    THEN(status, kvmem_prepared_create(near, "far", &other, 1, NULL, &distant, ERR));
    THEN(status, kvmem_request_make(KVMEM_REQUEST_READ, local, &first, distant, &first, 1, NULL, &request, ERR));
    THEN(status, kvmem_request_post(request, NULL, 0, ERR));
    THEN(status, kvmem_request_wait(request, LIMIT, ERR));
    THEN(status, kvmem_memory_view_create(near, &own, 1, NULL, &handle, &view, ERR));
    kvmem_memory_view_destroy(view);
    view = NULL;
    kvmem_request_destroy(request);
    request = NULL;
    THEN(status, kvmem_request_create(near, KVMEM_REQUEST_READ, &own, "far", &other, 1,
                                      REF(OPTIONS(kvmem_nixl_options, it.run_timeout_ns = LIMIT)), &request, ERR));
    THEN(status, kvmem_request_post(request, NULL, 0, ERR));
    THEN(status, kvmem_request_wait(request, LIMIT, ERR));
    kvmem_request_destroy(request);
    request = NULL;
    kvmem_prepared_destroy(local);
    local = NULL;
    THEN(status, kvmem_segments_deregister(segments, ERR));
    return status;
}

static kvmem_status build(kvmem_agent *agent, uint64_t flags, kvmem_layout **layout) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    const kvmem_system_options system = OPTIONS(kvmem_system_options, it.flags = flags);
    return kvmem_layout_build(REF(OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_ALLOCATE,
                                          it.agent = agent, it.system = &system)),
                              layout, ERR);
}

OPERATION(build_a_registered_layout) {
    OWNED(kvmem_layout) layout = NULL;
    kvmem_status status = build(near, KVMEM_SYSTEM_SHAREABLE, &layout);
    THEN(status, TRIED(kvmem_blob, kvmem_layout_export, layout));
    THEN(status, kvmem_layout_create_epochs(layout, NULL, ERR));
    THEN(status, TRIED(kvmem_share, kvmem_share_create_layout, layout, NULL));
    return status;
}

OPERATION(import_a_layout) {
    kvmem_status status = TRIED(kvmem_layout, kvmem_layout_import, near, descriptor.data, descriptor.size);
    THEN(status, TRIED(kvmem_layout, kvmem_layout_create_remote, near, "far", &there.config,
                       REF(region_descriptor(there.regions[0])), 1));
    return status;
}

/* From `there` to `here`. */
static kvmem_status read_blocks(const kvmem_layout *from, uint32_t method, uint64_t flags) {
    OWNED(kvmem_transfer) transfer = NULL;
    const kv_job job = JOB(it.run.pairs = pairs, it.run.num_pairs = NUM(pairs), it.run.run_timeout_ns = LIMIT, it.run.flags = flags,
                           it.transfer.method = method);
    kvmem_status status = kvmem_transfer_start(from, here.layout, &job.transfer, &job.run, &transfer, ERR);
    THEN(status, kvmem_transfer_wait(transfer, LIMIT, ERR));
    return status;
}

OPERATION_CALL(read_by_nixl, read_blocks(remote, KVMEM_METHOD_NIXL, 0))
OPERATION_CALL(read_by_staging_memory, read_blocks(remote, KVMEM_METHOD_NIXL_STAGED, 0))
OPERATION_CALL(read_served_blocks, read_blocks(remote, KVMEM_METHOD_NIXL_SERVED, KVMEM_SUBMIT_VERIFY))

/* Served from the first byte to the last: an owner of its own. */
OPERATION(serve_a_layout) {
    OWNED(kvmem_layout) served = NULL;
    OWNED(kvmem_layout) imported = NULL;
    OWNED(kvmem_blob) bytes = NULL;
    kvmem_status status = build(far, 0, &served);
    THEN(status, kvmem_layout_create_epochs(served, NULL, ERR));
    THEN(status, kvmem_layout_serve(served, NULL, ERR));
    THEN(status, kvmem_layout_export(served, &bytes, ERR));
    THEN(status, kvmem_agent_load_remote_metadata(near, far_metadata.data, far_metadata.size, NULL, ERR));
    THEN(status, kvmem_layout_import(near, kvmem_blob_data(bytes), kvmem_blob_size(bytes), &imported, ERR));
    return status;
}

OPERATION(lease_blocks_over_nixl) {
    OWNED(kvmem_lease) lease = NULL;
    uint64_t remaining = 0;
    size_t count = 0;
    kvmem_status status = kvmem_lease_create(
        remote, blocks, NUM(blocks), REF(OPTIONS(kvmem_lease_options, it.timeout_ns = LIMIT)), &lease, ERR);
    THEN(status, kvmem_lease_renew(lease, SECONDS(30), ERR));
    THEN(status, kvmem_lease_get_remaining(lease, &remaining, ERR));
    THEN(status, kvmem_layout_get_accesses(there.layout, blocks, NUM(blocks), NULL, 0, &count, ERR));
    if (status == KVMEM_STATUS_OK) CHECK_EQ(count, NUM(blocks));
    return status;
}
