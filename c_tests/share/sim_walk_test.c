// SPDX-License-Identifier: Apache-2.0
// Each driver call of sharing and opening fails once, in order. Needs the stand-in driver.
#include "control.h"
#include "holder.h"
#include "layouts.h"
#include "memory.h"
#include "moves.h"
#include "opened.h"
#include "operations.h"
#include "walk.h"

HOLDER_ROLE

/* Regions that this process shares, and parcels of peers. */
static kvmem_region *own[NUM_MEMORY_KINDS];
static kvmem_layout *own_layout;
static peer owners[NUM_MEMORY_KINDS];
static parcel parcels[NUM_MEMORY_KINDS];
static peer layout_owner;
static parcel layout_parcel;

static const memory_kind kinds[] = {MEMORY_PINNED, MEMORY_DEVICE, MEMORY_MAPPED, MEMORY_ELASTIC,
                                    MEMORY_FABRIC};

void operations_open(void) {
    let_objects_remain(); /* granules of mapped memory */
    for (size_t i = 0; i < NUM(kinds); i++) {
        const memory_kind kind = kinds[i];
        own[kind] = memory_create(kind, MEMORY_SIZE, NULL);
        owners[kind] = holder_start();
        holder_make(&owners[kind], kind, NULL, 1);
        parcels[kind] = holder_share(&owners[kind], NULL);
    }
    own_layout = blocks_build(MEMORY_ELASTIC, REF(blocks_config(&kv_kinds[1])), BLOCKS_TOGETHER, NULL);
    layout_owner = holder_start();
    holder_build(&layout_owner, MEMORY_ELASTIC, 1, BLOCKS_TOGETHER, NULL, 1);
    layout_parcel = holder_share(&layout_owner, NULL);
}

void operations_close(void) {
    for (size_t i = 0; i < NUM(kinds); i++) {
        const memory_kind kind = kinds[i];
        CHECK_EQ(holder_holders(&owners[kind], HOLDING_OWN).importers, 0);
        kvmem_region_destroy(own[kind]);
        parcel_close(&parcels[kind]);
        peer_finish(&owners[kind]);
    }
    kvmem_layout_destroy(own_layout);
    parcel_close(&layout_parcel);
    peer_finish(&layout_owner);
}

static kvmem_status share(memory_kind kind) {
    const kvmem_share_options options = {.struct_size = sizeof(options), .transport = memory_transport(kind)};
    return TRIED(kvmem_share, kvmem_share_create_region, own[kind], &options);
}

OPERATION_CALL(share_device_memory, share(MEMORY_DEVICE))
OPERATION_CALL(share_elastic_memory, share(MEMORY_ELASTIC))
OPERATION_CALL(share_by_fabric, share(MEMORY_FABRIC))
OPERATION_CALL(share_mapped_memory, share(MEMORY_MAPPED))

OPERATION_CALL(share_a_layout, TRIED(kvmem_share, kvmem_share_create_layout, own_layout, NULL))

OPERATION_CALL(open_page_locked, try_parcel(&parcels[MEMORY_PINNED], KVMEM_OPEN_PIN))
OPERATION_CALL(open_device_memory, try_parcel(&parcels[MEMORY_DEVICE], 0))

/* By device 1, which has peer access to the owner's device. */
OPERATION(open_for_another_device) {
    OWNED(kvmem_share) share = parcel_share(&parcels[MEMORY_DEVICE]);
    const kvmem_open_options options = {
        .struct_size = sizeof(options), .flags = KVMEM_OPEN_FOR_DEVICE, .device = 1};
    return TRIED(kvmem_region, kvmem_share_open_region, share, &options);
}

OPERATION_CALL(open_mapped_memory, try_parcel(&parcels[MEMORY_MAPPED], 0))
OPERATION_CALL(open_by_fabric, try_parcel(&parcels[MEMORY_FABRIC], 0))
OPERATION_CALL(open_elastic_memory, try_parcel(&parcels[MEMORY_ELASTIC], 0))
OPERATION_CALL(open_elastic_memory_to_read, try_parcel(&parcels[MEMORY_ELASTIC], KVMEM_OPEN_READ_ONLY))

OPERATION(open_a_layout) {
    OWNED(kvmem_share) share = parcel_share(&layout_parcel);
    return TRIED(kvmem_layout, kvmem_share_open_layout, share, NULL);
}

/* From memory of a peer that is mapped here. */
static kvmem_status copy_from_a_mapped_share(uint32_t method) {
    kvmem_share *share = parcel_share(&layout_parcel);
    OWNED(kvmem_layout) layout = NULL;
    OWNED(kvmem_layout) destination = NULL;
    kvmem_status status = kvmem_share_open_layout(share, NULL, &layout, ERR);
    kvmem_share_destroy(share);
    if (status == KVMEM_STATUS_OK) {
        const kvmem_layout_config config = blocks_config(&kv_kinds[1]);
        status = build_on_device(0, &config, &destination);
    }
    THEN(status, move_by(layout, destination, method, WITHOUT_STREAM));
    return status;
}

OPERATION_CALL(copy_from_a_mapped_share_by_kernel, copy_from_a_mapped_share(KVMEM_METHOD_CUDA_KERNEL))
OPERATION_CALL(copy_from_a_mapped_share_one_by_one, copy_from_a_mapped_share(KVMEM_METHOD_CUDA_COPY))

WALK_CASES
