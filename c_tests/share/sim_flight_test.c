// SPDX-License-Identifier: Apache-2.0
// Memory that its owner decommits during a transfer: the transfer ends with STALE, never OK. Needs the
// stand-in driver.
#include "control.h"
#include "elastic_pair.h"
#include "kinds.h"
#include "offer.h"
#include "opened.h"

HOLDER_ROLE

/* Submits a transfer of the block, and returns with its copies in flight. */
static kvmem_transfer *submit_held(const elastic_pair *elastic_pair, uint32_t block) {
    kvmem_transfer *transfer = elastic_pair_transfer(elastic_pair, elastic_pair->mapped, block);
    SIM(sim_hold());
    EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(transfer, ERR));
    return transfer;
}

TEST(a_decommit_during_a_transfer_makes_it_stale) {
    OPENED(elastic_pair, elastic_pair, 7);
    holder_end_shares(&elastic_pair.owner);
    OWNED(kvmem_transfer) transfer = submit_held(&elastic_pair, 6);
    CHECK_EQ(holder_resize(&elastic_pair.owner, 4), KVMEM_STATUS_OK);
    SIM(sim_go());
    EXPECT(KVMEM_STATUS_STALE, kvmem_transfer_wait(transfer, PATIENCE, ERR));
    EXPECT(KVMEM_STATUS_STALE, kvmem_transfer_poll(transfer, ERR));
}

TEST(a_decommit_of_other_extents_does_not_affect_a_transfer) {
    OPENED(elastic_pair, elastic_pair, 7);
    holder_end_shares(&elastic_pair.owner);
    OWNED(kvmem_transfer) transfer = submit_held(&elastic_pair, 0);
    CHECK_EQ(holder_resize(&elastic_pair.owner, 4), KVMEM_STATUS_OK);
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
}

TEST(a_transfer_succeeds_if_the_owner_ends_during_it) {
    OPENED(elastic_pair, elastic_pair, 7);
    kvmem_transfer *transfer = submit_held(&elastic_pair, 6);
    peer_kill(&elastic_pair.owner);
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
    CALL(kvmem_transfer_destroy(transfer));
    elastic_pair.owner = holder_shared(); /* elastic_pair_close clears it */
}

TEST_EACH_KIND(opening_and_closing_leaks_nothing) {
    OPENED(offer, offer, kind, NULL);
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    OWNED(kvmem_region) region = open_parcel(&offer.parcel, kind == MEMORY_PINNED ? KVMEM_OPEN_PIN : 0);
    OWNED(kvmem_region) reader = open_parcel(&offer.parcel, KVMEM_OPEN_READ_ONLY);
    memory_check(reader, 1);
}

/* A driver that exports memory only by fabric handle. */
TEST(fabric_handles_are_used_if_no_others_can_be_exported) {
    SIM(sim_set_attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0));
    kvmem_region *region = memory_create(MEMORY_FABRIC, MEMORY_SIZE, NULL);
    kvmem_share_options options = {.struct_size = sizeof(options)};
    GET(kvmem_share *, share, kvmem_share_create_region, region, &options);
    CHECK_EQ(share_info(share).num_fds, 1); /* the control block */
    CALL(kvmem_share_destroy(share));
    options.transport = KVMEM_SHARE_FD;
    share = NULL;
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "a file descriptor",
                   kvmem_share_create_region(region, &options, &share, ERR));
    CALL(kvmem_region_destroy(region));
    SIM(sim_reset());
}

/* A device that can page-lock read-only memory: the GPU reads a layout that is shared read-only in place. */
TEST(a_read_only_share_is_page_locked_read_only) {
    const kv_move move = KV_MOVE(3, {6, 0}, {0, 5});
    const kvmem_share_options to_read = {.struct_size = sizeof(to_read), .flags = KVMEM_SHARE_READ_ONLY};
    const kvmem_layout_config config = blocks_config(&kv_kinds[1]);
    CLEANUP(holder_clear) peer owner = holder_shared();
    holder_build(&owner, MEMORY_PINNED, 1, BLOCKS_TOGETHER, NULL, 1);
    CLEANUP(parcel_close) parcel parcel = holder_share(&owner, &to_read);
    refuse_layout(&parcel, KVMEM_OPEN_PIN, NULL, KVMEM_STATUS_UNSUPPORTED, "cannot be page-locked");

    SIM(sim_set_attribute(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1));
    const sim_counts before = sim_live_now();
    kvmem_layout *locked = open_layout(&parcel, KVMEM_OPEN_PIN, NULL);
    CHECK(sim_live_now().registrations > before.registrations);
    kvmem_layout *own = blocks_build(MEMORY_DEVICE, &config, BLOCKS_TOGETHER, NULL);
    CLEANUP(kv_side_close) kv_side there;
    kv_model_open(&there, &config, 1);
    CLEANUP(kv_side_close) kv_side here;
    kv_model_open(&here, &config, 2);
    blocks_write(own, &here);
    const kvmem_transfer_info info = kv_run(locked, own, &move);
    /* By the GPU. Which method is the best depends on the rates that were measured. */
    CHECK(info.method >= KVMEM_METHOD_CUDA_COPY && info.method <= KVMEM_METHOD_CUDA_STAGED);
    kv_expect_moved(&here, &there, &move);
    blocks_check(own, &here);
    const kv_job back = kv_job_of(&move);
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, "", kv_prepare, own, locked, &back);
    CALL(kvmem_layout_destroy(own));
    CALL(kvmem_layout_destroy(locked));
    await_live(&before);
    SIM(sim_reset());
}
