// SPDX-License-Identifier: Apache-2.0
// Memory that its owner takes back in the middle of a transfer: the outcome is STALE, never OK. Needs the
// stand-in.
#include "control.h"
#include "kinds.h"
#include "offer.h"
#include "opened.h"
#include "shrunk.h"

HOLDER_ROLE

/* Submits the block and returns with its bytes on their way. */
static kvmem_transfer *submit_held(const shrunk *shrunk, uint32_t block) {
    kvmem_transfer *transfer = shrunk_transfer(shrunk, shrunk->mapped, block);
    SIM(sim_hold());
    EXPECT_OK(kvmem_transfer_submit(transfer, ERR));
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(transfer, ERR));
    return transfer;
}

TEST(taken_back_in_flight_it_is_stale) {
    OPENED(shrunk, shrunk, 7);
    holder_end_shares(&shrunk.owner);
    OWNED(kvmem_transfer) transfer = submit_held(&shrunk, 6);
    CHECK_EQ(holder_resize(&shrunk.owner, 4), KVMEM_STATUS_OK);
    SIM(sim_go());
    EXPECT(KVMEM_STATUS_STALE, kvmem_transfer_wait(transfer, PATIENCE, ERR));
    EXPECT(KVMEM_STATUS_STALE, kvmem_transfer_poll(transfer, ERR));
}

TEST(what_it_does_not_touch_may_go_meanwhile) {
    OPENED(shrunk, shrunk, 7);
    holder_end_shares(&shrunk.owner);
    OWNED(kvmem_transfer) transfer = submit_held(&shrunk, 0);
    CHECK_EQ(holder_resize(&shrunk.owner, 4), KVMEM_STATUS_OK);
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
}

TEST(an_owner_that_ends_meanwhile_leaves_the_bytes) {
    OPENED(shrunk, shrunk, 7);
    kvmem_transfer *transfer = submit_held(&shrunk, 6);
    peer_kill(&shrunk.owner);
    SIM(sim_go());
    EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
    CALL(kvmem_transfer_destroy(transfer));
    shrunk.owner = holder_in_common(); /* for shrunk_close to clear */
}

TEST_EACH_KIND(everything_is_given_back) {
    OPENED(offer, offer, kind, NULL);
    CLEANUP(await_live) const sim_counts before = sim_live_now();
    OWNED(kvmem_region) region = open_parcel(&offer.parcel, kind == MEMORY_PINNED ? KVMEM_OPEN_PIN : 0);
    OWNED(kvmem_region) reader = open_parcel(&offer.parcel, KVMEM_OPEN_READ_ONLY);
    memory_check(reader, 1);
}

/* A driver whose memory leaves by fabric handle alone. */
TEST(without_file_descriptors_handles_are_taken) {
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

/* A device that locks what may only be read: a layout that is shared so is read by the GPU where it lies. */
TEST(what_is_only_read_is_page_locked_to_be_read) {
    const kv_move move = KV_MOVE(3, {6, 0}, {0, 5});
    const kvmem_share_options to_read = {.struct_size = sizeof(to_read), .flags = KVMEM_SHARE_READ_ONLY};
    const kvmem_layout_config config = blocks_config(&kv_kinds[1]);
    CLEANUP(holder_clear) peer owner = holder_in_common();
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
    /* As from pinned memory. */
    CHECK(info.path >= KVMEM_PATH_CUDA_BATCH && info.path <= KVMEM_PATH_CUDA_STAGED);
    kv_expect_moved(&here, &there, &move);
    blocks_check(own, &here);
    const kvmem_transfer_options back = kv_transfer_options(&move);
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, "", kvmem_transfer_create, own, locked, &back);
    CALL(kvmem_layout_destroy(own));
    CALL(kvmem_layout_destroy(locked));
    await_live(&before);
    SIM(sim_reset());
}
