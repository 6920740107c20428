// SPDX-License-Identifier: Apache-2.0
// Directories in a folder, with agents of the stand-in for NIXL.
#include "walk.h"

FAULT_WALK_CASES

const bool operations_have_peer = true;

#define LIMIT SECONDS(5)

static kvmem_agent *agent;

void operations_open(void) {
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    EXPECT_OK(kvmem_agent_create("north", NULL, &agent, ERR));
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
