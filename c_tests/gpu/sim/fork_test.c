// SPDX-License-Identifier: Apache-2.0
// CUDA does not work after a fork. In the child every call fails with INVALID_STATE without a driver call;
// the parent is not affected.
#include "control.h"
#include "engine.h"
#include "importer.h"
#include "sides.h"
#include "caller_context.h"

static const kvmem_block_pair pair[] = {{1, 2}};
static const kv_move move = {pair, 1, 0, 0, 3};

/* Objects of the parent, which the child inherits. */
typedef struct world {
    side pinned;
    side device;
    side adopted;
    side elastic;
    kvmem_transfer *transfer;
    uint64_t engine_memory;
} world;

static world w;

TEST(open_world) {
    let_objects_remain(); /* for the other cases */
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    side_open(&w.pinned, PLACE_PINNED, 0, &config, NULL, 1);
    side_open(&w.device, PLACE_DEVICE, 0, &config, NULL, 2);
    side_open(&w.adopted, PLACE_ADOPTED, 0, &config, NULL, 3);
    side_open(&w.elastic, PLACE_ELASTIC_PARTLY, 0, &config, NULL, 4);
    w.engine_memory = engine_allocate(0, MIB);
    const kv_job options = kv_job_of(&move);
    const kvmem_layout *here = w.pinned.model.layout;
    const kvmem_layout *there = w.device.model.layout;
    EXPECT_OK(kv_prepare(here, there, &options, &w.transfer, ERR));
}

static void expect_parent_works(void) {
    RUN(w.transfer);
    side_check_moved(&w.device, &w.pinned, &move);
}

/* Without EXPECT, which calls the driver to check the current context. */
#define FORKED(call) test_check_status(__FILE__, __LINE__, #call, call, KVMEM_STATUS_INVALID_STATE)

static void query(void) {
    kvmem_cuda_info info;
    kvmem_cuda_device_info device_info;
    FORKED(kvmem_cuda_get_info(&info, ERR));
    FORKED(kvmem_cuda_get_device_info(0, &device_info, ERR));
    kvmem_blob *rates = NULL;
    FORKED(kvmem_cuda_get_copy_rates(0, 0, &rates, ERR));
    FORKED(kvmem_cuda_set_copy_rates(0, 0, NULL, 0, ERR));
    FORKED(kvmem_cuda_use_default_rates(0, ERR));
    static const uint8_t uuid[16];
    int32_t device = 0;
    kvmem_ipc_handle handle;
    FORKED(kvmem_cuda_find_device(uuid, &device, ERR));
    FORKED(kvmem_ipc_export(w.engine_memory, &handle, ERR));
}

static void allocate(void) {
    kvmem_device_options device = OPTIONS(kvmem_device_options, it.size = 4096);
    kvmem_region *region = NULL;
    FORKED(kvmem_region_create_device(&device, &region, ERR));
    FORKED(kvmem_region_create_pinned(REF(OPTIONS(kvmem_pinned_options, it.size = 4096)), &region, ERR));
    FORKED(kvmem_region_create_elastic(REF(OPTIONS(kvmem_elastic_options, it.size = 4096)), &region, ERR));
    kvmem_adopt_options adopt = OPTIONS(kvmem_adopt_options, it.address = (void *)(uintptr_t)w.engine_memory,
                                        it.size = MIB);
    FORKED(kvmem_region_adopt_device(&adopt, 0, &region, ERR));
    FORKED(kvmem_region_open_ipc(REF(OPTIONS(kvmem_ipc_options, it.size = 4096)), &region, ERR));
    CHECK(region == NULL);
    kvmem_vmm_memory *memory = NULL;
    FORKED(kvmem_vmm_memory_import_fd(0, MIB, 0, &memory, ERR));
    FORKED(kvmem_vmm_memory_retain(w.engine_memory, &memory, ERR));
    CHECK(memory == NULL);
}

static void map(void) {
    kvmem_vmm_options options = OPTIONS(kvmem_vmm_options, it.size = 2 * MIB);
    uint64_t granularity = 0;
    kvmem_vmm_range *range = NULL;
    kvmem_vmm_memory *memory = NULL;
    FORKED(kvmem_vmm_get_granularity(&options, KVMEM_GRANULARITY_MINIMUM, &granularity, ERR));
    FORKED(kvmem_vmm_range_create(2 * MIB, 0, NULL, &range, ERR));
    FORKED(kvmem_vmm_memory_create(&options, &memory, ERR));
}

static void use_handles(void) {
    kvmem_region_info info;
    kvmem_layout_info layout_info;
    kvmem_region *view = NULL;
    kvmem_transfer *transfer = NULL;
    const kv_job options = kv_job_of(&move);
    FORKED(kvmem_region_get_info(w.device.whole, &info, ERR));
    FORKED(kvmem_region_create_view(w.pinned.whole, 0, 1, &view, ERR));
    FORKED(kvmem_layout_resize(w.elastic.model.layout, 7, ERR));
    FORKED(kvmem_layout_get_info(w.adopted.model.layout, &layout_info, ERR));
    FORKED(kv_prepare(w.device.model.layout, w.pinned.model.layout, &options, &transfer, ERR));
    FORKED(kvmem_transfer_submit(w.transfer, NULL, ERR));
    FORKED(kvmem_transfer_wait(w.transfer, KVMEM_TIMEOUT_FOREVER, ERR));
}

static void destroy_everything(void) {
    kvmem_transfer_destroy(w.transfer);
    kv_side_close(&w.pinned.model);
    kv_side_close(&w.device.model);
    kv_side_close(&w.adopted.model);
    kv_side_close(&w.elastic.model);
    kvmem_region_destroy(w.pinned.whole);
    kvmem_region_destroy(w.device.whole);
}

static void (*child_of_case)(void);
static uint64_t calls_before;

static void call_no_driver(void) {
    child_of_case();
    CHECK_EQ(SIM(sim_call_count()), calls_before);
}

/* Runs the function in a forked child, in which kvmem must not call the driver. */
static void in_a_child(void (*child)(void)) {
    child_of_case = child;
    calls_before = SIM(sim_call_count());
    in_a_forked_child(call_no_driver);
    expect_parent_works();
    let_objects_remain(); /* streams of the transfer */
}

TEST_CALL(queries_in_a_child, in_a_child(query))
TEST_CALL(allocations_in_a_child, in_a_child(allocate))
TEST_CALL(mappings_in_a_child, in_a_child(map))
TEST_CALL(inherited_handles_are_used_in_a_child, in_a_child(use_handles))
TEST_CALL(inherited_handles_are_destroyed_in_a_child, in_a_child(destroy_everything))

/* A region that its owner has destroyed while an importer has it open. */
static struct {
    int importer;
    int releases;
    uint64_t address;
} waiting;

static void destroy_while_imported(void) {
    waiting.address = engine_allocate(0, MIB);
    const kvmem_adopt_options options =
        OPTIONS(kvmem_adopt_options, it.address = (void *)(uintptr_t)waiting.address, it.size = MIB,
                it.release = count_release, it.user_data = &waiting.releases);
    OWN(kvmem_region, region, kvmem_region_adopt_device, &options, 0);
    OWN(kvmem_share, share, kvmem_share_create_region, region, NULL);
    waiting.importer = importer_begin(share);
}

/* Calls that check whether regions waiting for importers can be released. */
static void query_holders(void) {
    kvmem_system_options options = OPTIONS(kvmem_system_options, it.size = 4096);
    CLEANUP(test_end_kvmem_region) kvmem_region *region = NULL; /* not OWNED, which calls the driver */
    kvmem_region_holders holders;
    CHECK_EQ(kvmem_region_create_system(&options, &region, ERR), KVMEM_STATUS_OK);
    CHECK_EQ(kvmem_region_get_holders(region, &holders, ERR), KVMEM_STATUS_OK);
}

static void check_no_release(void) {
    importer_unlock(waiting.importer);
    query_holders();
    kvmem_device_options options = OPTIONS(kvmem_device_options, it.size = 4096);
    kvmem_region *region = NULL;
    FORKED(kvmem_region_create_device(&options, &region, ERR));
    CHECK_EQ(waiting.releases, 0);
}

TEST(a_child_releases_no_region_that_waits_for_importers) {
    destroy_while_imported();
    expect_releases(&waiting.releases, 0);
    in_a_child(check_no_release);
    importer_unlock(waiting.importer); /* again, for builds that skip the child */
    query_holders();
    expect_releases(&waiting.releases, 1);
    importer_end(waiting.importer);
    engine_free(0, waiting.address);
    waiting.releases = 0;
}

TEST(close_world) {
    CALL(kvmem_transfer_destroy(w.transfer));
    side_close(&w.pinned);
    side_close(&w.device);
    side_close(&w.adopted);
    side_close(&w.elastic);
    engine_free(0, w.engine_memory);
}
