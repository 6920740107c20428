// SPDX-License-Identifier: Apache-2.0
// Shares and NIXL: layouts that cannot be mapped are accessed by NIXL, and mapped layouts are registered with
// it.
#include "exchange.h"
#include "forged.h"
#include "opened.h"

HOLDER_ROLE

static const kv_move all_layers = KV_MOVE(3, {6, 0}, {0, 5}, {1, 6}, {3, 3});

typedef exchange fixture;
static kvmem_agent *agent;

/* A process that shares a layout. Both processes register theirs with an agent. */
static void fixture_open(fixture *fixture, memory_kind kind, const kvmem_share_options *options) {
    agent = agent_open("importer");
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    exchange_open(fixture, holder_start(),
                  &(exchange_options){.there = kind, .layout_kind = 1, .agent_there = "owner",
                                                             .agent = agent, .options = options});
}

static void fixture_close(fixture *fixture) {
    exchange_close(fixture);
    peer_finish(&fixture->owner);
    kvmem_agent_destroy(agent);
}

static uint32_t locality_of(const kvmem_layout *layout) { return layout_info(layout).locality; }

/* Moves blocks into the layout and out of it, by this method. */
static void move_in_both_directions(fixture *fixture, const kvmem_layout *shared, uint32_t method) {
    const kv_move back = KV_MOVE(3, {3, 4});
    CHECK_EQ(exchange_pull(fixture, shared, &all_layers, method).method, method);
    blocks_write(fixture->own, &fixture->here);
    CHECK_EQ(exchange_push(fixture, shared, &back, method).method, method);
}

static void refuse_transfer(const kvmem_layout *source, const kvmem_layout *destination, kvmem_status status,
                            const char *part) {
    const kv_job options = kv_job_of(&all_layers);
    REFUSE(status, part, kv_prepare, source, destination, &options);
}

static const kvmem_share_options by_nixl = {.struct_size = sizeof(by_nixl), .transport = KVMEM_SHARE_REMOTE};
static const kvmem_share_options to_be_read = {.struct_size = sizeof(to_be_read),
                                               .flags = KVMEM_SHARE_READ_ONLY};

TEST(a_share_without_memory_is_accessed_by_nixl) {
    OPENED(fixture, fixture, MEMORY_SYSTEM, &by_nixl);
    kvmem_share *share = parcel_share(&fixture.parcel);
    GET(kvmem_share_info, info, kvmem_share_get_info, share);
    CHECK_EQ(info.num_fds, 0);
    CHECK_EQ(info.memory_size, 0);
    CHECK_EQ(info.tier, 0);
    CHECK_EQ(info.transport, KVMEM_SHARE_REMOTE);
    CHECK_EQ(info.object, KVMEM_SHARED_LAYOUT);
    kvmem_share_destroy(share);
    refuse_layout(&fixture.parcel, 0, NULL, KVMEM_STATUS_UNSUPPORTED, "agent");
    refuse_layout(&fixture.parcel, KVMEM_OPEN_MAPPED_ONLY, agent, KVMEM_STATUS_UNSUPPORTED,
                  "no memory");
    OWNED(kvmem_layout) remote = open_layout(&fixture.parcel, 0, agent);
    CHECK_EQ(locality_of(remote), KVMEM_LOCALITY_REMOTE);
    move_in_both_directions(&fixture, remote, KVMEM_METHOD_NIXL);
}

TEST(the_importer_chooses_between_mapping_and_nixl) {
    OPENED(fixture, fixture, MEMORY_SYSTEM, NULL);
    OWNED(kvmem_layout) mapped = open_layout(&fixture.parcel, 0, agent);
    CHECK_EQ(locality_of(mapped), KVMEM_LOCALITY_MAPPED);
    move_in_both_directions(&fixture, mapped, KVMEM_METHOD_MEMCPY);
    OWNED(kvmem_layout) remote = open_layout(&fixture.parcel, KVMEM_OPEN_REMOTE, agent);
    CHECK_EQ(locality_of(remote), KVMEM_LOCALITY_REMOTE);
    move_in_both_directions(&fixture, remote, KVMEM_METHOD_NIXL);
    blocks_check(mapped, &fixture.there);
    refuse_layout(&fixture.parcel, KVMEM_OPEN_REMOTE, NULL, KVMEM_STATUS_INVALID_ARGUMENT, "agent");
}

/* As from another machine: the memory cannot be mapped, but the agent can be reached. */
TEST(a_layout_that_cannot_be_mapped_is_accessed_by_nixl) {
    OPENED(fixture, fixture, MEMORY_SYSTEM, NULL);
    forge_text(&fixture.parcel, "boot_id", "another");
    refuse_layout(&fixture.parcel, 0, NULL, KVMEM_STATUS_UNSUPPORTED, "another machine");
    refuse_layout(&fixture.parcel, KVMEM_OPEN_MAPPED_ONLY, agent, KVMEM_STATUS_UNSUPPORTED,
                  "another machine");
    refuse_layout(&fixture.parcel, KVMEM_OPEN_READ_ONLY, agent, KVMEM_STATUS_UNSUPPORTED,
                  "another machine");
    OWNED(kvmem_layout) remote = open_layout(&fixture.parcel, 0, agent);
    CHECK_EQ(locality_of(remote), KVMEM_LOCALITY_REMOTE);
    move_in_both_directions(&fixture, remote, KVMEM_METHOD_NIXL);
}

/* A damaged share fails; NIXL is not used instead. */
TEST(a_corrupt_share_is_not_accessed_by_nixl) {
    OPENED(fixture, fixture, MEMORY_SYSTEM, NULL);
    forge_bytes(&fixture.parcel, "id");
    refuse_layout(&fixture.parcel, 0, agent, KVMEM_STATUS_CORRUPT, "another region");
}

TEST(a_read_only_share_is_not_accessed_by_nixl) {
    OPENED(fixture, fixture, MEMORY_SYSTEM, &to_be_read);
    refuse_layout(&fixture.parcel, KVMEM_OPEN_REMOTE, agent, KVMEM_STATUS_UNSUPPORTED,
                  "read-only");
    kvmem_layout *mapped = open_layout(&fixture.parcel, 0, agent);
    CHECK_EQ(locality_of(mapped), KVMEM_LOCALITY_MAPPED);
    kvmem_layout_destroy(mapped);
    parcel_close(&fixture.parcel);
    fixture.parcel = holder_share(&fixture.owner, NULL);
    refuse_layout(&fixture.parcel, KVMEM_OPEN_REMOTE | KVMEM_OPEN_READ_ONLY, agent,
                  KVMEM_STATUS_UNSUPPORTED, "no read-only access");
    kvmem_share_options both = by_nixl;
    both.flags = KVMEM_SHARE_READ_ONLY;
    CHECK_EQ(holder_refuse_share(&fixture.owner, &both), KVMEM_STATUS_INVALID_STATE);
}

TEST(a_mapped_layout_is_registered_on_demand) {
    OPENED(fixture, fixture, MEMORY_SYSTEM, NULL);
    refuse_layout(&fixture.parcel, KVMEM_OPEN_REGISTER, NULL, KVMEM_STATUS_INVALID_ARGUMENT, "agent");
    OWNED(kvmem_layout) mapped = open_layout(&fixture.parcel, KVMEM_OPEN_REGISTER, agent);
    CHECK_EQ(locality_of(mapped), KVMEM_LOCALITY_MAPPED);
    for (size_t i = 0; i < kv_num_regions(&fixture.config); i++) {
        OWN(kvmem_region, region, kvmem_layout_get_region, mapped, i);
        CHECK_EQ(region_info(region).registration_count, 1);
    }
    move_in_both_directions(&fixture, mapped, KVMEM_METHOD_MEMCPY);
}

/* One peer's memory is mapped, another's is accessed by NIXL: blocks move between them, unless the mapped
   memory is a file. */
TEST(mapped_memory_and_a_remote_layout) {
    static const kvmem_block_pair back[] = {{2, 4}, {5, 1}};
    const kv_move some = {back, NUM(back), 0, 1, 2};
    OPENED(fixture, fixture, MEMORY_SYSTEM, NULL);
    OWNED(kvmem_layout) remote = open_layout(&fixture.parcel, KVMEM_OPEN_REMOTE, agent);
    CLEANUP(peer_finish) peer neighbour = holder_start();
    holder_build(&neighbour, MEMORY_SYSTEM, 2, BLOCKS_APART, NULL, 3);
    CLEANUP(parcel_close) parcel parcel = holder_share(&neighbour, NULL);
    kv_side beside;
    kv_model_open(&beside, REF(blocks_config(&kv_kinds[2])), 3);
    OWNED(kvmem_layout) mapped = open_layout(&parcel, KVMEM_OPEN_REGISTER, agent);
    CHECK_EQ(locality_of(mapped), KVMEM_LOCALITY_MAPPED);
    CHECK_EQ(kv_run(remote, mapped, &all_layers).method, KVMEM_METHOD_NIXL);
    kv_expect_moved(&beside, &fixture.there, &all_layers);
    holder_check_model(&neighbour, &beside);
    holder_check_model(&fixture.owner, &fixture.there);
    CHECK_EQ(kv_run(mapped, remote, &some).method, KVMEM_METHOD_NIXL);
    kv_expect_moved(&fixture.there, &beside, &some);
    holder_check_model(&fixture.owner, &fixture.there);
    holder_check_model(&neighbour, &beside);
    blocks_check(mapped, &beside);
    kvmem_layout_destroy(mapped);
    mapped = open_layout(&parcel, 0, NULL);
    refuse_transfer(mapped, remote, KVMEM_STATUS_INVALID_STATE, "agent");
    refuse_transfer(remote, mapped, KVMEM_STATUS_INVALID_STATE, "agent");
    kvmem_layout_destroy(mapped);
    holder_end_shares(&neighbour);
    holder_destroy(&neighbour);
    parcel_close(&parcel);
    holder_build(&neighbour, MEMORY_DISK, 2, BLOCKS_APART, NULL, 3);
    parcel = holder_share(&neighbour, NULL);
    mapped = open_layout(&parcel, KVMEM_OPEN_REGISTER, agent);
    refuse_transfer(mapped, remote, KVMEM_STATUS_UNSUPPORTED, "between a peer and a layout on tier disk");
    refuse_transfer(remote, mapped, KVMEM_STATUS_UNSUPPORTED, "between a peer and a layout on tier disk");
    kv_side_close(&beside);
}

TEST(a_file_is_mapped_and_registered) {
    OPENED(fixture, fixture, MEMORY_DISK, NULL);
    kvmem_layout *mapped = open_layout(&fixture.parcel, KVMEM_OPEN_REGISTER, agent);
    CHECK_EQ(locality_of(mapped), KVMEM_LOCALITY_MAPPED);
    blocks_check(mapped, &fixture.there);
    move_in_both_directions(&fixture, mapped, KVMEM_METHOD_NIXL);
    move_in_both_directions(&fixture, mapped, KVMEM_METHOD_PREAD);
    kvmem_layout_destroy(mapped);
    /* Files cannot be accessed by NIXL. */
    CHECK_EQ(holder_refuse_share(&fixture.owner, &by_nixl), KVMEM_STATUS_INVALID_STATE);
}

TEST(a_read_only_file_is_read) {
    OPENED(fixture, fixture, MEMORY_DISK, &to_be_read);
    OWNED(kvmem_layout) mapped = open_layout(&fixture.parcel, KVMEM_OPEN_REGISTER, agent);
    const uint32_t paths[] = {KVMEM_METHOD_NIXL, KVMEM_METHOD_PREAD};
    for (size_t i = 0; i < NUM(paths); i++)
        CHECK_EQ(exchange_pull(&fixture, mapped, &all_layers, paths[i]).method, paths[i]);
    const kv_job options = kv_job_of(&all_layers);
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, "", kv_prepare, fixture.own, mapped, &options);
}

/* Memory of this process without a file. Without an agent it cannot be shared at all. */
TEST(memory_that_is_not_shareable_is_accessed_by_nixl_only) {
    kvmem_agent *agents[] = {agent_open("here"), NULL};
    for (size_t i = 0; i < NUM(agents); i++) {
        const kvmem_layout_config config = blocks_config(&kv_kinds[0]);
        kvmem_system_options plain = {.struct_size = sizeof(plain)};
        OWN(kvmem_layout, layout, kvmem_layout_build,
            REF(OPTIONS(kvmem_layout_options, it.config = &config, it.agent = agents[i],
                        it.source = KVMEM_LAYOUT_ALLOCATE, it.system = &plain)));
        OWNED(kvmem_share) share = NULL;
        EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "KVMEM_SYSTEM_SHAREABLE",
                       kvmem_share_create_layout(layout, NULL, &share, ERR));
        EXPECT(agents[i] != NULL ? KVMEM_STATUS_OK : KVMEM_STATUS_INVALID_STATE,
               kvmem_share_create_layout(layout, &by_nixl, &share, ERR));
    }
    kvmem_agent_destroy(agents[0]);
}

/* An agent whose plugins only serve files cannot reach a peer. The memory is shared without it. */
TEST(an_agent_that_reaches_no_peer_does_not_prevent_sharing) {
    OWN(kvmem_agent, agent, kvmem_agent_create, "files", NULL);
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    const kvmem_layout_config config = blocks_config(&kv_kinds[0]);
    OWNED(kvmem_layout) layout = blocks_build(MEMORY_SYSTEM, &config, BLOCKS_TOGETHER, agent);
    const uint32_t transports[] = {KVMEM_SHARE_AUTO, KVMEM_SHARE_FD};
    for (size_t i = 0; i < NUM(transports); i++) {
        const kvmem_share_options options = {.struct_size = sizeof(options), .transport = transports[i]};
        OWN(kvmem_share, share, kvmem_share_create_layout, layout, &options);
        CLEANUP(parcel_close) parcel parcel = parcel_of(share);
        CLEANUP(peer_finish) peer importer = holder_start();
        CHECK_EQ(holder_open_layout(&importer, &parcel), KVMEM_STATUS_OK);
    }
    REFUSE(KVMEM_STATUS_INVALID_STATE, "such as UCX", kvmem_share_create_layout, layout, &by_nixl);
    REFUSE(KVMEM_STATUS_INVALID_STATE, "which has POSIX", kvmem_layout_export, layout);
}

/* What the log reports about how a layout is accessed, at the requested level. */
static char logged[256];

static void note_access(uint32_t level, const char *target, const char *message, void *user_data) {
    (void)target;
    (void)user_data;
    if (level == KVMEM_LOG_INFO && strstr(message, "accessed by NIXL") != NULL)
        snprintf(logged, sizeof(logged), "%s", message);
}

static void expect_logged(const parcel *parcel, kvmem_agent *agent, uint32_t locality, const char *part) {
    logged[0] = '\0';
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_INFO, note_access, NULL, ERR));
    OWNED(kvmem_layout) layout = open_layout(parcel, 0, agent);
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, ERR));
    CHECK_EQ(locality_of(layout), locality);
    CHECK_HAS(logged, part);
    CHECK(part[0] != '\0' || logged[0] == '\0');
}

/* Neither mapping nor NIXL was requested. */
TEST(the_reason_for_access_by_nixl_is_logged) {
    {
        OPENED(fixture, fixture, MEMORY_SYSTEM, &by_nixl);
        expect_logged(&fixture.parcel, agent, KVMEM_LOCALITY_REMOTE, "contains no memory handles");
    }
    OPENED(fixture, fixture, MEMORY_SYSTEM, NULL);
    expect_logged(&fixture.parcel, agent, KVMEM_LOCALITY_MAPPED, "");
    forge_text(&fixture.parcel, "boot_id", "another");
    expect_logged(&fixture.parcel, agent, KVMEM_LOCALITY_REMOTE, "another machine");
}
