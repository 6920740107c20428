// SPDX-License-Identifier: Apache-2.0
// Fabric handles: if the driver supports them, elastic memory is shared by them; if not, creating the memory
// fails at once.
#include "offer.h"
#include "kinds.h"
#include "opened.h"

HOLDER_ROLE

static const kvmem_share_options by_fabric = {.struct_size = sizeof(by_fabric),
                                              .transport = KVMEM_SHARE_FABRIC};

static bool driver_has_fabric(void) {
    GET(kvmem_cuda_device_info, info, kvmem_cuda_get_device_info, 0);
    return (info.capabilities & KVMEM_CUDA_FABRIC) != 0;
}

static void require_fabric(void) {
    if (!driver_has_fabric()) SKIP("fabric handles: this driver creates none");
}

/* Either the region is created with them, or the driver's reason is reported. */
TEST(fabric_handles_are_created_or_unsupported) {
    kvmem_elastic_options options = OPTIONS(kvmem_elastic_options, it.flags = KVMEM_ELASTIC_FABRIC,
                                            it.size = MEMORY_SIZE, it.extent_size = MEMORY_EXTENT);
    kvmem_region *region = (kvmem_region *)&options;
    if (driver_has_fabric()) {
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

TEST(layouts_are_built_with_fabric_handles_or_unsupported) {
    const kvmem_layout_config config = blocks_config(&kv_kinds[0]);
    kvmem_elastic_options elastic = {.struct_size = sizeof(elastic), .flags = KVMEM_ELASTIC_FABRIC};
    kvmem_layout_config own = config;
    own.alignment = MEMORY_EXTENT / 4;
    kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = &own,
                                           it.source = KVMEM_LAYOUT_ALLOCATE, it.elastic = &elastic);
    OWNED(kvmem_layout) layout = NULL;
    OWNED(kvmem_share) share = NULL;
    EXPECT(driver_has_fabric() ? KVMEM_STATUS_OK : KVMEM_STATUS_UNSUPPORTED,
           kvmem_layout_build(&options, &layout, ERR));
    if (layout != NULL) {
        EXPECT_OK(kvmem_layout_resize(layout, 4, ERR));
        EXPECT_OK(kvmem_share_create_layout(layout, &by_fabric, &share, ERR));
    }
}

TEST(memory_without_fabric_handles_is_not_shared_by_them) {
    OWNED(kvmem_region) region = memory_create(MEMORY_ELASTIC, MEMORY_SIZE, NULL);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "KVMEM_ELASTIC_FABRIC", kvmem_share_create_region, region, &by_fabric);
}

/* An extent with both types of handle can be shared by either. AUTO selects file descriptors. */
TEST(auto_prefers_file_descriptors) {
    require_fabric();
    static const struct {
        uint32_t transport;
        size_t fds;
    } transports[] = {
        {KVMEM_SHARE_AUTO, 1 + MEMORY_SIZE / MEMORY_EXTENT},
        {KVMEM_SHARE_FD, 1 + MEMORY_SIZE / MEMORY_EXTENT},
        {KVMEM_SHARE_FABRIC, 1},
    };
    OWNED(kvmem_region) region = memory_create(MEMORY_FABRIC, MEMORY_SIZE, NULL);
    for (size_t i = 0; i < NUM(transports); i++) {
        const kvmem_share_options options = {.struct_size = sizeof(options),
                                             .transport = transports[i].transport};
        OWN(kvmem_share, share, kvmem_share_create_region, region, &options);
        CLEANUP(parcel_close) parcel parcel = parcel_of(share);
        CHECK_EQ(parcel.num_fds, transports[i].fds);
    }
}

/* The share keeps its extents. Without the share, a handle may refer to other memory by now, so it is not
   opened. */
TEST(decommitted_extents_are_not_opened) {
    require_fabric();
    OPENED(offer, offer, MEMORY_FABRIC, NULL);
    kvmem_region *region = open_parcel(&offer.parcel, 0);
    CHECK_EQ(holder_decommit(&offer.owner, 0, MEMORY_EXTENT), KVMEM_STATUS_BUSY);
    holder_end_shares(&offer.owner);
    CHECK_EQ(holder_decommit(&offer.owner, 0, MEMORY_EXTENT), KVMEM_STATUS_OK);
    memory_check(region, 1); /* mapped extents stay */
    CALL(kvmem_region_destroy(region));
    refuse_parcel(&offer.parcel, 0, KVMEM_STATUS_STALE, "share them again");
    CHECK_EQ(holder_commit(&offer.owner, 0, MEMORY_EXTENT), KVMEM_STATUS_OK);
    refuse_parcel(&offer.parcel, 0, KVMEM_STATUS_STALE, "share them again");
}
