// SPDX-License-Identifier: Apache-2.0
// Creates the share, opens it, and destroys the share.
#include "opened.h"

static uint64_t trust = KVMEM_OPEN_TRUST_OWNER;

void trust_owners(bool do_trust) { trust = do_trust ? KVMEM_OPEN_TRUST_OWNER : 0; }

static kvmem_status open_with_device(const parcel *parcel, uint64_t flags, int device,
                                     kvmem_region **region) {
    kvmem_open_options options = OPTIONS(kvmem_open_options, it.flags = flags | trust, it.device = device);
    OWNED(kvmem_share) share = NULL;
    kvmem_status status = parcel_read(parcel, &share);
    THEN(status, kvmem_share_open_region(share, &options, region, ERR));
    return status;
}

static kvmem_status open_with(const parcel *parcel, uint64_t flags, kvmem_region **region) {
    return open_with_device(parcel, flags, 0, region);
}

kvmem_region *open_parcel_for(const parcel *parcel, uint64_t flags, int device) {
    kvmem_region *region = NULL;
    EXPECT_OK(open_with_device(parcel, flags | KVMEM_OPEN_FOR_DEVICE, device, &region));
    return region;
}

kvmem_status try_parcel_for(const parcel *parcel, uint64_t flags, int device, kvmem_region **region) {
    return open_with_device(parcel, flags | KVMEM_OPEN_FOR_DEVICE, device, region);
}

void refuse_parcel_for(const parcel *parcel, uint64_t flags, int device, kvmem_status status,
                       const char *part) {
    kvmem_region *region = NULL;
    EXPECT_MESSAGE(status, part,
                   open_with_device(parcel, flags | KVMEM_OPEN_FOR_DEVICE, device, &region));
    CHECK(region == NULL);
}

kvmem_region *open_parcel(const parcel *parcel, uint64_t flags) {
    kvmem_region *region = NULL;
    EXPECT_OK(open_with(parcel, flags, &region));
    return region;
}

void refuse_parcel(const parcel *parcel, uint64_t flags, kvmem_status status, const char *part) {
    kvmem_region *region = NULL;
    EXPECT_MESSAGE(status, part, open_with(parcel, flags, &region));
    CHECK(region == NULL);
}

static kvmem_status open_layout_with(const parcel *parcel, uint64_t flags, int device, kvmem_agent *agent,
                                     kvmem_layout **layout) {
    kvmem_open_options options = OPTIONS(kvmem_open_options, it.flags = flags | trust, it.device = device,
                                         it.agent = agent);
    OWNED(kvmem_share) share = parcel_share(parcel);
    return kvmem_share_open_layout(share, &options, layout, ERR);
}

kvmem_layout *open_layout(const parcel *parcel, uint64_t flags, kvmem_agent *agent) {
    kvmem_layout *layout = NULL;
    EXPECT_OK(open_layout_with(parcel, flags, 0, agent, &layout));
    return layout;
}

kvmem_layout *open_layout_for(const parcel *parcel, uint64_t flags, int device) {
    kvmem_layout *layout = NULL;
    EXPECT_OK(open_layout_with(parcel, flags | KVMEM_OPEN_FOR_DEVICE, device, NULL, &layout));
    return layout;
}

void refuse_layout(const parcel *parcel, uint64_t flags, kvmem_agent *agent, kvmem_status status,
                   const char *part) {
    kvmem_layout *layout = NULL;
    EXPECT_MESSAGE(status, part, open_layout_with(parcel, flags, 0, agent, &layout));
    CHECK(layout == NULL);
}

kvmem_status try_parcel(const parcel *parcel, uint64_t flags) {
    OWNED(kvmem_region) region = NULL;
    return open_with(parcel, flags, &region);
}
