// SPDX-License-Identifier: Apache-2.0
// Fabric handles: where the driver gives them elastic memory goes by them, and where it does not that is told
// at once.
#include "offer.h"
#include "kinds.h"
#include "opened.h"

HOLDER_ROLE

static const kvmem_share_options by_fabric = {.struct_size = sizeof(by_fabric),
                                              .transport = KVMEM_SHARE_FABRIC};

static bool there_are_some(void) {
    GET(kvmem_cuda_device_info, info, kvmem_cuda_get_device_info, 0);
    return (info.capabilities & KVMEM_CUDA_FABRIC) != 0;
}

static void require_fabric(void) {
    if (!there_are_some()) SKIP("fabric handles: this driver creates none");
}

/* Asked for, they are there, or the driver's reason is. */
TEST(they_are_made_or_refused) {
    kvmem_elastic_options options = OPTIONS(kvmem_elastic_options, it.flags = KVMEM_ELASTIC_FABRIC,
                                            it.size = MEMORY_SIZE, it.extent_size = MEMORY_EXTENT);
    kvmem_region *region = (kvmem_region *)&options;
    if (there_are_some()) {
        EXPECT_OK(kvmem_region_create_elastic(&options, &region, ERR));
        EXPECT_OK(kvmem_region_commit(region, 0, MEMORY_EXTENT, ERR));
        CALL(kvmem_region_destroy(region));
    } else {
        EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "exports no fabric handles",
                       kvmem_region_create_elastic(&options, &region, ERR));
        CHECK_HAS(test_last_message(), "CUDA_ERROR");
        CHECK(region == NULL);
    }
}

TEST(a_layout_is_built_with_them_or_refused) {
    const kvmem_layout_config config = blocks_config(&kv_kinds[0]);
    kvmem_elastic_options elastic = {.struct_size = sizeof(elastic), .flags = KVMEM_ELASTIC_FABRIC};
    kvmem_layout_config own = config;
    own.alignment = MEMORY_EXTENT / 4;
    kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = &own,
                                           it.source = KVMEM_LAYOUT_ALLOCATE, it.elastic = &elastic);
    OWNED(kvmem_layout) layout = NULL;
    OWNED(kvmem_share) share = NULL;
    EXPECT(there_are_some() ? KVMEM_STATUS_OK : KVMEM_STATUS_UNSUPPORTED,
           kvmem_layout_build(&options, &layout, ERR));
    if (layout != NULL) {
        EXPECT_OK(kvmem_layout_resize(layout, 4, ERR));
        EXPECT_OK(kvmem_share_create_layout(layout, &by_fabric, &share, ERR));
    }
}

TEST(memory_without_them_is_not_shared_by_them) {
    OWNED(kvmem_region) region = memory_create(MEMORY_ELASTIC, MEMORY_SIZE, NULL);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "KVMEM_ELASTIC_FABRIC", kvmem_share_create_region, region, &by_fabric);
}

/* An extent of such memory leaves by either way; within a machine by file descriptor, unless told. */
TEST(file_descriptors_come_first) {
    require_fabric();
    static const struct {
        uint32_t way;
        size_t fds;
        unsigned version;
    } ways[] = {
        {KVMEM_SHARE_AUTO, 1 + MEMORY_SIZE / MEMORY_EXTENT, 1},
        {KVMEM_SHARE_FD, 1 + MEMORY_SIZE / MEMORY_EXTENT, 1},
        {KVMEM_SHARE_FABRIC, 1, 2},
    };
    OWNED(kvmem_region) region = memory_create(MEMORY_FABRIC, MEMORY_SIZE, NULL);
    for (size_t i = 0; i < NUM(ways); i++) {
        const kvmem_share_options options = {.struct_size = sizeof(options), .transport = ways[i].way};
        OWN(kvmem_share, share, kvmem_share_create_region, region, &options);
        CLEANUP(parcel_close) parcel parcel = parcel_of(share);
        CHECK_EQ(parcel.num_fds, ways[i].fds);
        CHECK_EQ(parcel.bytes.data[8], ways[i].version); /* whoever reads the older one reads it */
    }
}

/* The share keeps its extents; without it a handle may name other memory by now, and is not believed. */
TEST(what_was_taken_back_is_not_opened) {
    require_fabric();
    OPENED(offer, offer, MEMORY_FABRIC, NULL);
    kvmem_region *region = open_parcel(&offer.parcel, 0);
    CHECK_EQ(holder_decommit(&offer.owner, 0, MEMORY_EXTENT), KVMEM_STATUS_BUSY);
    holder_end_shares(&offer.owner);
    CHECK_EQ(holder_decommit(&offer.owner, 0, MEMORY_EXTENT), KVMEM_STATUS_OK);
    memory_check(region, 1); /* what is mapped stays */
    CALL(kvmem_region_destroy(region));
    refuse_parcel(&offer.parcel, 0, KVMEM_STATUS_STALE, "share them again");
    CHECK_EQ(holder_commit(&offer.owner, 0, MEMORY_EXTENT), KVMEM_STATUS_OK);
    refuse_parcel(&offer.parcel, 0, KVMEM_STATUS_STALE, "share them again");
}
