// SPDX-License-Identifier: Apache-2.0
// GPU memory of a directory, which another process maps through the publisher's broker: what it reads, and when the
// memory is freed. With stand-ins for the driver and for NIXL.
#include "caller_context.h"
#include "driver.h"
#include "stand_in.h"

enum { START, PUBLISHED, WITHDRAW, WITHDRAWN, DESTROY, DESTROYED, IS_THERE, IS_THERE_REPLY, END };

#define CONFIG (kv_config(&kv_kinds[0]))

static const kv_move all = KV_MOVE(3, {0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {6, 6});

/* What both processes use. */
typedef struct publication {
    char folder[160], socket[160];
    uint32_t seed;
} publication;

static kvmem_directory *directory_in(const char *folder) {
    return MADE(kvmem_directory, kvmem_directory_create, REF(OPTIONS(kvmem_directory_options, it.folder = folder)));
}

/* A layout in GPU memory whose blocks are those of a side in host memory with the seed. */
static kvmem_layout *filled_layout(kvmem_agent *agent, uint32_t seed) {
    const kvmem_layout_config config = CONFIG;
    const kvmem_device_options memory = OPTIONS(kvmem_device_options);
    kvmem_layout *layout = MADE(kvmem_layout, kvmem_layout_build,
                                REF(OPTIONS(kvmem_layout_options, it.config = &config, it.agent = agent,
                                            it.source = KVMEM_LAYOUT_ALLOCATE, it.device = &memory)));
    OPENED(kv_side, host, &config, NULL, seed);
    kv_run(host.layout, layout, &all);
    return layout;
}

static bool is_device_memory(uint64_t address) {
    unsigned type = 0;
    const CUresult known = driver_get()->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    return known == CUDA_SUCCESS && type == CU_MEMORYTYPE_DEVICE;
}

static uint64_t address_of(const kvmem_layout *layout) {
    OWN(kvmem_region, region, kvmem_layout_get_region, layout, 0);
    return region_info(region).address;
}

ROLE(publisher) {
    publication wanted;
    frame_expect_into(socket, START, &wanted, sizeof(wanted));
    nixl_find_stand_in();
    retain_device(0); /* without a context the driver would free all memory */
    OWNED(kvmem_directory) directory = directory_in(wanted.folder);
    OWN(kvmem_agent, agent, kvmem_agent_create, "north", NULL);
    EXPECT_OK(kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
    kvmem_layout *layout = filled_layout(agent, wanted.seed);
    const uint64_t address = address_of(layout);
    OWN(kvmem_broker, broker, kvmem_broker_create, REF(OPTIONS(kvmem_broker_options, it.path = wanted.socket)));
    const kvmem_named_layout named = {.name = "cache", .layout = layout, .broker = broker};
    EXPECT_OK(kvmem_directory_publish(directory, agent, &named, 1, PATIENCE, ERR));
    frame_send(socket, PUBLISHED, NULL, 0);
    for (uint32_t tag = START; tag != END;) {
        CLEANUP(message_free) const message request = frame_receive(socket, &tag);
        if (tag == WITHDRAW) {
            EXPECT_OK(kvmem_directory_withdraw(directory, "north", PATIENCE, ERR));
            frame_send(socket, WITHDRAWN, NULL, 0);
        }
        if (tag == DESTROY) {
            CALL(kvmem_layout_destroy(layout));
            frame_send(socket, DESTROYED, NULL, 0);
        }
        if (tag == IS_THERE) {
            OWNED(kvmem_region) other = region_adopt(&wanted, sizeof(wanted));
            GET(kvmem_region_holders, holders, kvmem_region_get_holders, other); /* looks at what importers hold */
            const bool is_there = is_device_memory(address);
            frame_send(socket, IS_THERE_REPLY, &is_there, sizeof(is_there));
        }
    }
    release_device(0);
}

typedef struct machine {
    scratch files;
    kvmem_directory *directory;
    peer publisher;
    kvmem_directory_entry *entry;
    kvmem_layout *mapped;
} machine;

#define SEED 5

static void ask(const machine *machine, uint32_t request, uint32_t reply) {
    frame_send(machine->publisher.socket, request, NULL, 0);
    frame_await(machine->publisher.socket, reply);
}

static bool is_there(const machine *machine) {
    bool is_there;
    frame_send(machine->publisher.socket, IS_THERE, NULL, 0);
    frame_expect_into(machine->publisher.socket, IS_THERE_REPLY, &is_there, sizeof(is_there));
    return is_there;
}

static void machine_open(machine *machine) {
    publication wanted = {.seed = SEED};
    machine->files = scratch_create(temporary_directory());
    snprintf(wanted.folder, sizeof(wanted.folder), "%s", scratch_file(&machine->files, "agents"));
    snprintf(wanted.socket, sizeof(wanted.socket), "%s", scratch_file(&machine->files, "broker"));
    machine->publisher = peer_start("publisher");
    frame_send(machine->publisher.socket, START, &wanted, sizeof(wanted));
    frame_await(machine->publisher.socket, PUBLISHED);
    machine->directory = directory_in(wanted.folder);
    machine->entry = MADE(kvmem_directory_entry, kvmem_directory_look_up, machine->directory, "north", PATIENCE);
    GET(kvmem_layout *, mapped, kvmem_directory_entry_open_layout, machine->entry, "cache",
        REF(OPTIONS(kvmem_open_options)), PATIENCE);
    GET(kvmem_layout_info, info, kvmem_layout_get_info, mapped);
    CHECK_EQ(info.locality, KVMEM_LOCALITY_MAPPED);
    CHECK_EQ(info.tier, KVMEM_TIER_DEVICE);
    machine->mapped = mapped;
}

static void machine_close(machine *machine) {
    CALL(kvmem_layout_destroy(machine->mapped));
    CALL(kvmem_directory_entry_destroy(machine->entry));
    CALL(kvmem_directory_destroy(machine->directory));
    frame_send(machine->publisher.socket, END, NULL, 0);
    peer_finish(&machine->publisher);
    scratch_remove(&machine->files);
}

static void check_mapped(const machine *machine) {
    OPENED(kv_side, expected, REF(CONFIG), NULL, SEED);
    OPENED(kv_side, host, REF(CONFIG), NULL, SEED + 1);
    kv_run(machine->mapped, host.layout, &all);
    kv_side_check_moved(&host, &expected, &all);
}

/* The last holder in the publisher is the offer: it ends with the withdrawal. */
TEST(memory_is_freed_when_its_offer_and_its_importers_have_ended) {
    OPENED(machine, machine);
    check_mapped(&machine);
    ask(&machine, DESTROY, DESTROYED);
    check_mapped(&machine);
    ask(&machine, WITHDRAW, WITHDRAWN);
    CHECK(is_there(&machine));
    check_mapped(&machine);
    CALL(kvmem_layout_destroy(machine.mapped));
    machine.mapped = NULL;
    AWAIT(!is_there(&machine)); /* a query frees it on another thread */
}

TEST(memory_that_is_not_mapped_is_freed_by_the_withdrawal) {
    OPENED(machine, machine);
    CALL(kvmem_layout_destroy(machine.mapped));
    machine.mapped = NULL;
    ask(&machine, DESTROY, DESTROYED);
    CHECK(is_there(&machine)); /* peers can still open it */
    ask(&machine, WITHDRAW, WITHDRAWN);
    AWAIT(!is_there(&machine));
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, "", kvmem_directory_entry_open_layout, machine.entry, "cache",
           REF(OPTIONS(kvmem_open_options)), PATIENCE);
}
