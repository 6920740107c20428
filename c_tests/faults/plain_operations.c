// SPDX-License-Identifier: Apache-2.0
// Operations below which no system call can fail, which the walk checks: getters, and what only changes memory of the process.
#include "walk.h"

#include "stand_in.h"

FAULT_WALK_OF_NONE_CASES

const bool operations_have_peer = false;

#define SIZE 65536
static kvmem_agent *agent;
static kv_side host, other, scales;
static kvmem_region *shareable;
static kvmem_share *share;
static kvmem_registration *registration;
static kvmem_transfer *transfer;
static kvmem_queue *queue;
static kvmem_broker *broker;
static kvmem_directory *directory;
static kvmem_directory_entry *entry;
static kvmem_store *store;
static kvmem_lease *lease;
static kvmem_request *request;
static const kvmem_block_pair pairs[] = {{0, 1}, {6, 0}};
static const uint32_t blocks[] = {0, 6};

static void open_store(void) {
    store_setup setup;
    store_setup_init(&setup, TEXT("%s/cluster/store", fault_folder()), REF(kv_aligned_config(&kv_kinds[0])));
    store = MADE(kvmem_store, kvmem_store_open, &setup.options, SECONDS(10));
}

void operations_open(void) {
    nixl_find_stand_in();
    agent = agent_open("plain");
    kv_side_open(&host, REF(kv_config(&kv_kinds[0])), agent, 1);
    kv_side_open(&other, REF(kv_config(&kv_kinds[0])), NULL, 2);
    kv_side_open(&scales, REF(kv_config(&kv_kinds[0])), NULL, 3);
    EXPECT_OK(kvmem_layout_create_epochs(host.layout, NULL, ERR));
    shareable = region_create_system(SIZE, KVMEM_SYSTEM_SHAREABLE);
    share = MADE(kvmem_share, kvmem_share_create_region, shareable, NULL);
    registration = MADE(kvmem_registration, kvmem_region_register, shareable, agent);
    queue = MADE(kvmem_queue, kvmem_queue_create);
    transfer = MADE(kvmem_transfer, kv_prepare, host.layout, other.layout,
                    REF(JOB(it.run.pairs = pairs, it.run.num_pairs = NUM(pairs), it.run.flags = KVMEM_SUBMIT_CHECKSUM)));
    RUN(transfer);
    broker = MADE(kvmem_broker, kvmem_broker_create,
                  REF(OPTIONS(kvmem_broker_options, it.path = TEXT("%s/socket", fault_folder()))));
    directory = MADE(kvmem_directory, kvmem_directory_create,
                     REF(OPTIONS(kvmem_directory_options, it.folder = TEXT("%s/cluster", fault_folder()))));
    EXPECT_OK(kvmem_directory_publish(directory, agent, NULL, 0, SECONDS(10), ERR));
    EXPECT_OK(kvmem_directory_look_up(directory, "plain", SECONDS(10), &entry, ERR));
    open_store();
    lease = MADE(kvmem_lease, kvmem_lease_create, host.layout, blocks, NUM(blocks), NULL);
    const kvmem_nixl_descriptor own = memory_at(host.memory + host.starts[0], 64);
    request = MADE(kvmem_request, kvmem_request_create, agent, KVMEM_REQUEST_READ, &own, "plain", &own, 1, NULL);
}

void operations_close(void) {
    kvmem_request_destroy(request);
    kvmem_lease_destroy(lease);
    kvmem_store_destroy(store);
    kvmem_directory_entry_destroy(entry);
    kvmem_directory_destroy(directory);
    kvmem_broker_destroy(broker);
    kvmem_transfer_destroy(transfer);
    kvmem_queue_destroy(queue);
    kvmem_registration_destroy(registration);
    kvmem_share_destroy(share);
    kvmem_region_destroy(shareable);
    kv_side_close(&scales);
    kv_side_close(&other);
    kv_side_close(&host);
    kvmem_agent_destroy(agent);
}

void operations_check(void) {}

OPERATION(ask_the_library) {
    CHECK(kvmem_abi_version() > 0 && kvmem_version_string()[0] != '\0');
    CHECK(kvmem_status_name(KVMEM_STATUS_OK)[0] != '\0' && kvmem_status_message(KVMEM_STATUS_OK)[0] != '\0');
    CHECK(kvmem_method_name(KVMEM_METHOD_MEMCPY)[0] != '\0');
    return TRIED(kvmem_blob, kvmem_nixl_get_path);
}

OPERATION(read_an_error) {
    kvmem_error *error = NULL;
    kvmem_error_cause cause;
    const kvmem_status status = kvmem_queue_create(NULL, &error);
    CHECK_EQ(kvmem_error_status(error), status);
    CHECK(kvmem_error_message(error, NULL)[0] != '\0');
    (void)kvmem_error_get_cause(error, &cause);
    kvmem_error_destroy(error);
    return status == KVMEM_STATUS_INVALID_ARGUMENT ? KVMEM_STATUS_OK : KVMEM_STATUS_PANIC;
}

OPERATION(ask_a_region) {
    kvmem_region_info info;
    kvmem_nixl_descriptor descriptors[4];
    kvmem_registration_info of_registration;
    size_t count = 0;
    kvmem_status status = kvmem_region_get_info(shareable, &info, ERR);
    THEN(status, kvmem_region_get_descriptors(shareable, descriptors, NUM(descriptors), &count, ERR));
    THEN(status, kvmem_registration_get_info(registration, &of_registration, ERR));
    THEN(status, TRIED(kvmem_blob, kvmem_region_get_agent, shareable, 0));
    return status;
}

OPERATION(name_objects_and_storage) {
    OWNED(kvmem_region) objects = NULL;
    OWNED(kvmem_region) storage = NULL;
    kvmem_status status = kvmem_region_create_object(
                     REF(OPTIONS(kvmem_object_options, it.key_prefix = "a/", it.object_size = 4096, it.count = 2)), &objects, ERR);
    THEN(status, kvmem_region_create_block(REF(OPTIONS(kvmem_block_options, it.device_id = 7, it.size = 4096, it.metadata = "uri",
                                                       it.metadata_size = 3)),
                                           &storage, ERR));
    return status;
}

OPERATION(ask_a_layout) {
    kvmem_layout_requirements requirements;
    kvmem_layout_info info;
    kvmem_block at;
    OWNED(kvmem_region) region = NULL;
    kvmem_status status = kvmem_layout_get_requirements(&host.config, &requirements, ERR);
    THEN(status, kvmem_layout_get_info(host.layout, &info, ERR));
    THEN(status, kvmem_layout_get_block(host.layout, 0, 0, 0, &at, ERR));
    THEN(status, kvmem_layout_get_row(host.layout, 0, 0, 0, 0, 0, &at, ERR));
    THEN(status, kvmem_layout_get_region(host.layout, 0, &region, ERR));
    return status;
}

OPERATION(combine_layouts) {
    const kvmem_layout_part parts[] = {{.name = "keys", .layout = other.layout}, {.name = "scales", .layout = scales.layout}};
    OWNED(kvmem_layout) combined = NULL;
    OWNED(kvmem_layout) part = NULL;
    kvmem_status status = kvmem_layout_combine(parts, NUM(parts), &combined, ERR);
    THEN(status, kvmem_layout_get_part(combined, "scales", &part, ERR));
    return status;
}

OPERATION(raise_epochs) {
    uint64_t epochs[NUM(blocks)], remaining = 0;
    kvmem_status status = kvmem_layout_raise_epochs(host.layout, blocks, NUM(blocks), epochs, ERR);
    THEN(status, kvmem_layout_get_epochs(host.layout, blocks, NUM(blocks), epochs, ERR));
    THEN(status, kvmem_lease_get_remaining(lease, &remaining, ERR));
    return status;
}

OPERATION(ask_a_transfer) {
    kvmem_transfer_info info;
    uint64_t indices[4];
    uint32_t checksums[4];
    size_t count = 0;
    kvmem_status status = kvmem_transfer_get_info(transfer, &info, ERR);
    THEN(status, kvmem_transfer_poll(transfer, ERR));
    THEN(status, kvmem_transfer_wait(transfer, 0, ERR));
    THEN(status, kvmem_transfer_wait_layers(transfer, 1, 0, ERR));
    THEN(status, kvmem_transfer_cancel(transfer, ERR));
    THEN(status, kvmem_transfer_get_checksums(transfer, checksums, NUM(checksums), &count, ERR));
    (void)kvmem_transfer_get_mismatches(transfer, indices, NUM(indices), &count, NULL); /* it has compared nothing */
    (void)kvmem_request_poll(request, NULL);                                           /* it was not posted */
    return status;
}

/* Between layouts whose methods were compared before. */
OPERATION(repeat_a_transfer) {
    OWNED(kvmem_transfer) new = NULL;
    const kv_job job = JOB(it.run.pairs = pairs, it.run.num_pairs = NUM(pairs));
    kvmem_status status = kvmem_transfer_submit(transfer, NULL, ERR);
    THEN(status, kvmem_transfer_wait(transfer, SECONDS(10), ERR));
    THEN(status, kvmem_transfer_create(host.layout, other.layout, &job.transfer, &new, ERR));
    THEN(status, kvmem_transfer_prepare(new, &job.run, ERR));
    return status;
}

OPERATION(ask_a_queue) {
    kvmem_completion completion;
    size_t count = 0;
    int32_t fd = -1;
    kvmem_status status = kvmem_queue_get_fd(queue, &fd, ERR);
    THEN(status, kvmem_queue_wait(queue, 0, &completion, 1, &count, ERR));
    return status;
}

OPERATION(ask_shares_and_brokers) {
    kvmem_share_info info;
    kvmem_broker_info of_broker;
    kvmem_status status = kvmem_share_get_info(share, &info, ERR);
    THEN(status, kvmem_broker_get_info(broker, &of_broker, ERR));
    return status;
}

OPERATION(ask_an_agent) {
    kvmem_directory_entry_info info;
    CHECK_STR(kvmem_agent_name(agent), "plain");
    kvmem_status status = kvmem_directory_entry_get_info(entry, &info, ERR);
    THEN(status, kvmem_agent_report_notifications(agent, queue, 1, ERR));
    THEN(status, kvmem_agent_report_notifications(agent, NULL, 0, ERR));
    return status;
}

OPERATION(ask_a_store) {
    unsigned char keys[2 * STORE_KEY];
    uint8_t found[2];
    uint64_t number = 0;
    size_t count = 0;
    kvmem_store_entry entries[4];
    kvmem_store_info info;
    store_keys(keys, 0, 2);
    kvmem_status status = kvmem_store_contains(store, keys, STORE_KEY, 2, found, ERR);
    THEN(status, kvmem_store_pin(store, keys, STORE_KEY, 2, &number, ERR));
    THEN(status, kvmem_store_unpin(store, keys, STORE_KEY, 2, &number, ERR));
    THEN(status, kvmem_store_list(store, 0, entries, NUM(entries), &count, ERR));
    THEN(status, kvmem_store_get_info(store, &info, ERR));
    return status;
}

OPERATION(read_statistics) {
    kvmem_statistics all = OPTIONS(kvmem_statistics);
    kvmem_method_statistics method = OPTIONS(kvmem_method_statistics);
    OWNED(kvmem_blob) text = NULL;
    kvmem_status status = kvmem_statistics_get(&all, ERR);
    THEN(status, kvmem_statistics_get_method(KVMEM_METHOD_MEMCPY, &method, ERR));
    THEN(status, kvmem_statistics_text(&text, ERR));
    if (status == KVMEM_STATUS_OK) CHECK(kvmem_blob_size(text) > 0 && kvmem_blob_data(text) != NULL);
    THEN(status, TRIED(kvmem_blob, kvmem_trace_export));
    return status;
}

/* What the stand-in for NIXL does not know, or what was not posted. */
OPERATION(ask_nixl) {
    const kvmem_nixl_descriptor own = memory_at(host.memory + host.starts[0], 64);
    CHECK_EQ(TRIED(kvmem_blob, kvmem_request_get_backend, request), KVMEM_STATUS_NIXL);
    CHECK_EQ(kvmem_request_estimate(request, &(kvmem_request_cost){0}, NULL), KVMEM_STATUS_NIXL);
    CHECK_EQ(kvmem_request_get_telemetry(request, &(kvmem_request_telemetry){0}, NULL), KVMEM_STATUS_INVALID_STATE);
    CHECK_EQ(TRIED(kvmem_query, kvmem_agent_query, agent, &own, 1, NULL, SECONDS(10)), KVMEM_STATUS_NIXL);
    return KVMEM_STATUS_OK;
}
