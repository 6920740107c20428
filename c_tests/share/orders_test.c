// SPDX-License-Identifier: Apache-2.0
// Processes that see the GPUs in different orders, or see different GPUs. Fails on a machine with one GPU.
#include "holder.h"
#include "kinds.h"
#include "opened.h"

REQUIRES(lacks_two_gpus)

HOLDER_ROLE

static const memory_kind kinds[] = {MEMORY_DEVICE, MEMORY_ADOPTED, MEMORY_MAPPED, MEMORY_ELASTIC};

TEST(the_device_is_found_by_its_uuid) {
    CHECK(driver_devices() >= 2);
    for (size_t i = 0; i < NUM(kinds); i++) {
        CLEANUP(peer_finish) peer owner = peer_start_with("holder", "CUDA_VISIBLE_DEVICES", "1,0");
        holder_make(&owner, kinds[i], NULL, 1);
        CHECK_EQ(holder_info(&owner, HOLDING_OWN).device, 0);
        CLEANUP(parcel_close) parcel parcel = holder_share(&owner, NULL);
        OWNED(kvmem_region) region = open_parcel(&parcel, 0);
        CHECK_EQ(region_info(region).device, 1);
        memory_check(region, 1);
        memory_fill(region, 2);
        holder_check(&owner, HOLDING_OWN, 2);
    }
}

/* The UUID of a device as tools print it. */
static void write_uuid(int device, char text[64]) {
    GET(kvmem_cuda_device_info, info, kvmem_cuda_get_device_info, device);
    size_t length = (size_t)sprintf(text, "GPU");
    for (size_t i = 0; i < sizeof(info.uuid); i++) {
        const bool dashed = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
        length += (size_t)sprintf(text + length, "%s%02x", dashed ? "-" : "", info.uuid[i]);
    }
}

TEST(a_device_that_is_not_visible_is_named) {
    CHECK(driver_devices() >= 2);
    char uuid[64];
    write_uuid(1, uuid);
    for (size_t i = 0; i < NUM(kinds); i++) {
        CLEANUP(peer_finish) peer owner = peer_start_with("holder", "CUDA_VISIBLE_DEVICES", "1");
        CLEANUP(peer_finish) peer blind = peer_start_with("holder", "CUDA_VISIBLE_DEVICES", "0");
        CLEANUP(peer_finish) peer seeing = peer_start_with("holder", "CUDA_VISIBLE_DEVICES", "1");
        holder_make(&owner, kinds[i], NULL, 1);
        CLEANUP(parcel_close) parcel parcel = holder_share(&owner, NULL);
        CHECK_EQ(holder_open(&blind, &parcel, 0), KVMEM_STATUS_NOT_FOUND);
        char *reason = holder_message(&blind);
        CHECK_HAS(reason, uuid + strlen("GPU-"));
        CHECK_HAS(reason, "CUDA_VISIBLE_DEVICES");
        free(reason);
        CHECK_EQ(holder_holders(&owner, HOLDING_OWN).importers, 0);
        CHECK_EQ(holder_open(&seeing, &parcel, 0), KVMEM_STATUS_OK);
        CHECK_EQ(holder_info(&seeing, HOLDING_OPENED).device, 0);
        holder_check(&seeing, HOLDING_OPENED, 1);
    }
}
