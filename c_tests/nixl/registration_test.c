// SPDX-License-Identifier: Apache-2.0
// Regions registered with agents: once per agent, kept while in use, and deregistered before their memory is
// freed.
#include "harness.h"

static _Alignas(4096) unsigned char memory[65536];

static kvmem_region *adopt(int *releases) {
    return MADE(kvmem_region, kvmem_region_adopt_host,
                REF(OPTIONS(kvmem_adopt_options, it.address = memory, it.size = sizeof(memory),
                            it.release = releases != NULL ? count_release : NULL, it.user_data = releases)));
}

static kvmem_registration *register_with(kvmem_region *region, kvmem_agent *agent) {
    return MADE(kvmem_registration, kvmem_region_register, region, agent);
}

static uint32_t registration_count(const kvmem_region *region) {
    return region_info(region).registration_count;
}

/* NIXL has no read-only access: a write by a peer would crash this process. */
TEST(read_only_memory_is_not_registered) {
    OWNED(kvmem_agent) agent = agent_open("registrar");
    OWN(kvmem_region, region, kvmem_region_adopt_host,
        REF(OPTIONS(kvmem_adopt_options, it.address = memory, it.size = sizeof(memory),
                    it.flags = KVMEM_ADOPT_READ_ONLY)));
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, "KVMEM_ADOPT_READ_ONLY", kvmem_region_register, region, agent);
    CHECK_EQ(registration_count(region), 0);
}

/* The file is created before its registration fails: no backend of the agent accepts files. */
TEST(a_layout_that_cannot_be_registered_leaves_no_file) {
    OWNED(kvmem_agent) agent = agent_open("registrar");
    SCRATCH(directory);
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    kvmem_disk_options disk = OPTIONS(kvmem_disk_options, it.path = scratch_file(&directory, "cache"));
    kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = &config,
                                           it.source = KVMEM_LAYOUT_ALLOCATE, it.disk = &disk,
                                           it.agent = agent);
    REFUSE(KVMEM_STATUS_NIXL, "", kvmem_layout_build, &options);
    CHECK_EQ(count_directory_entries(directory.path), 0);
    options.agent = NULL;
    EXPECT_OK(TRIED(kvmem_layout, kvmem_layout_build, &options));
    /* A file that existed before stays. */
    disk.flags = KVMEM_DISK_OPEN_EXISTING;
    options.agent = agent;
    REFUSE(KVMEM_STATUS_NIXL, "", kvmem_layout_build, &options);
    CHECK_EQ(count_directory_entries(directory.path), 1);
}

TEST(the_info_of_a_registration_describes_it) {
    OWNED(kvmem_agent) agent = agent_open("registrar");
    OWNED(kvmem_region) region = adopt(NULL);
    kvmem_registration *registration = register_with(region, agent);
    const kvmem_registration_info info = registration_info(registration);
    CHECK_EQ(info.address, (uintptr_t)memory);
    CHECK_EQ(info.size, sizeof(memory));
    CHECK_EQ(info.device_id, 0);
    CHECK_EQ(info.memory_type, KVMEM_MEMORY_DRAM);
    CHECK_EQ(info.registered, 1);
    CHECK_EQ(registration_count(region), 1);
    OWN(kvmem_blob, name, kvmem_region_get_agent, region, 0);
    CHECK_STR((const char *)kvmem_blob_data(name), "registrar");
    CHECK_EQ(kvmem_blob_size(name), strlen("registrar"));
    REFUSE(KVMEM_STATUS_NOT_FOUND, "", kvmem_region_get_agent, region, 1);
    kvmem_registration_destroy(registration);
    CHECK_EQ(registration_count(region), 0);
}

TEST(a_file_is_registered_by_its_descriptor) {
    OWNED(kvmem_agent) agent = agent_open("files");
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    OWNED(kvmem_region) region = region_create_temporary_file(MIB);
    OWNED(kvmem_registration) registration = register_with(region, agent);
    const kvmem_registration_info info = registration_info(registration);
    CHECK_EQ(info.address, 0);
    CHECK_EQ(info.size, MIB);
    CHECK_EQ(info.device_id, region_info(region).fd);
    CHECK_EQ(info.memory_type, KVMEM_MEMORY_FILE);
}

TEST(registering_twice_with_one_agent_fails) {
    OWNED(kvmem_agent) agent = agent_open("twice");
    OWNED(kvmem_region) region = adopt(NULL);
    OWNED(kvmem_registration) registration = register_with(region, agent);
    REFUSE(KVMEM_STATUS_ALREADY_EXISTS, "twice", kvmem_region_register, region, agent);
    EXPECT_OK(kvmem_registration_deregister(registration, ERR));
    EXPECT_OK(TRIED(kvmem_registration, kvmem_region_register, region, agent));
}

TEST(two_agents_may_register_one_region) {
    OWNED(kvmem_agent) first = agent_open("first");
    OWNED(kvmem_agent) second = agent_open("second");
    OWNED(kvmem_region) region = adopt(NULL);
    kvmem_registration *registrations[] = {register_with(region, first), register_with(region, second)};
    CHECK_EQ(registration_count(region), 2);
    kvmem_registration_destroy(registrations[0]);
    CHECK_EQ(registration_count(region), 1);
    CHECK_EQ(registration_info(registrations[1]).registered, 1);
    kvmem_registration_destroy(registrations[1]);
}

TEST(without_a_suitable_backend_registration_fails) {
    OWN(kvmem_agent, agent, kvmem_agent_create, "bare", NULL);
    OWNED(kvmem_region) region = adopt(NULL);
    REFUSE(KVMEM_STATUS_NIXL, "bare", kvmem_region_register, region, agent);
    CHECK_EQ(registration_count(region), 0);
}

TEST(deregistering_twice_is_an_error) {
    OWNED(kvmem_agent) agent = agent_open("deregister");
    OWNED(kvmem_region) region = adopt(NULL);
    OWNED(kvmem_registration) registration = register_with(region, agent);
    EXPECT_OK(kvmem_registration_deregister(registration, ERR));
    CHECK_EQ(registration_info(registration).registered, 0);
    CHECK_EQ(registration_count(region), 0);
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_registration_deregister(registration, ERR));
    kvmem_registration_destroy(NULL);
}

/* NIXL searches a backend that accepts the memory type, and finds the one that was added later. */
TEST(a_backend_added_later_does_not_keep_the_registration) {
    static _Alignas(4096) unsigned char other_memory[4096];
    const int releases = releases_count();
    OWNED(kvmem_agent) agent = agent_open("later");
    kvmem_region *early = region_adopt_noting_release(memory, sizeof(memory));
    kvmem_registration *early_registration = register_with(early, agent);
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    OWNED(kvmem_region) late = region_adopt(other_memory, sizeof(other_memory));
    OWNED(kvmem_registration) late_registration = register_with(late, agent);
    EXPECT_OK(kvmem_registration_deregister(early_registration, ERR));
    kvmem_registration_destroy(early_registration);
    kvmem_region_destroy(early);
    await_releases(releases + 1);
    /* Again, with the same memory and both backends, and only by destroying handles. */
    early = region_adopt_noting_release(memory, sizeof(memory));
    early_registration = register_with(early, agent);
    kvmem_registration_destroy(early_registration);
    kvmem_region_destroy(early);
    await_releases(releases + 2);
    EXPECT_OK(kvmem_registration_deregister(late_registration, ERR));
}

static kvmem_layout_options options_over(const kvmem_layout_config *config, kvmem_agent *agent,
                                         kvmem_registration *const *registration) {
    return OPTIONS(kvmem_layout_options, it.config = config, it.agent = agent,
                   it.source = KVMEM_LAYOUT_REGISTRATIONS, it.registrations = registration, it.count = 1);
}

TEST(a_layout_keeps_its_registration) {
    OWNED(kvmem_agent) agent = agent_open("holder");
    OWNED(kvmem_region) region = adopt(NULL);
    OWNED(kvmem_registration) registration = register_with(region, agent);
    const kvmem_layout_options options = options_over(REF(kv_config(&kv_kinds[0])), agent, &registration);
    GET(kvmem_layout *, layout, kvmem_layout_build, &options);
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "destroy both", kvmem_registration_deregister(registration, ERR));
    CHECK_EQ(registration_info(registration).registered, 1);
    kvmem_layout_destroy(layout);
    EXPECT_OK(kvmem_registration_deregister(registration, ERR));
    REFUSE(KVMEM_STATUS_INVALID_STATE, "0", kvmem_layout_build, &options);
}

TEST(the_registration_of_another_agent_fails) {
    OWNED(kvmem_agent) owner = agent_open("owner");
    OWNED(kvmem_agent) other = agent_open("other");
    OWNED(kvmem_region) region = adopt(NULL);
    OWNED(kvmem_registration) registration = register_with(region, owner);
    const kvmem_layout_options options = options_over(REF(kv_config(&kv_kinds[0])), other, &registration);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "owner", kvmem_layout_build, &options);
    CHECK_HAS(test_last_message(), "other");
}

TEST(a_layout_over_regions_registers_them) {
    OWNED(kvmem_agent) agent = agent_open("builder");
    OPENED(kv_side, side, REF(kv_config(&kv_kinds[1])), agent, 1);
    CHECK_EQ(layout_info(side.layout).locality, KVMEM_LOCALITY_REGISTERED);
    CHECK_STR(layout_info(side.layout).agent, "builder");
    for (size_t i = 0; i < side.num_regions; i++) CHECK_EQ(registration_count(side.regions[i]), 1);
    DESTROYED(kvmem_layout, side.layout);
    for (size_t i = 0; i < side.num_regions; i++) CHECK_EQ(registration_count(side.regions[i]), 0);
}

enum { AGENT, REGION, REGISTRATION, NUM_HANDLES };

/* Memory is released once, with the last of the region's and the registration's handles. */
static void destroy_in_order(const int *order) {
    int releases = 0;
    kvmem_agent *agent = agent_open("orders");
    kvmem_region *region = adopt(&releases);
    kvmem_registration *registration = register_with(region, agent);
    int holders = 2;
    for (int i = 0; i < NUM_HANDLES; i++) {
        if (order[i] == AGENT) kvmem_agent_destroy(agent);
        else if (order[i] == REGION) kvmem_region_destroy(region);
        else kvmem_registration_destroy(registration);
        holders -= order[i] != AGENT;
        expect_releases(&releases, holders == 0);
    }
}

TEST_CALL(handles_are_destroyed_in_any_order, in_every_order(NUM_HANDLES, destroy_in_order))
