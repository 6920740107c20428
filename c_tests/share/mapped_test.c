// SPDX-License-Identifier: Apache-2.0
// Memory that an engine has mapped with cuMemMap, adopted and shared: a share carries exactly the mappings
// that it needs, and fails if one of them is not exportable.
#include "engine.h"
#include "exchange.h"
#include "filled.h"
#include "kinds.h"
#include "offer.h"
#include "opened.h"

static void mapping_owner(int socket);
HOLDER_ROLE

#define EXPORTABLE CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

enum { WHERE = 1 };

/* Role: shares a part of four mappings, each of which is filled with its number. */
ROLE(mapping_owner) {
    CLEANUP(span_close) span span;
    span_open_exportable(&span, 0, EXPORTABLE, 4, 4);
    for (uint64_t i = 0; i < 4; i++)
        fill_device(0, span.address + i * span.granule, span.granule, (unsigned char)(i + 1));
    uint64_t part[2]; /* in quarters of a mapping */
    frame_expect_into(socket, WHERE, part, sizeof(part));
    const uint64_t quarter = span.granule / 4;
    OWNED(kvmem_region) region = region_adopt_on_gpu(span.address + part[0] * quarter, part[1] * quarter,
                                                     NULL);
    CLEANUP(parcel_close) parcel parcel = parcel_of_region(region, NULL);
    parcel_send(socket, &parcel);
    CHECK(!frame_arrives(socket));
}

static peer start_mapper(uint64_t first, uint64_t quarters, parcel *parcel) {
    const uint64_t part[2] = {first, quarters};
    peer owner = peer_start("mapping_owner");
    frame_send(owner.socket, WHERE, part, sizeof(part));
    *parcel = parcel_receive(owner.socket);
    return owner;
}

TEST(a_share_carries_exactly_the_mappings_of_the_region) {
    static const struct {
        uint64_t first;
        uint64_t quarters;
        size_t mappings;
    } parts[] = {
        {0, 16, 4}, {0, 4, 1}, {4, 4, 1}, {5, 2, 1}, {3, 2, 2}, {1, 14, 4}, {4, 8, 2}, {7, 9, 3}, {15, 1, 1},
    };
    for (size_t i = 0; i < NUM(parts); i++) {
        CLEANUP(parcel_close) parcel parcel;
        CLEANUP(peer_finish) peer owner = start_mapper(parts[i].first, parts[i].quarters, &parcel);
        CHECK_EQ(parcel.num_fds, 1 + parts[i].mappings); /* and the control block */
        OWNED(kvmem_region) region = open_parcel(&parcel, 0);
        const kvmem_region_info info = region_info(region);
        CHECK_EQ(info.tier, KVMEM_TIER_DEVICE);
        CHECK_EQ(info.origin, KVMEM_ORIGIN_IMPORTED);
        const uint64_t quarter = info.size / parts[i].quarters;
        for (uint64_t k = 0; k < parts[i].quarters; k++) {
            const unsigned char value = (unsigned char)((parts[i].first + k) / 4 + 1);
            check_device(0, info.address + k * quarter, quarter, value);
        }
    }
}

static void refuse_share(const kvmem_region *region, uint32_t transport, const char *part) {
    const kvmem_share_options options = {.struct_size = sizeof(options), .transport = transport};
    REFUSE(KVMEM_STATUS_UNSUPPORTED, part, kvmem_share_create_region, region, &options);
}

TEST(mappings_that_are_not_exportable_are_not_shared) {
    OPENED(span, span, 0, 2, 2);
    OWNED(kvmem_region) region = region_adopt_on_gpu(span.address + 4096, span.granule, NULL);
    refuse_share(region, KVMEM_SHARE_AUTO, "requestedHandleTypes");
    refuse_share(region, KVMEM_SHARE_FD, "not created to be exported as a file descriptor");
    refuse_share(region, KVMEM_SHARE_FABRIC, "not created to be exported as a fabric handle");
    refuse_share(region, KVMEM_SHARE_IPC, "IPC handle");
}

TEST(one_mapping_that_is_not_exportable_fails_the_share) {
    CLEANUP(span_close) span span;
    span_open_exportable(&span, 0, EXPORTABLE, 3, 2);
    span.handle_types = 0;
    span_grow(&span, 0);
    OWNED(kvmem_region) region = region_adopt_on_gpu(span.address, 3 * span.granule, NULL);
    OWNED(kvmem_region) first = region_adopt_on_gpu(span.address, 2 * span.granule, NULL);
    refuse_share(region, KVMEM_SHARE_AUTO, "mapping 2 of the 3 mappings of the region");
    OWN(kvmem_share, share, kvmem_share_create_region, first, NULL);
}

/* Plain memory has no file descriptor, and two adjacent allocations have no common handle. */
TEST(plain_device_memory_is_shared_by_ipc_only) {
    ENGINE_MEMORY(address, 0, MIB);
    OWNED(kvmem_region) region = region_adopt_on_gpu(address, MIB, NULL);
    refuse_share(region, KVMEM_SHARE_FD, "plain device memory");
    refuse_share(region, KVMEM_SHARE_FABRIC, "plain device memory");
}

TEST(blocks_of_a_mapped_layout_move_in_both_directions) {
    const kv_move move = KV_MOVE(3, {6, 0}, {0, 5}, {1, 6}, {3, 3});
    for (size_t kind = 0; kind < KV_NUM_KINDS; kind++) {
        CLEANUP(peer_finish) peer owner = holder_start();
        CLEANUP(exchange_close) exchange both;
        exchange_open(&both, owner, &(exchange_options){.there = MEMORY_MAPPED, .here = MEMORY_DEVICE,
                                                        .layout_kind = kind, .placement = BLOCKS_APART});
        both.mapped = open_layout(&both.parcel, KVMEM_OPEN_MAPPED_ONLY, NULL);
        exchange_pull(&both, both.mapped, &move, KVMEM_METHOD_CUDA_KERNEL);
        exchange_push(&both, both.mapped, &move, 0);
    }
}
