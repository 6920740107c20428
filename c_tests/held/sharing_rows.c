// SPDX-License-Identifier: Apache-2.0
// Brokers while the file system of their socket does not respond, and NIXL while that of its library does not.
#include "held.h"

#include <stdlib.h>

HELD_CASES

static kvmem_region *memory;
static kvmem_share *share, *fetched;
static kvmem_broker *broker, *doomed, *made;
static kvmem_agent *agent;
static kvmem_token token;
static char library[160];

static kvmem_status open_broker(const char *name, kvmem_broker **opened) {
    return kvmem_broker_create(REF(OPTIONS(kvmem_broker_options, it.path = TEXT("%s/%s", held_folder(), name))), opened, ERR);
}

void held_open(void) {
    memory = region_create_system(65536, KVMEM_SYSTEM_SHAREABLE);
    EXPECT_OK(kvmem_share_create_region(memory, NULL, &share, ERR));
    EXPECT_OK(open_broker("socket", &broker));
    EXPECT_OK(open_broker("doomed", &doomed));
    EXPECT_OK(kvmem_broker_publish(broker, "kv", share, NULL, &token, ERR));
    const char *named = getenv("KVMEM_NIXL_LIBRARY");
    CHECK(named != NULL);
    snprintf(library, sizeof(library), "%s/libnixl_capi.so", held_folder());
    CHECK_EQ(symlink(named, library), 0);
}

void held_close(void) {
    kvmem_agent_destroy(agent);
    kvmem_broker_destroy(made);
    kvmem_broker_destroy(broker);
    kvmem_broker_destroy(doomed);
    kvmem_share_destroy(fetched);
    kvmem_share_destroy(share);
    kvmem_region_destroy(memory);
}

void held_beside(void) {
    CHECK_EQ(region_info(memory).size, 65536);
    GET(kvmem_broker_info, info, kvmem_broker_get_info, broker);
    kvmem_token unused;
    EXPECT_OK(kvmem_broker_publish(broker, "other", share, NULL, &unused, ERR));
    EXPECT_OK(kvmem_broker_unpublish(broker, "other", ERR));
    OWNED(kvmem_share) received = NULL;
    EXPECT_OK(kvmem_share_fetch(
        REF(OPTIONS(kvmem_fetch_options, it.path = TEXT("%s/socket", held_folder()), it.name = "kv", it.token = &token)), PATIENCE,
        &received, ERR));
}

static kvmem_status create(void) { return open_broker("new", &made); }
static kvmem_status destroy(void) {
    DESTROYED(kvmem_broker, doomed);
    return KVMEM_STATUS_OK;
}
static kvmem_status fetch(void) {
    return kvmem_share_fetch(
        REF(OPTIONS(kvmem_fetch_options, it.path = TEXT("%s/socket", held_folder()), it.name = "kv", it.token = &token)),
        held_limit(), &fetched, ERR);
}
static kvmem_status load(void) { return kvmem_nixl_load(library, ERR); }
static kvmem_status create_agent(void) {
    CHECK_EQ(setenv("KVMEM_NIXL_LIBRARY", library, 1), 0);
    return kvmem_agent_create("north", NULL, &agent, ERR);
}

const held_row held_rows[] = {
    {.functions = "kvmem_broker_create", .run = create, .unbounded = HELD_BY_FILES},
    {.functions = "kvmem_broker_destroy", .run = destroy, .unbounded = HELD_BY_FILES},
    {.functions = "kvmem_share_fetch", .run = fetch, .unbounded = HELD_BY_FILES},
    {.functions = "kvmem_nixl_load", .run = load, .is_loading = true, .unbounded = HELD_BY_FILES},
    {.functions = "kvmem_agent_create", .run = create_agent, .is_loading = true, .unbounded = HELD_BY_FILES},
};
const size_t held_num_rows = NUM(held_rows);
