// SPDX-License-Identifier: Apache-2.0
// Directories in a folder while its file system does not respond.
#include "held.h"

HELD_CASES

static kvmem_agent *agent, *south, *west;
static kvmem_directory *directory, *doomed, *other, *made, *unborn;
static kvmem_directory_entry *entry, *found;

static kvmem_status open_directory(const char *name, kvmem_directory **opened) {
    return kvmem_directory_create(REF(OPTIONS(kvmem_directory_options, it.folder = TEXT("%s/%s", held_folder(), name))), opened, ERR);
}

void held_open(void) {
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    agent = MADE(kvmem_agent, kvmem_agent_create, "north", NULL);
    south = MADE(kvmem_agent, kvmem_agent_create, "south", NULL);
    west = MADE(kvmem_agent, kvmem_agent_create, "west", NULL);
    EXPECT_OK(open_directory("cluster", &directory));
    EXPECT_OK(open_directory("doomed", &doomed));
    EXPECT_OK(open_directory("unborn", &unborn));
    EXPECT_OK(open_directory(HELD_ELSEWHERE, &other));
    EXPECT_OK(kvmem_directory_publish(directory, south, NULL, 0, PATIENCE, ERR));
    EXPECT_OK(kvmem_directory_publish(doomed, south, NULL, 0, PATIENCE, ERR));
    EXPECT_OK(kvmem_directory_publish(other, south, NULL, 0, PATIENCE, ERR));
    EXPECT_OK(kvmem_directory_watch(directory, "south", PATIENCE, ERR));
    EXPECT_OK(kvmem_directory_look_up(directory, "south", PATIENCE, &entry, ERR));
}

void held_close(void) {
    kvmem_directory_entry_destroy(found);
    kvmem_directory_entry_destroy(entry);
    kvmem_directory_destroy(made);
    kvmem_directory_destroy(directory);
    kvmem_directory_destroy(doomed);
    kvmem_directory_destroy(unborn);
    kvmem_directory_destroy(other);
    kvmem_agent_destroy(agent);
    kvmem_agent_destroy(south);
    kvmem_agent_destroy(west);
}

void held_beside(void) {
    GET(kvmem_directory_entry_info, info, kvmem_directory_entry_get_info, entry);
    OWN(kvmem_directory_entry, there, kvmem_directory_look_up, other, "south", PATIENCE);
    EXPECT_OK(kvmem_directory_check(other, there, PATIENCE, ERR));
    EXPECT_OK(kvmem_directory_publish(other, west, NULL, 0, PATIENCE, ERR));
    EXPECT_OK(kvmem_directory_withdraw(other, "west", PATIENCE, ERR));
}

static kvmem_status create(void) { return open_directory("cluster", &made); }
static kvmem_status publish_first(void) { return kvmem_directory_publish(unborn, agent, NULL, 0, held_limit(), ERR); }
static kvmem_status publish(void) { return kvmem_directory_publish(directory, agent, NULL, 0, held_limit(), ERR); }
static kvmem_status publish_again(void) { return kvmem_directory_publish(directory, south, NULL, 0, held_limit(), ERR); }
static kvmem_status withdraw(void) { return kvmem_directory_withdraw(directory, "south", held_limit(), ERR); }
static kvmem_status look_up(void) { return kvmem_directory_look_up(directory, "south", held_limit(), &found, ERR); }
static kvmem_status check(void) { return kvmem_directory_check(directory, entry, held_limit(), ERR); }
static kvmem_status watch(void) { return kvmem_directory_watch(directory, "north", held_limit(), ERR); }
static kvmem_status unwatch(void) { return kvmem_directory_unwatch(directory, "south", held_limit(), ERR); }
static kvmem_status connect_peer(void) { return kvmem_directory_connect(directory, agent, "south", held_limit(), &found, ERR); }
static kvmem_status destroy(void) {
    DESTROYED(kvmem_directory, doomed);
    return KVMEM_STATUS_OK;
}

const held_row held_rows[] = {
    {.functions = "kvmem_directory_create", .run = create},
    {.functions = "kvmem_directory_publish", .run = publish},
    {.functions = "kvmem_directory_publish", .run = publish_first},
    {.functions = "kvmem_directory_publish", .run = publish_again},
    {.functions = "kvmem_directory_withdraw", .run = withdraw},
    {.functions = "kvmem_directory_look_up", .run = look_up},
    {.functions = "kvmem_directory_check", .run = check},
    {.functions = "kvmem_directory_watch", .run = watch},
    {.functions = "kvmem_directory_unwatch", .run = unwatch},
    {.functions = "kvmem_directory_connect", .run = connect_peer},
    {.functions = "kvmem_directory_destroy", .run = destroy, .is_never_late = true},
};
const size_t held_num_rows = NUM(held_rows);
