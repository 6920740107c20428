// SPDX-License-Identifier: Apache-2.0
// Directories in a folder, with agents of the stand-in for NIXL.
#include "walk.h"

FAULT_WALK_CASES

const bool operations_have_peer = true;

#define LIMIT SECONDS(5)

static kvmem_agent *agent;

void operations_open(void) {
    agent = agent_open("north");
}

void operations_close(void) { kvmem_agent_destroy(agent); }

void operations_check(void) {}

static kvmem_status open_directory(kvmem_directory **directory) {
    return kvmem_directory_create(
        REF(OPTIONS(kvmem_directory_options, it.folder = TEXT("%s/cluster", fault_folder()))), directory, ERR);
}

OPERATION(open_a_directory) {
    OWNED(kvmem_directory) directory = NULL;
    return open_directory(&directory);
}

OPERATION(publish_and_look_up) {
    OWNED(kvmem_directory) directory = NULL;
    OWNED(kvmem_directory_entry) entry = NULL;
    kvmem_status status = open_directory(&directory);
    THEN(status, kvmem_directory_publish(directory, agent, NULL, 0, LIMIT, ERR));
    THEN(status, kvmem_directory_look_up(directory, "north", LIMIT, &entry, ERR));
    THEN(status, kvmem_directory_check(directory, entry, LIMIT, ERR));
    THEN(status, kvmem_directory_withdraw(directory, "north", LIMIT, ERR));
    return status;
}

OPERATION(watch_a_directory) {
    OWNED(kvmem_directory) directory = NULL;
    OWNED(kvmem_directory_events) events = NULL;
    kvmem_status status = open_directory(&directory);
    THEN(status, kvmem_directory_watch(directory, NULL, LIMIT, ERR));
    THEN(status, kvmem_directory_publish(directory, agent, NULL, 0, LIMIT, ERR));
    THEN(status, kvmem_directory_take_events(directory, LIMIT, &events, ERR));
    THEN(status, kvmem_directory_unwatch(directory, NULL, LIMIT, ERR));
    return status;
}

OPERATION(connect_by_a_directory) {
    OWNED(kvmem_agent) other = NULL;
    OWNED(kvmem_directory) directory = NULL;
    OWNED(kvmem_directory_entry) entry = NULL;
    kvmem_status status = kvmem_agent_create("south", NULL, &other, ERR);
    THEN(status, open_directory(&directory));
    THEN(status, kvmem_directory_publish(directory, agent, NULL, 0, LIMIT, ERR));
    THEN(status, kvmem_directory_connect(directory, other, "north", LIMIT, &entry, ERR));
    THEN(status, kvmem_directory_entry_load(entry, other, ERR));
    return status;
}

/* With a broker, by which the layout is mapped. */
OPERATION(open_a_layout_of_a_directory) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    const kvmem_system_options system = OPTIONS(kvmem_system_options, it.flags = KVMEM_SYSTEM_SHAREABLE);
    OWNED(kvmem_broker) broker = NULL;
    OWNED(kvmem_layout) layout = NULL;
    OWNED(kvmem_directory) directory = NULL;
    OWNED(kvmem_directory_entry) entry = NULL;
    kvmem_status status = kvmem_broker_create(
        REF(OPTIONS(kvmem_broker_options, it.path = TEXT("%s/socket", fault_folder()), it.client_timeout_ns = LIMIT)), &broker, ERR);
    THEN(status, kvmem_layout_build(REF(OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_ALLOCATE,
                                                it.agent = agent, it.system = &system)),
                                    &layout, ERR));
    THEN(status, open_directory(&directory));
    const kvmem_named_layout named = {.name = "cache", .layout = layout, .broker = broker};
    THEN(status, kvmem_directory_publish(directory, agent, &named, 1, LIMIT, ERR));
    THEN(status, kvmem_directory_look_up(directory, "north", LIMIT, &entry, ERR));
    THEN(status, TRIED(kvmem_layout, kvmem_directory_entry_open_layout, entry, "cache", NULL, LIMIT));
    return status;
}

OPERATION(report_events_to_a_queue) {
    OWNED(kvmem_directory) directory = NULL;
    OWNED(kvmem_queue) queue = NULL;
    OWNED(kvmem_directory_events) events = NULL;
    kvmem_completion completion;
    size_t count = 0;
    kvmem_status status = kvmem_queue_create(&queue, ERR);
    THEN(status, open_directory(&directory));
    THEN(status, kvmem_directory_report_events(directory, queue, 1, ERR));
    THEN(status, kvmem_directory_watch(directory, NULL, LIMIT, ERR));
    THEN(status, kvmem_directory_publish(directory, agent, NULL, 0, LIMIT, ERR));
    THEN(status, kvmem_queue_wait(queue, LIMIT, &completion, 1, &count, ERR));
    THEN(status, kvmem_directory_take_events(directory, 0, &events, ERR));
    return status;
}
