// SPDX-License-Identifier: Apache-2.0
// Creates and destroys the handles that contract tests misuse.
#include "contract.h"

static const kvmem_block_pair pair[] = {{0, 1}};

kv_job world_job(void) {
    const kv_move move = {pair, NUM(pair), 0, 0, 3};
    return kv_job_of(&move);
}

static void open_regions(world *world) {
    kvmem_system_options system = OPTIONS(kvmem_system_options, it.size = 65536);
    EXPECT_OK(kvmem_region_create_system(&system, &world->region, ERR));
    kvmem_disk_options disk = OPTIONS(kvmem_disk_options, it.size = 65536);
    char path[64];
    snprintf(path, sizeof(path), "/tmp/kvmem_contract_%d", (int)getpid());
    disk.path = path;
    EXPECT_OK(kvmem_region_create_disk(&disk, &world->file, ERR));
    CHECK_EQ(unlink(path), 0); /* the region keeps the open file */
    EXPECT_OK(kvmem_region_register(world->region, world->agent, &world->registration, ERR));
}

/* The two agents exchange metadata, and one notification is waiting. */
static void introduce(world *world) {
    agents_introduce(world->agent, world->far);
    agents_introduce(world->far, world->agent);
    EXPECT_OK(kvmem_agent_notify(world->far, "near", "hello", 5, ERR));
    EXPECT_OK(kvmem_agent_take_notifications(world->agent, PATIENCE, &world->notifications, ERR));
}

static void open_layouts(world *world) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    kv_side_open(&world->local, &config, NULL, 1);
    kv_side_open(&world->near, &config, world->agent, 2);
    kv_side_open(&world->far_side, &config, world->far, 3);
    const uint32_t block = 0;
    EXPECT_OK(kvmem_lease_create(world->local.layout, &block, 1, NULL, &world->lease, ERR));
}

static void open_transfers(world *world) {
    EXPECT_OK(kvmem_queue_create(&world->queue, ERR));
    const kv_job job = WITH(world_job(), it.transfer.queue = world->queue);
    EXPECT_OK(kv_prepare(world->near.layout, world->remote, &job, &world->transfer, ERR));
    EXPECT_OK(kv_prepare(world->local.layout, world->local.layout, &job, &world->copy, ERR));
}

void world_open(world *world) {
    memset(world, 0, sizeof(*world));
    world->agent = agent_open("near");
    EXPECT_OK(kvmem_agent_create_backend(world->agent, "POSIX", NULL, 0, ERR));
    world->far = agent_open("far");
    open_regions(world);
    open_layouts(world);
    introduce(world);
    message descriptor = layout_descriptor(world->far_side.layout);
    EXPECT_OK(kvmem_layout_import(world->agent, descriptor.data, descriptor.size, &world->remote, ERR));
    free(descriptor.data);
    EXPECT_OK(kvmem_layout_export(world->near.layout, &world->blob, ERR));
    open_transfers(world);
}

void world_close(world *world) {
    kvmem_transfer_destroy(world->transfer);
    kvmem_transfer_destroy(world->copy);
    kvmem_queue_destroy(world->queue);
    kvmem_notifications_destroy(world->notifications);
    kvmem_blob_destroy(world->blob);
    kvmem_layout_destroy(world->remote);
    kvmem_lease_destroy(world->lease);
    kv_side_close(&world->local);
    kv_side_close(&world->near);
    kv_side_close(&world->far_side);
    kvmem_registration_destroy(world->registration);
    kvmem_region_destroy(world->region);
    kvmem_region_destroy(world->file);
    kvmem_agent_destroy(world->agent);
    kvmem_agent_destroy(world->far);
    memset(world, 0, sizeof(*world));
}
