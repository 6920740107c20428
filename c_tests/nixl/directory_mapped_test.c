// SPDX-License-Identifier: Apache-2.0
// Layouts of a directory that are mapped on the same machine, and what an importer gets if they cannot be.
#include "harness.h"

enum { START, PUBLISHED, READ_ONLY, WRITABLE, NO_BROKER, END };

#define CONFIG (kv_config(&kv_kinds[0]))

/* What the other process publishes. */
typedef struct publication {
    char folder[160], agent[32], socket[160];
    uint32_t seed;
} publication;

static kvmem_layout *build(kvmem_agent *agent) {
    const kvmem_layout_config config = CONFIG;
    const kvmem_system_options memory = OPTIONS(kvmem_system_options, it.flags = KVMEM_SYSTEM_SHAREABLE);
    return MADE(kvmem_layout, kvmem_layout_build,
                REF(OPTIONS(kvmem_layout_options, it.config = &config, it.agent = agent, it.system = &memory,
                            it.source = KVMEM_LAYOUT_ALLOCATE)));
}

static unsigned char *bytes_of(const kvmem_layout *layout, size_t *size) {
    OWN(kvmem_region, region, kvmem_layout_get_region, layout, 0);
    const kvmem_region_info info = region_info(region);
    *size = info.size;
    return (unsigned char *)(uintptr_t)info.address;
}

static kvmem_directory *directory_in(const char *folder) {
    return MADE(kvmem_directory, kvmem_directory_create, REF(OPTIONS(kvmem_directory_options, it.folder = folder)));
}

ROLE(publisher) {
    publication wanted;
    frame_expect_into(socket, START, &wanted, sizeof(wanted));
    OWNED(kvmem_directory) directory = directory_in(wanted.folder);
    OWNED(kvmem_agent) agent = agent_open(wanted.agent);
    OWNED(kvmem_layout) layout = build(agent);
    size_t size;
    unsigned char *bytes = bytes_of(layout, &size);
    kv_fill(bytes, size, wanted.seed);
    OWN(kvmem_broker, broker, kvmem_broker_create, REF(OPTIONS(kvmem_broker_options, it.path = wanted.socket)));
    const kvmem_share_options writable = OPTIONS(kvmem_share_options);
    uint32_t tag = READ_ONLY;
    do {
        const kvmem_named_layout layouts[] = {
            {.name = "cache", .layout = layout, .broker = broker, .share = tag == WRITABLE ? &writable : NULL},
            {.name = "plain", .layout = layout},
        };
        if (tag == NO_BROKER) {
            kvmem_broker_destroy(broker);
            broker = NULL;
        } else {
            EXPECT_OK(kvmem_directory_publish(directory, agent, layouts, 2, PATIENCE, ERR));
        }
        frame_send(socket, PUBLISHED, NULL, 0);
        if (!frame_arrives(socket)) break;
        CLEANUP(message_free) const message request = frame_receive(socket, &tag);
    } while (tag != END);
}

/* The folder of the entries, and the path of the publisher's broker. */
typedef struct machine {
    scratch files;
    char socket[160];
    kvmem_directory *directory;
} machine;

static void machine_open(machine *machine) {
    machine->files = scratch_create(temporary_directory());
    snprintf(machine->socket, sizeof(machine->socket), "%s", scratch_file(&machine->files, "broker"));
    machine->directory = directory_in(scratch_file(&machine->files, "agents"));
}

static void machine_close(machine *machine) {
    kvmem_directory_destroy(machine->directory);
    scratch_remove(&machine->files);
}

static peer start_publisher(const machine *machine, const char *agent, uint32_t seed) {
    publication wanted = {.seed = seed};
    snprintf(wanted.folder, sizeof(wanted.folder), "%s", scratch_file(&machine->files, "agents"));
    snprintf(wanted.agent, sizeof(wanted.agent), "%s", agent);
    snprintf(wanted.socket, sizeof(wanted.socket), "%s", machine->socket);
    const peer started = peer_start("publisher");
    frame_send(started.socket, START, &wanted, sizeof(wanted));
    frame_await(started.socket, PUBLISHED);
    return started;
}

static void tell(const peer *publisher, uint32_t tag) {
    frame_send(publisher->socket, tag, NULL, 0);
    frame_await(publisher->socket, PUBLISHED);
}

static void end(peer *publisher) {
    frame_send(publisher->socket, END, NULL, 0);
    peer_finish(publisher);
}

static kvmem_directory_entry *look_up(const machine *machine, const char *agent) {
    return MADE(kvmem_directory_entry, kvmem_directory_look_up, machine->directory, agent, PATIENCE);
}

static kvmem_open_options opening(uint64_t flags, kvmem_agent *agent) {
    return OPTIONS(kvmem_open_options, it.flags = flags, it.agent = agent);
}

/* Opens the layout "cache", which must have this locality. */
static kvmem_layout *open_cache(const kvmem_directory_entry *entry, uint64_t flags, kvmem_agent *agent,
                                uint32_t locality) {
    const kvmem_open_options options = opening(flags, agent);
    GET(kvmem_layout *, layout, kvmem_directory_entry_open_layout, entry, "cache", &options, PATIENCE);
    GET(kvmem_layout_info, info, kvmem_layout_get_info, layout);
    CHECK_EQ(info.locality, locality);
    return layout;
}

static void refuse(const kvmem_directory_entry *entry, const char *name, uint64_t flags, kvmem_agent *agent,
                   kvmem_status status, const char *part) {
    const kvmem_open_options options = opening(flags, agent);
    REFUSE(status, part, kvmem_directory_entry_open_layout, entry, name, &options, PATIENCE);
}

/* Reads blocks, and compares them with what a process with this seed has published. */
static void pull(const kvmem_layout *source, kvmem_agent *agent, uint32_t seed) {
    static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}, {3, 3}};
    OWNED(kvmem_layout) local = build(agent);
    size_t size;
    unsigned char *bytes = bytes_of(local, &size), *expected = malloc(size), *model = malloc(size);
    CHECK(expected != NULL && model != NULL);
    kv_fill(model, size, seed);
    memset(expected, 0, size);
    const kvmem_layout_config config = CONFIG;
    const size_t block = size / config.num_blocks;
    for (size_t i = 0; i < NUM(pairs); i++)
        memcpy(expected + pairs[i].destination * block, model + pairs[i].source * block, block);
    const kv_job job = JOB(it.run.pairs = pairs, it.run.num_pairs = NUM(pairs));
    kv_run_with(source, local, &job);
    CHECK_BYTES(bytes, expected, size);
    free(expected);
    free(model);
}

/* One call for both: it maps the memory without NIXL, for reading only by default, and uses NIXL if it cannot. */
TEST(a_layout_is_mapped_if_possible_and_accessed_by_nixl_otherwise) {
    OPENED(machine, machine);
    peer publisher = start_publisher(&machine, "north", 2);
    OWNED(kvmem_directory_entry) entry = look_up(&machine, "north");
    OWNED(kvmem_layout) mapped = open_cache(entry, 0, NULL, KVMEM_LOCALITY_MAPPED);
    pull(mapped, NULL, 2);
    OWN(kvmem_region, region, kvmem_layout_get_region, mapped, 0);
    CHECK(region_info(region).flags & KVMEM_REGION_READ_ONLY);
    OWNED(kvmem_layout) local = build(NULL);
    static const kvmem_block_pair pairs[] = {{0, 0}};
    const kv_job job = JOB(it.run.pairs = pairs, it.run.num_pairs = 1);
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, "", kv_prepare, local, mapped, &job);
    refuse(entry, "cache", KVMEM_OPEN_READ_WRITE, NULL, KVMEM_STATUS_PERMISSION_DENIED, "grants less");
    refuse(entry, "other", 0, NULL, KVMEM_STATUS_NOT_FOUND, "published no layout 'other'");
    refuse(entry, "plain", 0, NULL, KVMEM_STATUS_UNSUPPORTED, "with a broker");
    refuse(entry, "cache", KVMEM_OPEN_REMOTE, NULL, KVMEM_STATUS_INVALID_ARGUMENT, "agent");

    OWNED(kvmem_agent) agent = agent_open("near");
    OWNED(kvmem_layout) again = open_cache(entry, 0, agent, KVMEM_LOCALITY_MAPPED);
    refuse(entry, "cache", KVMEM_OPEN_READ_WRITE | KVMEM_OPEN_MAPPED_ONLY, agent, KVMEM_STATUS_PERMISSION_DENIED, "");
    refuse(entry, "plain", KVMEM_OPEN_MAPPED_ONLY, agent, KVMEM_STATUS_UNSUPPORTED, "with a broker");
    refuse(entry, "plain", KVMEM_OPEN_READ_ONLY, agent, KVMEM_STATUS_UNSUPPORTED, "with a broker");
    /* NIXL grants both rights. Its metadata was not loaded before. */
    OWNED(kvmem_layout) remote = open_cache(entry, KVMEM_OPEN_READ_WRITE, agent, KVMEM_LOCALITY_REMOTE);
    pull(remote, agent, 2);
    OWNED(kvmem_layout) forced = open_cache(entry, KVMEM_OPEN_REMOTE, agent, KVMEM_LOCALITY_REMOTE);
    pull(forced, agent, 2);
    refuse(entry, "cache", KVMEM_OPEN_REMOTE | KVMEM_OPEN_READ_ONLY, agent, KVMEM_STATUS_UNSUPPORTED, "READ_ONLY");
    end(&publisher);
}

TEST(what_the_publisher_grants_can_be_written) {
    OPENED(machine, machine);
    peer publisher = start_publisher(&machine, "north", 2);
    tell(&publisher, WRITABLE);
    OWNED(kvmem_directory_entry) entry = look_up(&machine, "north");
    OWNED(kvmem_layout) mapped = open_cache(entry, KVMEM_OPEN_READ_WRITE, NULL, KVMEM_LOCALITY_MAPPED);
    OWNED(kvmem_layout) local = build(NULL);
    size_t size;
    unsigned char *bytes = bytes_of(local, &size);
    kv_fill(bytes, size, 7);
    static const kvmem_block_pair pairs[] = {{0, 0}, {3, 3}, {6, 6}};
    kv_run_with(local, mapped, REF(JOB(it.run.pairs = pairs, it.run.num_pairs = NUM(pairs))));
    OWNED(kvmem_agent) agent = agent_open("near"); /* by another path to the same memory */
    OWNED(kvmem_layout) remote = open_cache(entry, KVMEM_OPEN_REMOTE, agent, KVMEM_LOCALITY_REMOTE);
    pull(remote, agent, 7);
    end(&publisher);
}

/* Each publication has a token of its own. What was opened stays open. */
TEST(an_entry_that_was_replaced_is_not_mapped) {
    OPENED(machine, machine);
    peer publisher = start_publisher(&machine, "north", 2);
    OWNED(kvmem_directory_entry) old = look_up(&machine, "north");
    OWNED(kvmem_layout) opened = open_cache(old, 0, NULL, KVMEM_LOCALITY_MAPPED);
    tell(&publisher, READ_ONLY);
    refuse(old, "cache", 0, NULL, KVMEM_STATUS_PERMISSION_DENIED, "published again since");
    pull(opened, NULL, 2);
    OWNED(kvmem_agent) agent = agent_open("near");
    OWNED(kvmem_layout) remote = open_cache(old, 0, agent, KVMEM_LOCALITY_REMOTE);
    pull(remote, agent, 2);
    OWNED(kvmem_directory_entry) current = look_up(&machine, "north");
    OWNED(kvmem_layout) again = open_cache(current, 0, NULL, KVMEM_LOCALITY_MAPPED);
    pull(again, NULL, 2);
    end(&publisher);
}

/* As in another container, in which there is no socket at the path, or after the broker has ended. */
TEST(a_broker_that_is_not_reachable_leaves_nixl) {
    OPENED(machine, machine);
    peer publisher = start_publisher(&machine, "north", 2);
    OWNED(kvmem_directory_entry) entry = look_up(&machine, "north");
    OWNED(kvmem_agent) agent = agent_open("near");
    char aside[160];
    snprintf(aside, sizeof(aside), "%s", scratch_file(&machine.files, "aside"));
    CHECK_EQ(rename(machine.socket, aside), 0);
    refuse(entry, "cache", KVMEM_OPEN_MAPPED_ONLY, agent, KVMEM_STATUS_NOT_FOUND, "no socket");
    OWNED(kvmem_layout) remote = open_cache(entry, 0, agent, KVMEM_LOCALITY_REMOTE);
    pull(remote, agent, 2);
    write_file(machine.socket, "", 0);
    refuse(entry, "cache", 0, NULL, KVMEM_STATUS_NOT_FOUND, "not a socket");
    CHECK_EQ(rename(aside, machine.socket), 0);
    OWNED(kvmem_layout) mapped = open_cache(entry, 0, agent, KVMEM_LOCALITY_MAPPED);
    tell(&publisher, NO_BROKER);
    refuse(entry, "cache", 0, NULL, KVMEM_STATUS_NOT_FOUND, "");
    OWNED(kvmem_layout) again = open_cache(entry, 0, agent, KVMEM_LOCALITY_REMOTE);
    pull(again, agent, 2);
    pull(mapped, agent, 2);
    end(&publisher);
}

/* The token of an entry is not sent to another process at the path, and the memory is never that of a namesake. */
TEST(a_process_that_was_replaced_is_stale_or_lost) {
    OPENED(machine, machine);
    peer old = start_publisher(&machine, "north", 2);
    OWNED(kvmem_directory_entry) first = look_up(&machine, "north");
    tell(&old, NO_BROKER);
    peer replacement = start_publisher(&machine, "north", 3);
    OWNED(kvmem_agent) agent = agent_open("near");
    refuse(first, "cache", 0, agent, KVMEM_STATUS_STALE, "listens there now");
    peer_kill(&old);
    refuse(first, "cache", 0, agent, KVMEM_STATUS_PEER_LOST, "has ended");
    OWNED(kvmem_directory_entry) second = look_up(&machine, "north");
    OWNED(kvmem_layout) mapped = open_cache(second, 0, agent, KVMEM_LOCALITY_MAPPED);
    pull(mapped, agent, 3);
    end(&replacement);
}

TEST(what_cannot_be_offered_fails_at_the_publication) {
    OPENED(machine, machine);
    OWNED(kvmem_agent) agent = agent_open("north");
    OPENED(kv_side, side, REF(CONFIG), agent, 1); /* adopted memory */
    OWN(kvmem_broker, broker, kvmem_broker_create, REF(OPTIONS(kvmem_broker_options, it.path = machine.socket)));
    kvmem_share_options remote = OPTIONS(kvmem_share_options, it.transport = KVMEM_SHARE_REMOTE);
    const struct {
        kvmem_named_layout layout;
        kvmem_status status;
        const char *part;
    } cases[] = {
        {{.name = "a", .layout = side.layout, .broker = broker}, KVMEM_STATUS_UNSUPPORTED, "publish layout 'a'"},
        {{.name = "a", .layout = side.layout, .share = &remote}, KVMEM_STATUS_INVALID_ARGUMENT, "broker is NULL"},
        {{.name = "a", .layout = side.layout, .broker = broker, .share = &remote},
         KVMEM_STATUS_INVALID_ARGUMENT,
         "KVMEM_SHARE_REMOTE"},
    };
    for (size_t i = 0; i < NUM(cases); i++)
        EXPECT_MESSAGE(cases[i].status, cases[i].part,
                       kvmem_directory_publish(machine.directory, agent, &cases[i].layout, 1, PATIENCE, ERR));
    GET(kvmem_broker_info, info, kvmem_broker_get_info, broker);
    CHECK_EQ(info.publications, 0);
}

/* The share keeps the memory only while it is published. */
TEST(an_offer_ends_with_the_withdrawal) {
    OPENED(machine, machine);
    OWNED(kvmem_agent) agent = agent_open("north");
    OWNED(kvmem_layout) layout = build(agent);
    OWN(kvmem_broker, broker, kvmem_broker_create, REF(OPTIONS(kvmem_broker_options, it.path = machine.socket)));
    const kvmem_named_layout named = {.name = "cache", .layout = layout, .broker = broker};
    for (int i = 0; i < 3; i++) {
        EXPECT_OK(kvmem_directory_publish(machine.directory, agent, &named, 1, PATIENCE, ERR));
        GET(kvmem_broker_info, info, kvmem_broker_get_info, broker);
        CHECK_EQ(info.publications, 1);
    }
    OWNED(kvmem_directory_entry) entry = look_up(&machine, "north");
    OWNED(kvmem_layout) own = open_cache(entry, 0, NULL, KVMEM_LOCALITY_LOCAL); /* the memory of this process itself */
    EXPECT_OK(kvmem_directory_withdraw(machine.directory, "north", PATIENCE, ERR));
    GET(kvmem_broker_info, info, kvmem_broker_get_info, broker);
    CHECK_EQ(info.publications, 0);
}
